// A round of tiles in which most multiprocessors have none costs as much as a full one: 144 tiles on 132 of them take as
// long as 264. Here as many blocks as there is room for stay, and what is beyond whole rounds of tiles, with one round of
// those, is shared out by steps of K: each block gets as many, from one to two tiles' worth. A share is never less than a
// tile, so a tile has two parts at the most. Whoever of two blocks comes to it later finds the other's sums in memory, adds
// them to its own, and stores the tile: nobody waits, and the sum of two numbers is the same whoever adds.
#include <cuda_pipeline.h>

#include "arrivals.cuh"
#include "dependent.cuh"
#include "last.cuh"
#include "walk.cuh"

#ifndef TW_BM
#define TW_BM 64
#define TW_BN 64
#define TW_TN 8
#define TW_BK 16
#define TW_STAGES 3
#define TW_BLOCKS 2
#endif

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = TW_BK;
constexpr int TM = 8;
constexpr int TN = TW_TN;
constexpr int WM = 4 * TM;
constexpr int WN = 8 * TN;
constexpr int BLOCKS = TW_BLOCKS;  // that stay, at the most
constexpr int STAGES = TW_STAGES;
// The step of a tile whose reads a warp arrives after. With two stages the next copies go to where it reads: the last.
constexpr int ARRIVAL = STAGES == 2 ? BK - 1 : BK - 4;
constexpr int BAND = 8;  // rows of tiles that are made column by column
constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int ROOM = 4096 / TN / THREADS;  // blocks that an SM has registers for
constexpr int A_ROWS = THREADS / 16;         // that a pass copies, 16 elements each
constexpr int B_ROWS = THREADS / (BN / 4);
constexpr int A_STAGE = BK * (BM + 4);  // turned
constexpr int B_STAGE = BK * BN;
constexpr int PARTIALS = BLOCKS * 2 * BM * BN;  // sums of both parts of each tile that is divided
static_assert(STAGES == 2 || STAGES == 3, "the copies are one tile ahead");
static_assert(BK % 16 == 0, "a pass copies whole rows of A");
static_assert(THREADS % (BN / 4) == 0, "a pass copies whole rows of B");

// What a block does at a time: so many steps of K of a tile. border: between the shares of two blocks, if the tile has one,
// else -1.
struct Segment {
    Place place;
    int first_step, steps;
    int border;
    bool is_end;  // of the tile, where it has a border
};

// In shared memory, for one thread: in registers, it would take those that the main loop needs.
struct Work {
    Segment now;
    int rows, columns, tile_steps;
    int shared_tiles;
    int at, end;  // of the block's share, in steps of K
    int whole;    // the next tile that is taken whole

    __device__ __forceinline__ void begin(int M, int N, int K) {
        rows = (M + BM - 1) / BM;
        columns = (N + BN - 1) / BN;
        tile_steps = (K + BK - 1) / BK;
        const int blocks = gridDim.x;
        const int over = rows * columns % blocks;
        shared_tiles = over ? over + blocks : 0;
        const long long steps = (long long)shared_tiles * tile_steps;
        at = (int)(steps * blockIdx.x / blocks);
        end = (int)(steps * (blockIdx.x + 1) / blocks);
        whole = shared_tiles + blockIdx.x;
    }
    __device__ __forceinline__ void next() {
        int tile = whole;
        now.first_step = 0;
        now.steps = tile_steps;
        now.border = -1;
        now.is_end = false;
        if (at < end) {
            tile = at / tile_steps;
            now.first_step = at % tile_steps;
            now.steps = min(tile_steps - now.first_step, end - at);
            now.is_end = now.first_step > 0;
            if (now.steps < tile_steps) now.border = blockIdx.x + !now.is_end;
            at += now.steps;
        } else {
            whole += gridDim.x;
        }
        now.place = place_of<BAND>(tile, rows, columns);
        if (tile >= rows * columns) now.steps = 0;  // there are no more
    }
};

