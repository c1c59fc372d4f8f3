// The product turned over: y's columns are the rows of an instruction, which come 64 at a time, and its rows the columns,
// which come in eights: tiles are as high as rows there are, or as it takes to share y out evenly. b's tiles are the operand
// of 64 rows, a's the other, in whichever way they lie; a thread has two rows of each of two columns, so biases are two.
// Sums leave by stmatrix, which turns them back. The rest is 21_split_k.
#include "batches.cuh"
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 48
#define TW_BN 64
#define TW_STAGES 2
#define TW_PARTS 2
#define TW_SHARERS 1
#define TW_COME 1
#define TW_AHEAD 1
#define TW_ONCE 1
#define TW_PIECES 0
#endif
#ifndef TW_A_ALONG_M
#define TW_A_ALONG_M 0  // neighbours in memory are neighbours along m, not along k
#define TW_B_ALONG_K 0  // along k, not along n
#define TW_BIAS 0
#define TW_C 0
#define TW_ACTIVATION 0
#endif
#include "epilogue.cuh"

constexpr int PARTS = TW_PARTS;      // of K
constexpr int SHARERS = TW_SHARERS;  // tiles, one beside the other: each brings some of a's rows for all
constexpr int CLUSTER = PARTS * SHARERS;
constexpr bool COME = TW_COME;      // the next grid's blocks may come while these work
constexpr int AHEAD = TW_AHEAD;     // tiles of k whose part of b L2 fetches while the grid before still runs
constexpr bool ONCE = TW_ONCE;      // b is more than L2 holds: its lines go first, and a's stay
constexpr bool PIECES = TW_PIECES;  // rows of the result are whole pieces of 16 bytes, and are stored so
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;
constexpr int WIDE = 64;  // elements of a box's rows, 128 bytes: the width of the swizzle
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 8;
constexpr int CONSUMERS = BN / 64;  // warpgroups, of 64 columns each; the copying warp comes behind them
constexpr int THREADS = CONSUMERS * 128 + 32;
constexpr int BOX_BYTES = 64 * 128;
constexpr int A_BOX_ROWS = (TW_A_ALONG_M ? BK : BM) / SHARERS;
constexpr int A_BOXES = TW_A_ALONG_M ? (BM + WIDE - 1) / WIDE : 1;
constexpr int A_BYTES = TW_A_ALONG_M ? A_BOXES * BOX_BYTES : BM * 128;
constexpr int B_BOX_ROWS = TW_B_ALONG_K ? BN : BK;
constexpr int B_BOXES = TW_B_ALONG_K ? 1 : CONSUMERS;
constexpr int STAGE_BYTES = A_BYTES + CONSUMERS * BOX_BYTES;
constexpr int CHUNKS = BM / 8;  // rows of y of a warpgroup's instruction: four sums of each thread
constexpr int OWN_CHUNKS = (CHUNKS + PARTS - 1) / PARTS;  // that a part adds up; the last ones have fewer, or none
constexpr int SHARE = CONSUMERS * 128;                    // words of four sums of a chunk
constexpr int SENT_BYTES = (PARTS - 1) * OWN_CHUNKS * SHARE * 16;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + SENT_BYTES + 1024;
static_assert(BM % 16 == 0 && BM <= 256 && BN % 64 == 0, "what wgmma has");
static_assert(A_BOX_ROWS % 8 == 0, "blocks bring whole patterns of the swizzle");
static_assert(A_BYTES % 1024 == 0, "b's boxes begin where the pattern does");
static_assert(!PIECES || CONSUMERS * OWN_CHUNKS * 1024 <= STAGES * STAGE_BYTES, "results take the place of tiles");

// Chunks of which a part adds up the sums.
__device__ __forceinline__ int chunks_of(int part) { return max(0, min(OWN_CHUNKS, CHUNKS - part * OWN_CHUNKS)); }

