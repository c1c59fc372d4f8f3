// Both operands are packed first, once: into tiles as shared memory has them, A turned, rows and columns and terms that
// are not there as zeros. That is little work beside the product's, and whatever the main loop does for each piece that it
// copies is gone from it: addresses, masks, the way of A's elements to their rows, four bytes at a time. One thread asks
// for a tile of each operand, in one bulk copy; the others wait for bytes, and multiply. Rows may begin anywhere.
// The work is shared out as in 19, and where tiles are fewer than blocks, all of them are: a tile has as many parts as
// there are blocks that come to it. Who comes last adds them, in the order of K.
#include "dependent.cuh"
#include "last.cuh"
#include "tma.cuh"
#include "walk.cuh"

#ifndef TW_BM
#define TW_BM 64
#define TW_BN 64
#define TW_TN 8
#define TW_STAGES 4
#define TW_BLOCKS 2
#endif
#ifndef TW_ROOM
#define TW_ROOM 512
#endif

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 16;
constexpr int TM = 8;
constexpr int TN = TW_TN;
constexpr int WM = 4 * TM;
constexpr int WN = 8 * TN;
constexpr int BLOCKS = TW_BLOCKS;  // that stay, at the most
constexpr int STAGES = TW_STAGES;
constexpr int AHEAD = STAGES - 2;  // tiles: nobody reads any more, as a rule, where the next copy goes to
constexpr int BAND = 8;            // rows of tiles that are made column by column
constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int ROOM = TW_ROOM / THREADS;  // blocks that an SM should have registers for
constexpr int A_STAGE = BK * BM;
constexpr int B_STAGE = BK * BN;
constexpr int STAGE = A_STAGE + B_STAGE;
constexpr int QUADS = TM * TN / 4;
constexpr int PARTIALS = BLOCKS * 2 * BM * BN;  // a block has the end of one tile, and the beginning of another
constexpr int PACKERS = 256;                    // threads of a block of the first kernel
constexpr int PACKED = 32;                      // terms that it packs
static_assert(STAGES > 2, "a copy is on its way while a tile is read");

// [tile][k][row] of A, [tile][k][column] of B: a block packs PACKED terms of a tile.
extern "C" __global__ void __launch_bounds__(PACKERS)
pack(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ a_tiles, float* __restrict__ b_tiles,
     int M, int N, int K, int ld_a, int ld_b) {
    __shared__ float turned[PACKED][BM + 1];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int stretches = K / PACKED + (K % PACKED != 0);
    const int rows = (M + BM - 1) / BM;
    const int tile = blockIdx.x / stretches;
    const int first_k = blockIdx.x % stretches * PACKED;
    const int depth = (K / BK + (K % BK != 0)) * BK;  // terms of a packed tile
    wait_for_previous_grid();
    if (tile < rows) {
        const int k = first_k + lane;
        float read[BM / 8];
        #pragma unroll
        for (int i = 0; i < BM / 8; ++i) {
            const int row = tile * BM + warp + i * 8;
            read[i] = row < M && k < K ? a[(long long)row * ld_a + k] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < BM / 8; ++i) turned[lane][warp + i * 8] = read[i];
        __syncthreads();
        float* const to = a_tiles + ((long long)tile * depth + first_k) * BM + lane;
        #pragma unroll
        for (int i = 0; i < PACKED; i += 8) {
            #pragma unroll
            for (int row = 0; row < BM; row += 32)
                if (first_k + warp + i < depth) to[(warp + i) * BM + row] = turned[warp + i][row + lane];
        }
        return;
    }
    float read[PACKED / 8][BN / 32];
    #pragma unroll
    for (int i = 0; i < PACKED / 8; ++i) {
        const int k = first_k + warp + i * 8;
        #pragma unroll
        for (int j = 0; j < BN / 32; ++j) {
            const int column = (tile - rows) * BN + j * 32 + lane;
            read[i][j] = column < N && k < K ? b[(long long)k * ld_b + column] : 0.0f;
        }
    }
    float* const to = b_tiles + ((long long)(tile - rows) * depth + first_k) * BN + lane;
    #pragma unroll
    for (int i = 0; i < PACKED / 8; ++i) {
        #pragma unroll
        for (int j = 0; j < BN / 32; ++j)
            if (first_k + warp + i * 8 < depth) to[(warp + i * 8) * BN + j * 32] = read[i][j];
    }
}

// What a block does at a time: so many steps of K of a tile, which `parts` blocks share, from `first_block` on.
struct Segment {
    Place place;
    int first_step, steps;
    int first_block, parts;
};

// In shared memory, for one thread: in registers, it would take those that the main loop needs.
struct Work {
    Segment now;
    int rows, columns, tile_steps;
    int all;      // steps of the tiles that are shared
    int at, end;  // of the block's share of them
    int whole;    // the next tile that is taken whole