// The products of a tile's rows and columns, of which there are so many, and of `steps` tiles of K, added to the sums. The
// first has `first` terms, the others BK; there are `left` tiles of K from here to the end, or more than one before.
template <bool WHOLE>
__device__ __forceinline__ void add_products(float (&sums)[TM][TN], float* ring, Arrivals* landed, const float* a,
                                             const float* b, int ld_a, int ld_b, int rows, int columns, int first,
                                             int steps, int left, int& phase) {
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int a_row = tid / 16;
    const int a_k = tid % 16;
    const int b_k = tid / (BN / 4);
    const int b_column = tid % (BN / 4) * 4;
    const long long a_step = (long long)A_ROWS * ld_a;
    const long long b_step = (long long)B_ROWS * ld_b;
    a += (long long)(WHOLE ? a_row : min(a_row, rows - 1)) * ld_a + a_k;
    b += (long long)b_k * ld_b + (WHOLE ? b_column : min(b_column, columns - 4));
    // A warp copies 16 elements of two rows. In the upper 8, rows two apart change places: no bank is hit twice.
    float* const a_to = ring + a_k * (BM + 4) + (a_row ^ a_k / 8 * 2);
    float* const b_to = ring + STAGES * A_STAGE + b_k * BN + b_column;
    const float* const a_from = ring + warp / (BN / WN) * WM + (lane / 16 * 2 + lane % 2) * 4;
    const float* const b_from = ring + STAGES * A_STAGE + warp % (BN / WN) * WN + lane % 16 / 2 * 4;

    // `terms` of BK are there.
    auto copy_tile = [&](int terms, int stage) {
        const float* a_next = a;
        #pragma unroll
        for (int i = 0; i < BM; i += A_ROWS) {
            #pragma unroll
            for (int k = 0; k < BK; k += 16) {
                __pipeline_memcpy_async(&a_to[stage * A_STAGE + k * (BM + 4) + i], &a_next[k], 4,
                                        terms == BK || a_k + k < terms ? 0 : 4);
            }
            if (WHOLE || a_row + i + A_ROWS < rows) a_next += a_step;
        }
        const float* b_next = b;
        #pragma unroll
        for (int k = 0; k < BK; k += B_ROWS) {
            __pipeline_memcpy_async(&b_to[stage * B_STAGE + k * BN], b_next, 16,
                                    terms == BK || b_k + k < terms ? 0 : 16);
            b_next += b_step;
        }
    };

    auto arrive_when_landed = [&] {
        __pipeline_wait_prior(0);
        __syncwarp();  // lane 0 arrives for the warp's other lanes, too
        if (lane == 0) arrive(landed);
    };

    copy_tile(first, 0);
    __pipeline_commit();
    a += left > 1 ? first : 0;
    b += left > 1 ? first * (long long)ld_b : 0;
    arrive_when_landed();
    int stage = 0;
    #pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const int next_stage = stage + 1 == STAGES ? 0 : stage + 1;
        wait_for(landed, phase);
        copy_tile(BK, next_stage);
        __pipeline_commit();
        const bool more = step + 2 < left;
        a += more ? BK : 0;
        b += more ? BK * (long long)ld_b : 0;
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            const int swap = k / 8 % 2 * 2;  // the rows that changed places
            float a_part[TM];
            float b_part[TN];
            #pragma unroll
            for (int i = 0; i < TM; i += 4) {
                const float4 read =
                    *reinterpret_cast<const float4*>(&a_from[stage * A_STAGE + k * (BM + 4) + i * (WM / TM)]);
                a_part[i + (0 ^ swap)] = read.x;
                a_part[i + (1 ^ swap)] = read.y;
                a_part[i + (2 ^ swap)] = read.z;
                a_part[i + (3 ^ swap)] = read.w;
            }
            #pragma unroll
            for (int j = 0; j < TN; j += 4) {
                const float4 read =
                    *reinterpret_cast<const float4*>(&b_from[stage * B_STAGE + k * BN + j * (WN / TN)]);
                b_part[j + 0] = read.x;
                b_part[j + 1] = read.y;
                b_part[j + 2] = read.z;
                b_part[j + 3] = read.w;
            }
            if (k == ARRIVAL) arrive_when_landed();
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                #pragma unroll
                for (int step = 0; step < TM; ++step) {
                    const int i = j % 2 == 0 ? step : TM - 1 - step;
                    sums[i][j] = fmaf(a_part[i], b_part[j], sums[i][j]);
                }
            }
        }
        stage = next_stage;
        phase ^= 1;
    }
    phase ^= 1;  // that of the last step's copy is waited for where the next segment begins
}

// Whether the other part's sums are there already.
__device__ __forceinline__ bool is_second(const unsigned* ticket) {
    unsigned drawn;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(drawn) : "l"(ticket) : "memory");
    return drawn != 0;
}