// The element in the low half of a word; 0 where there is none.
__device__ __forceinline__ unsigned one_of(const TW_T* from, bool is_there) {
    return is_there ? *reinterpret_cast<const unsigned short*>(from) : 0u;
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
matmul(const TW_T* __restrict__ a, const TW_T* __restrict__ b, const TW_T* __restrict__ bias,
       const TW_T* __restrict__ c, TW_T* __restrict__ y, int B, int M, int N, int K, long long batch_a, long long ld_a,
       long long step_a, long long batch_b, long long ld_b, long long step_b, long long batch_c, long long ld_c,
       long long step_c, int activation, float alpha, float beta, const __grid_constant__ TensorMap a_map,
       const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    __shared__ Arrivals sums_there;
    unsigned char* tiles = aligned_for_swizzle(shared);
    float4* sent = reinterpret_cast<float4*>(tiles + STAGES * STAGE_BYTES);  // [PARTS - 1][OWN_CHUNKS][thread]
    const int warpgroup = warpgroup_of_block();
    const int rank = CLUSTER > 1 ? cluster_rank() : 0;
    const int part = rank / SHARERS;
    const int sharer = rank % SHARERS;
    constexpr int COLUMNS = SHARERS * BN;  // of a cluster's tiles
    const int rows = (M + BM - 1) / BM;
    const int columns = (N + COLUMNS - 1) / COLUMNS;
    const int tile = blockIdx.x / CLUSTER;
    const int batch = tile / (rows * columns);
    const int b_batch = batch_b == 0 ? 0 : batch;  // one matrix may stand for all of a batch
    const Place place = place_of<GROUP>(tile - batch * rows * columns, rows, columns);
    const int first_row = place.row * BM;
    const int first_column = place.column * COLUMNS + sharer * BN;
    const int all = (K + BK - 1) / BK;
    const int first_k = all * part / PARTS;  // parts differ by one tile of k at the most; one may have none
    const int k_tiles = all * (part + 1) / PARTS - first_k;

    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        stages.template begin<SHARERS * CONSUMERS>();
        if (PARTS > 1) {
            init_arrivals(&sums_there);
            expect_bytes(&sums_there, (PARTS - 1) * chunks_of(part) * SHARE * 16);
        }
    }
    if (threadIdx.x == CONSUMERS * 128) {
        prefetch_map(&b_map);
        #pragma unroll
        for (int t = 0; t < AHEAD; ++t)
            #pragma unroll
            for (int i = 0; i < B_BOXES; ++i) {
                const int k = (first_k + t) * BK;
                const int column = first_column + i * WIDE;
                prefetch_box(&b_map, TW_B_ALONG_K ? k : column, TW_B_ALONG_K ? column : k, b_batch);
            }
    }
    __syncthreads();
    if (CLUSTER > 1) cluster_arrive_relaxed();  // its mbarriers are there
    wait_for_previous_grid();
    if (COME) let_next_grid_come();

    if (warpgroup == CONSUMERS) {
        if (SHARERS > 1) cluster_wait();  // so are the others'
        if (threadIdx.x == CONSUMERS * 128) {
            const int a_batch = batch_a == 0 ? 0 : batch;
            Turn<STAGES> turn;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                Arrivals* full = &stages.full[turn.stage];
                const int k = (first_k + t) * BK;
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);  // nobody reads a fresh stage: this passes at once
                expect_bytes(full, STAGE_BYTES);  // its own, and what the others send
                #pragma unroll
                for (int i = 0; i < A_BOXES; ++i) {
                    const int row = first_row + i * WIDE;
                    const int inner = TW_A_ALONG_M ? row : k;
                    const int outer = (TW_A_ALONG_M ? k : row) + sharer * A_BOX_ROWS;
                    unsigned char* there = to + i * BOX_BYTES + sharer * A_BOX_ROWS * 128;
                    if (SHARERS > 1)
                        copy_box_to_blocks(there, &a_map, inner, outer, a_batch, full,
                                           ((1 << SHARERS) - 1) << part * SHARERS);
                    else
                        copy_box(there, &a_map, inner, outer, a_batch, full);
                }
                #pragma unroll
                for (int i = 0; i < B_BOXES; ++i) {
                    const int column = first_column + i * WIDE;
                    const int inner = TW_B_ALONG_K ? k : column;
                    const int outer = TW_B_ALONG_K ? column : k;
                    unsigned char* there = to + A_BYTES + i * BOX_BYTES;
                    if (ONCE) copy_box_once(there, &b_map, inner, outer, b_batch, full);
                    else copy_box(there, &b_map, inner, outer, b_batch, full);
                }
                turn.next();
            }
        }
        __syncwarp();
        if (PARTS > 1 && SHARERS == 1) cluster_wait();
    } else {
        const int thread = threadIdx.x % 128;
        if (CLUSTER > 1) cluster_wait();
        const int own_column = first_column + warpgroup * 64 + sum_row(thread, 0);  // and the eighth behind it
        const bool has_one = own_column < N, has_both = own_column + 8 < N;
        unsigned biases[2] = {};  // of either column, twice: on their way before the sums are there
        if (TW_BIAS) {
            biases[0] = one_of(bias + own_column, has_one) * 0x10001u;
            biases[1] = one_of(bias + own_column + 8, has_both) * 0x10001u;
            asm volatile("" : "+r"(biases[0]), "+r"(biases[1]));  // here, not where they are added
        }
        float sums[BM / 2] = {};
        Turn<STAGES> turn;
        int before = 0;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages.full[turn.stage], turn.phase);
            const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(from, TW_A_ALONG_M ? BOX_BYTES : 0);
            const unsigned long long of_b = tile_descriptor(from + A_BYTES + warpgroup * BOX_BYTES, 0);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 16)  // 16 of k: as many elements of a row, or as many rows
                wgmma<TW_A_ALONG_M, !TW_B_ALONG_K>(sums, moved(of_b, TW_B_ALONG_K ? k * 2 : k * 128),
                                                   moved(of_a, TW_A_ALONG_M ? k * 128 : k * 2), true);
            wgmma_commit();
            if (t > 0) {
                wgmma_wait<1>();  // a group of products is all four warps': one thread a block tells that it was read
                if (SHARERS == 1 && thread == 0) arrive(&stages.empty[before]);
                if (SHARERS > 1 && thread < SHARERS) arrive_in_block(&stages.empty[before], part * SHARERS + thread);
            }
            before = turn.stage;
            turn.next();
        }
        wgmma_wait<0>();
        hold(sums);

        float own[OWN_CHUNKS * 4];
        #pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            #pragma unroll
            for (int i = 0; i < OWN_CHUNKS && p * OWN_CHUNKS + i < CHUNKS; ++i) {
                const float* four = &sums[(p * OWN_CHUNKS + i) * 4];
                const int slot = (part - (part > p)) * OWN_CHUNKS + i;
                if (p == part)
                    for (int j = 0; j < 4; ++j) own[i * 4 + j] = four[j];
                else
                    send4_to_block(&sent[slot * SHARE + threadIdx.x], &sums_there, p * SHARERS + sharer,
                                   make_float4(four[0], four[1], four[2], four[3]));
            }
        }
        if (PARTS > 1) wait_for(&sums_there, 0);
        if (PIECES) sync_warpgroups<CONSUMERS>(1);  // none reads tiles any more
        unsigned char* out = tiles + warpgroup * OWN_CHUNKS * 1024;  // rows of y, 64 columns each, swizzled
        const int own_row = first_row + part * OWN_CHUNKS * 8;
        const TW_T* to_add = c + batch * batch_c + own_column * step_c;
        y += (long long)batch * M * N;
        #pragma unroll
        for (int i = 0; i < OWN_CHUNKS; ++i) {
            if (PARTS > 1 && i >= chunks_of(part)) break;
            float four[4] = {own[i * 4], own[i * 4 + 1], own[i * 4 + 2], own[i * 4 + 3]};
            #pragma unroll
            for (int p = 0; p < PARTS - 1; ++p) {  // in the order of the parts: the same sums each time
                const float4 more = sent[(p * OWN_CHUNKS + i) * SHARE + threadIdx.x];
                four[0] += more.x;
                four[1] += more.y;
                four[2] += more.z;
                four[3] += more.w;
            }
            const int row = own_row + i * 8 + thread % 4 * 2;  // and the next one
            const bool has_row = row < M, has_next = row + 1 < M;
            unsigned added[2] = {};  // of either column, of two rows
            if (TW_C) {
                const TW_T *here = to_add + row * ld_c, *next = here + ld_c;
                added[0] = one_of(here, has_row && has_one) | one_of(next, has_next && has_one) << 16;
                added[1] = one_of(here + 8 * step_c, has_row && has_both) |
                           one_of(next + 8 * step_c, has_next && has_both) << 16;
            }
            float4 sum;
            finish_two(&sum.x, four, alpha, beta, added[0], biases[0]);
            finish_two(&sum.z, four + 2, alpha, beta, added[1], biases[1]);
            if constexpr (PIECES) {
                store_turned(out + i * 1024, thread, sum);
            } else {
                TW_T* to = y + (long long)row * N + own_column;
                if (has_row && has_one) from_float(to[0], sum.x);
                if (has_next && has_one) from_float(to[N], sum.y);
                if (has_row && has_both) from_float(to[8], sum.z);
                if (has_next && has_both) from_float(to[N + 8], sum.w);
            }
        }
        if constexpr (PIECES) {
            sync_warpgroups(2 + warpgroup);  // a row's columns come from four warps
            const int column = first_column + warpgroup * 64 + thread % 8 * 8;
            #pragma unroll
            for (int i = 0; i < (OWN_CHUNKS + 1) / 2; ++i) {
                const int line = i * 16 + thread / 8;
                const bool is_own = line < OWN_CHUNKS * 8 && part * OWN_CHUNKS * 8 + line < BM;
                if (is_own && own_row + line < M && column < N)
                    *reinterpret_cast<uint4*>(y + (long long)(own_row + line) * N + column) =
                        *reinterpret_cast<uint4*>(out + line * 128 + (thread % 8 ^ line % 8) * 16);
            }
        }
    }
    if (SHARERS > 1) {
        cluster_arrive_relaxed();  // nobody leaves while others arrive at its mbarriers or send to its stages
        cluster_wait();
    }
}