    __device__ __forceinline__ void begin(int M, int N, int K) {
        rows = (M + BM - 1) / BM;
        columns = (N + BN - 1) / BN;
        tile_steps = K / BK + (K % BK != 0);
        const int blocks = gridDim.x;
        const int tiles = rows * columns;
        const int shared_tiles = tiles < blocks ? tiles : tiles % blocks ? tiles % blocks + blocks : 0;
        all = shared_tiles * tile_steps;
        at = (int)((long long)all * blockIdx.x / blocks);
        end = (int)((long long)all * (blockIdx.x + 1) / blocks);
        whole = shared_tiles + blockIdx.x;
    }
    // Whose share has a step: the last that begins no later.
    __device__ __forceinline__ int block_of(int step) const {
        return (int)(((step + 1LL) * gridDim.x - 1) / all);
    }
    __device__ __forceinline__ void next() {
        int tile = whole;
        now.first_step = 0;
        now.steps = tile_steps;
        now.parts = 1;
        if (at < end) {
            tile = at / tile_steps;
            now.first_step = at % tile_steps;
            now.steps = min(tile_steps - now.first_step, end - at);
            now.first_block = block_of(tile * tile_steps);
            now.parts = block_of(tile * tile_steps + tile_steps - 1) - now.first_block + 1;
            at += now.steps;
        } else {
            whole += gridDim.x;
        }
        now.place = place_of<BAND>(tile, rows, columns);
        if (tile >= rows * columns) now.steps = 0;  // there are no more
    }
};

// full: the bytes of a stage are there. empty: all warps have read it.
struct Ring {
    Arrivals full[STAGES];
    Arrivals empty[STAGES];
};

// By one thread: the copy of that number since the kernel began.
__device__ __forceinline__ void copy_tiles(float* stages, Ring* ring, const float* a, const float* b, unsigned number) {
    const unsigned stage = number % STAGES;
    if (number >= STAGES) wait_for(&ring->empty[stage], number / STAGES - 1 & 1);
    expect_bytes(&ring->full[stage], STAGE * 4);
    copy_bytes(stages + stage * STAGE, a, A_STAGE * 4, &ring->full[stage]);
    copy_bytes(stages + stage * STAGE + A_STAGE, b, B_STAGE * 4, &ring->full[stage]);
}

// The products of `steps` tiles of K, added to the sums. number: of the first copy.
__device__ __forceinline__ void add_products(float (&sums)[TM][TN], float* stages, Ring* ring, const float* a,
                                             const float* b, int steps, unsigned& number) {
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const float* const a_from = stages + warp / (BN / WN) * WM + (lane / 16 * 2 + lane % 2) * 4;
    const float* const b_from = stages + A_STAGE + warp % (BN / WN) * WN + lane % 16 / 2 * 4;
    if (tid == 0) {
        #pragma unroll 1
        for (int step = 0; step < min(AHEAD, steps); ++step)
            copy_tiles(stages, ring, a + (long long)step * A_STAGE, b + (long long)step * B_STAGE, number + step);
    }
    #pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        if (tid == 0 && step + AHEAD < steps)
            copy_tiles(stages, ring, a + (long long)(step + AHEAD) * A_STAGE, b + (long long)(step + AHEAD) * B_STAGE,
                       number + AHEAD);
        const unsigned stage = number % STAGES;
        wait_for(&ring->full[stage], number / STAGES & 1);
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a_part[TM];
            float b_part[TN];
            #pragma unroll
            for (int i = 0; i < TM; i += 4) {
                const float4 read = *reinterpret_cast<const float4*>(&a_from[stage * STAGE + k * BM + i * (WM / TM)]);
                a_part[i + 0] = read.x;
                a_part[i + 1] = read.y;
                a_part[i + 2] = read.z;
                a_part[i + 3] = read.w;
            }
            #pragma unroll
            for (int j = 0; j < TN; j += 4) {
                const float4 read = *reinterpret_cast<const float4*>(&b_from[stage * STAGE + k * BN + j * (WN / TN)]);
                b_part[j + 0] = read.x;
                b_part[j + 1] = read.y;
                b_part[j + 2] = read.z;
                b_part[j + 3] = read.w;
            }
            if (k == BK - 1) {
                __syncwarp();  // lane 0 arrives for the warp's other lanes, too
                if (lane == 0) arrive(&ring->empty[stage]);
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                #pragma unroll
                for (int step = 0; step < TM; ++step) {
                    const int i = j % 2 == 0 ? step : TM - 1 - step;
                    sums[i][j] = fmaf(a_part[i], b_part[j], sums[i][j]);
                }
            }
        }
        ++number;
    }
}

// How many have left their sums there.
__device__ __forceinline__ int drawn_of(const unsigned* ticket) {
    unsigned drawn;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(drawn) : "l"(ticket) : "memory");
    return drawn;
}