// A tile's sums are the block's in part, the others another block's: true for who comes second, and has them all.
__device__ __forceinline__ bool meet(float4 (&quads)[TM][TN / 4], int border, bool is_end, float* partial,
                                     unsigned* tickets, bool* answer) {
    const int tid = threadIdx.x;
    float4* of_parts = reinterpret_cast<float4*>(partial) + border * 2 * (BM * BN / 4) + tid;  // [part][quad][thread]
    if (tid == 0) *answer = is_second(tickets + border);
    __syncthreads();
    if (!*answer) {
        #pragma unroll
        for (int i = 0; i < TM * TN / 4; ++i)
            of_parts[is_end * (BM * BN / 4) + i * THREADS] = quads[i / (TN / 4)][i % (TN / 4)];
    }
    __syncthreads();
    if (tid == 0) *answer = draws_last(tickets + border, 2);
    __syncthreads();
    if (!*answer) return false;
    #pragma unroll
    for (int i = 0; i < TM * TN / 4; ++i) {
        float4& own = quads[i / (TN / 4)][i % (TN / 4)];
        const float4 other = __ldcg(&of_parts[!is_end * (BM * BN / 4) + i * THREADS]);  // past L1: written elsewhere
        own = make_float4(own.x + other.x, own.y + other.y, own.z + other.z, own.w + other.w);
    }
    return true;
}

// partial: see PARTIALS. tickets: one a block, 0, and 0 again at the end.
extern "C" __global__ void __launch_bounds__(THREADS, ROOM)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, float* partial, unsigned* tickets,
      int M, int N, int K, int ld_a, int ld_b) {
    wait_for_previous_grid();
    extern __shared__ __align__(128) unsigned char tile_ring[];
    __shared__ Arrivals landed;  // the warps' copies of a tile
    __shared__ Work work;
    __shared__ bool answer;
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int patch_row = warp / (BN / WN) * WM + (lane / 16 * 2 + lane % 2) * 4;
    const int patch_column = warp % (BN / WN) * WN + lane % 16 / 2 * 4;
    float* const ring = reinterpret_cast<float*>(tile_ring);
    const float one = K > 0 ? 1.0f : 0.0f;  // unknown to the compiler, as in 07_operand_reuse
    if (tid == 0) {
        expect_arrivals<THREADS / 32>(&landed);
        work.begin(M, N, K);
    }
    const Segment& now = work.now;
    int phase = 0;
    #pragma unroll 1
    while (true) {
        __syncthreads();  // nobody reads the last tile's ring any more, or what was to be done
        if (tid == 0) work.next();
        wait_for(&landed, phase ^ 1);  // all have come by: it passes at once. The first has none before, and passes, too
        __syncthreads();
        if (now.steps == 0) return;
        const int first_row = now.place.row * BM;
        const int first_column = now.place.column * BN;
        const int over = K - (work.tile_steps - 1) * BK;  // the first tile of K is what is left over
        const int first_k = now.first_step == 0 ? 0 : over + (now.first_step - 1) * BK;
        const int first = now.first_step == 0 ? over : BK;
        const int left = work.tile_steps - now.first_step;
        const float* const a_tile = a + (long long)first_row * ld_a + first_k;
        const float* const b_tile = b + (long long)first_k * ld_b + first_column;
        float sums[TM][TN] = {};
        if (first_row + BM <= M && first_column + BN <= N) {
            add_products<true>(sums, ring, &landed, a_tile, b_tile, ld_a, ld_b, BM, BN, first, now.steps, left, phase);
        } else {
            add_products<false>(sums, ring, &landed, a_tile, b_tile, ld_a, ld_b, M - first_row, N - first_column, first,
                                now.steps, left, phase);
        }
        float4 quads[TM][TN / 4];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; j += 4)
                quads[i][j / 4] =
                    make_float4(one * sums[i][j], one * sums[i][j + 1], one * sums[i][j + 2], one * sums[i][j + 3]);
        }
        if (now.border >= 0 && !meet(quads, now.border, now.is_end, partial, tickets, &answer)) continue;
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; j += 4) {
                const int row = now.place.row * BM + patch_row + i / 4 * (4 * WM / TM) + i % 4;
                const int column = now.place.column * BN + patch_column + j * (WN / TN);
                if (row < M && column < N)
                    *reinterpret_cast<float4*>(&c[(long long)row * N + column]) = quads[i][j / 4];
            }
        }
    }
}
