// A thin product is read from memory, b above all, and that takes every multiprocessor, with as much to read for each. So
// tiles are as wide as it takes to have one for each, whatever multiple of 16 that is, and where even that leaves too few,
// the blocks of a cluster share a tile's k: each sends its sums to those that add them up, and waits for what it adds up
// only. Such a kernel is short: the grid comes while the one before it ends, and L2 fetches b's first tiles meanwhile.
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma_s8.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 48
#define TW_STAGES 2
#define TW_PARTS 2
#define TW_TOGETHER 1
#define TW_AHEAD 1
#endif
constexpr int PARTS = TW_PARTS;        // of K: the blocks of a cluster
constexpr int TOGETHER = TW_TOGETHER;  // neighbours that begin at the same place of k; 0: all begin at the beginning
constexpr int AHEAD = TW_AHEAD;        // tiles of k whose part of b L2 fetches while the grid before still runs
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 128;  // bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 8;
constexpr int CONSUMERS = BM / 64;  // warpgroups; the copying warp comes behind them
constexpr int THREADS = CONSUMERS * 128 + 32;
constexpr int A_BYTES = BM * BK;
constexpr int B_BYTES = BN * BK;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CHUNKS = BN / 8;  // columns of sums of a warpgroup's instruction: four sums of each thread
constexpr int OWN_CHUNKS = CHUNKS / PARTS;  // that a part adds up
constexpr int SENT_BYTES = (PARTS - 1) * OWN_CHUNKS * CONSUMERS * 128 * 16;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + SENT_BYTES + 1024;
static_assert(CHUNKS % PARTS == 0 && BN % 16 == 0, "each part adds up as many columns");

extern "C" __cluster_dims__(PARTS, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
igemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, int* __restrict__ c, int M, int N, int K, long long ld_a,
      long long step_a, long long ld_b, long long step_b, const __grid_constant__ TensorMap a_map,
      const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    __shared__ Arrivals sums_there;
    unsigned char* tiles = aligned_for_swizzle(shared);
    float4* sent = reinterpret_cast<float4*>(tiles + STAGES * STAGE_BYTES);  // [PARTS - 1][OWN_CHUNKS][thread]: bits
    const int warpgroup = warpgroup_of_block();
    const int part = PARTS > 1 ? cluster_rank() : 0;
    const int columns = (N + BN - 1) / BN;
    const Place place = place_of<GROUP>(blockIdx.x / PARTS, (M + BM - 1) / BM, columns);
    const int first_row = place.row * BM;
    const int first_column = place.column * BN;
    const int all = (K + BK - 1) / BK;
    const int first_k = all * part / PARTS;  // parts differ by one tile of k at the most; one may have none
    const int k_tiles = all * (part + 1) / PARTS - first_k;
    int k_tile = 0;  // where the block begins, of its part: not all want the same rows of a at the same time
    if (TOGETHER > 0) k_tile = place.column / TOGETHER * k_tiles / ((columns + TOGETHER - 1) / TOGETHER);

    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        stages.template begin<CONSUMERS>();
        if (PARTS > 1) {
            init_arrivals(&sums_there);
            expect_bytes(&sums_there, SENT_BYTES);
        }
    }
    if (threadIdx.x == CONSUMERS * 128) {
        prefetch_map(&b_map);
        #pragma unroll
        for (int t = 0; t < AHEAD; ++t) prefetch_box(&b_map, (first_k + k_tile + t) * BK, first_column);
    }
    __syncthreads();
    if (PARTS > 1) cluster_arrive();  // its mbarriers are there
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == CONSUMERS) {
        if (threadIdx.x == CONSUMERS * 128) {
            Turn<STAGES> turn;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                unsigned char* tile = tiles + turn.stage * STAGE_BYTES;
                Arrivals* full = &stages.full[turn.stage];
                const int k = (first_k + k_tile) * BK;
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);  // nobody reads a fresh stage: this passes at once
                expect_bytes(full, STAGE_BYTES);
                copy_box(tile, &a_map, k, first_row, full);
                copy_box(tile + A_BYTES, &b_map, k, first_column, full);
                turn.next();
                if (++k_tile == k_tiles) k_tile = 0;
            }
        }
        __syncwarp();
        if (PARTS > 1) cluster_wait();
    } else {
        const int band = warpgroup;  // of the tile's rows
        const int thread = threadIdx.x % 128;
        if (PARTS > 1) cluster_wait();
        int sums[BN / 2] = {};
        Turn<STAGES> turn;
        int before = 0;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages.full[turn.stage], turn.phase);
            const unsigned tile = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(tile + band * 64 * BK, 0);
            const unsigned long long of_b = tile_descriptor(tile + A_BYTES, 0);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 32) wgmma_s8(sums, moved(of_a, k), moved(of_b, k), true);
            wgmma_commit();
            if (t > 0) {
                wgmma_wait<1>();  // a group of products is all four warps': one thread tells that their reads are over
                if (thread == 0) arrive(&stages.empty[before]);
            }
            before = turn.stage;
            turn.next();
        }
        wgmma_wait<0>();
        hold(sums);

        int own[OWN_CHUNKS * 4];
        #pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            #pragma unroll
            for (int i = 0; i < OWN_CHUNKS; ++i) {
                const int* four = &sums[(p * OWN_CHUNKS + i) * 4];
                const int slot = (part - (part > p)) * OWN_CHUNKS + i;
                if (p == part)
                    for (int j = 0; j < 4; ++j) own[i * 4 + j] = four[j];
                else
                    send4_to_block(&sent[slot * CONSUMERS * 128 + threadIdx.x], &sums_there, p,
                                   make_float4(__int_as_float(four[0]), __int_as_float(four[1]),
                                               __int_as_float(four[2]), __int_as_float(four[3])));
            }
        }
        if (PARTS > 1) wait_for(&sums_there, 0);

        #pragma unroll
        for (int i = 0; i < OWN_CHUNKS; ++i) {
            uint4 sum = make_uint4(own[i * 4], own[i * 4 + 1], own[i * 4 + 2], own[i * 4 + 3]);
            #pragma unroll
            for (int p = 0; p < PARTS - 1; ++p) {  // in any order: sums of integers are exact
                const float4 more = sent[(p * OWN_CHUNKS + i) * CONSUMERS * 128 + threadIdx.x];
                sum.x += __float_as_uint(more.x);
                sum.y += __float_as_uint(more.y);
                sum.z += __float_as_uint(more.z);
                sum.w += __float_as_uint(more.w);
            }
            const int row = first_row + band * 64 + sum_row(threadIdx.x, 0);
            const int column = first_column + (part * OWN_CHUNKS + i) * 8 + sum_column(threadIdx.x, 0);
            store_inside(c, row, column, M, N, sum.x, sum.y);
            store_inside(c, row + 8, column, M, N, sum.z, sum.w);
        }
    }
}