// A tile's sums are the block's in part, the others other blocks': true for who comes last, and has them all.
__device__ __forceinline__ bool meet(float4 (&quads)[TM][TN / 4], const Segment& now, float* partial, unsigned* tickets,
                                     bool* answer) {
    const int tid = threadIdx.x;
    unsigned* const ticket = tickets + now.first_block;
    float4* const of_blocks = reinterpret_cast<float4*>(partial) + tid;  // [block][begins the tile][quad][thread]
    auto of = [&](int block) { return of_blocks + (2 * block + (block == now.first_block)) * (BM * BN / 4); };
    // Of two, the one that comes second need not leave its own: the sum of two numbers is the same whoever adds.
    if (tid == 0) *answer = now.parts == 2 && drawn_of(ticket) == 1;
    __syncthreads();
    if (!*answer) {
        #pragma unroll
        for (int i = 0; i < QUADS; ++i) of(blockIdx.x)[i * THREADS] = quads[i / (TN / 4)][i % (TN / 4)];
    }
    __syncthreads();
    if (tid == 0) *answer = draws_last(ticket, now.parts);
    __syncthreads();
    if (!*answer) return false;
    if (now.parts == 2) {
        const float4* const others = of(2 * now.first_block + 1 - blockIdx.x);
        #pragma unroll
        for (int i = 0; i < QUADS; ++i) {
            float4& own = quads[i / (TN / 4)][i % (TN / 4)];
            const float4 other = __ldcg(&others[i * THREADS]);  // past L1: written elsewhere
            own = make_float4(own.x + other.x, own.y + other.y, own.z + other.z, own.w + other.w);
        }
        return true;
    }
    #pragma unroll
    for (int i = 0; i < QUADS; ++i) quads[i / (TN / 4)][i % (TN / 4)] = __ldcg(&of(now.first_block)[i * THREADS]);
    #pragma unroll 1
    for (int part = 1; part < now.parts; ++part) {
        const float4* const next = of(now.first_block + part);
        #pragma unroll
        for (int i = 0; i < QUADS; ++i) {
            float4& sum = quads[i / (TN / 4)][i % (TN / 4)];
            const float4 more = __ldcg(&next[i * THREADS]);
            sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
        }
    }
    return true;
}

// partial: see PARTIALS. tickets: one a block, 0, and 0 again at the end.
extern "C" __global__ void __launch_bounds__(THREADS, ROOM)
sgemm(const float* __restrict__ a_tiles, const float* __restrict__ b_tiles, float* __restrict__ c, float* partial,
      unsigned* tickets, int M, int N, int K) {
    extern __shared__ __align__(128) unsigned char tile_ring[];
    __shared__ Ring ring;
    __shared__ Work work;
    __shared__ bool answer;
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int patch_row = warp / (BN / WN) * WM + (lane / 16 * 2 + lane % 2) * 4;
    const int patch_column = warp % (BN / WN) * WN + lane % 16 / 2 * 4;
    const float one = K > 0 ? 1.0f : 0.0f;  // unknown to the compiler, as in 07_operand_reuse
    const bool has_quads = N % 4 == 0 && (reinterpret_cast<unsigned long long>(c) & 15) == 0;
    if (tid == 0) {
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            expect_arrivals<THREADS / 32>(&ring.empty[stage]);
            init_arrivals(&ring.full[stage]);
        }
    }
    const Segment& now = work.now;
    unsigned number = 0;
    wait_for_previous_grid();
    if (tid == 0) work.begin(M, N, K);
    #pragma unroll 1
    while (true) {
        __syncthreads();  // nobody reads any more what was to be done
        if (tid == 0) work.next();
        __syncthreads();
        if (now.steps == 0) return;
        float sums[TM][TN] = {};
        add_products(sums, reinterpret_cast<float*>(tile_ring), &ring,
                     a_tiles + ((long long)now.place.row * work.tile_steps + now.first_step) * A_STAGE,
                     b_tiles + ((long long)now.place.column * work.tile_steps + now.first_step) * B_STAGE, now.steps,
                     number);
        float4 quads[TM][TN / 4];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; j += 4)
                quads[i][j / 4] =
                    make_float4(one * sums[i][j], one * sums[i][j + 1], one * sums[i][j + 2], one * sums[i][j + 3]);
        }
        if (now.parts > 1 && !meet(quads, now, partial, tickets, &answer)) continue;
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; j += 4) {
                const int row = now.place.row * BM + patch_row + i / 4 * (4 * WM / TM) + i % 4;
                const int column = now.place.column * BN + patch_column + j * (WN / TN);
                float* const to = &c[(long long)row * N + column];
                const float4 four = quads[i][j / 4];
                if (row >= M) continue;
                if (has_quads) {
                    if (column < N) *reinterpret_cast<float4*>(to) = four;
                } else {
                    if (column < N) to[0] = four.x;
                    if (column + 1 < N) to[1] = four.y;
                    if (column + 2 < N) to[2] = four.z;
                    if (column + 3 < N) to[3] = four.w;
                }
            }
        }
    }
}
