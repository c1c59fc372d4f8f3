// Each multiplying warpgroup has tiles of its own, and they take turns: one multiplies while the other writes its result,
// which is four bytes an element here, and takes a good part of the time that the products do. Each has 128 x 128 sums.
#include "cluster.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma_s8.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 64
#define TW_STAGES 2
#define TW_BLOCKS 2
#define TW_GROUP 8
#define TW_SLOTS 2
#define TW_CLUSTER 2
#endif
constexpr int CLUSTER = TW_CLUSTER;  // blocks
constexpr int CONSUMERS = 2;         // warpgroups
constexpr int BM = TW_BM;            // of one warpgroup's tile
constexpr int BN = TW_BN;
constexpr int BK = 128;  // bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int BLOCKS = TW_BLOCKS;
constexpr int GROUP = TW_GROUP;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK;
constexpr int B_BYTES = BN * BK;
constexpr int B_ROWS = BN / CLUSTER;  // that a block asks for
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SLOTS = TW_SLOTS;      // boxes of a warpgroup's result that wait to be stored
constexpr int BOX_BYTES = 64 * 128;  // 64 rows of 32 sums
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * BOX_BYTES + 1024;
static_assert(BM % 64 == 0, "a warpgroup multiplies 64 rows at a time");
static_assert(BN % 32 == 0 && B_ROWS % 8 == 0, "whole boxes of the result, and whole patterns of the swizzle");

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
igemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, int* __restrict__ c, int M, int N, int K, long long ld_a,
      long long step_a, long long ld_b, long long step_b, const __grid_constant__ TensorMap a_map,
      const __grid_constant__ TensorMap b_map,
      const __grid_constant__ TensorMap c_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const int rank = CLUSTER > 1 ? cluster_rank() : 0;
    constexpr int ROWS = CLUSTER * BM;  // of a cluster's tile
    const int rows = (M + ROWS - 1) / ROWS;
    const int columns = (N + BN - 1) / BN;
    const int k_tiles = (K + BK - 1) / BK;
    const int first_tile = blockIdx.x / CLUSTER;
    const int step = gridDim.x / CLUSTER;

    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        prefetch_map(&b_map);
        stages.template begin<CLUSTER>();
    }
    cluster_arrive();  // the other block's mbarriers are there, too
    cluster_wait();

    if (warpgroup == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            for (int tile = first_tile; tile < rows * columns; tile += step) {
                const Place place = place_of<GROUP>(tile, rows, columns);
                const int first_row = place.row * ROWS + rank * BM;
                const int first_column = place.column * BN + rank * B_ROWS;
                #pragma unroll 1
                for (int t = 0; t < k_tiles; ++t) {
                    unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                    Arrivals* full = &stages.full[turn.stage];
                    wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                    expect_bytes(full, STAGE_BYTES);  // its own, and what the other block sends
                    copy_box(to, &a_map, t * BK, first_row, full);
                    copy_box_to_blocks(to + A_BYTES + rank * B_ROWS * BK, &b_map, t * BK, first_column, full,
                                       (1 << CLUSTER) - 1);
                    turn.next();
                }
            }
        }
        __syncwarp();  // the whole warp comes to the cluster's barrier
    } else {
        more_registers<232>();
        const int player = warpgroup - 1;
        const int thread = threadIdx.x % 128;
        unsigned char* boxes = tiles + STAGES * STAGE_BYTES + player * SLOTS * BOX_BYTES;
        Turn<STAGES> turn;
        Turn<SLOTS> out;
        if (player == 1) turn.skip(k_tiles);
        for (int tile = first_tile + player * step; tile < rows * columns; tile += CONSUMERS * step) {
            int sums[BM / 64][BN / 2];
            int before = 0;
            if (tile != first_tile) sync_warpgroups<CONSUMERS>(1 + player);  // until the other hands the turn over
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                wait_for(&stages.full[turn.stage], turn.phase);
                const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
                const unsigned long long of_a = tile_descriptor(from, 0);
                const unsigned long long of_b = tile_descriptor(from + A_BYTES, 0);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < BK; k += 32) {
                    #pragma unroll
                    for (int i = 0; i < BM / 64; ++i)
                        wgmma_s8(sums[i], moved(of_a, k + i * 64 * BK), moved(of_b, k), t > 0 || k > 0);
                }
                wgmma_commit();
                if (t > 0) {
                    wgmma_wait<1>();  // a group of products is all four warps': one thread a block tells of it
                    if (thread < CLUSTER) arrive_in_block(&stages.empty[before], thread);
                }
                before = turn.stage;
                turn.next();
            }
            if (tile + step < rows * columns) arrive_at_barrier<CONSUMERS>(2 - player);  // its products queue behind these
            wgmma_wait<0>();
            if (thread < CLUSTER) arrive_in_block(&stages.empty[before], thread);
            turn.skip(k_tiles);  // those are the other's

            const Place place = place_of<GROUP>(tile, rows, columns);
            const int first_row = place.row * ROWS + rank * BM;
            #pragma unroll
            for (int box = 0; box < BM / 64 * (BN / 32); ++box) {
                const int i = box / (BN / 32);
                const int j = box % (BN / 32);
                unsigned char* slot = boxes + out.stage * BOX_BYTES;
                if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                sync_warpgroups(3 + player);
                store_ints(slot, thread, &sums[i][j * 16]);
                publish_to_copies();
                sync_warpgroups(3 + player);
                if (thread == 0) {
                    store_box(&c_map, place.column * BN + j * 32, first_row + i * 64, slot);
                    commit_stores();
                }
                out.next();
            }
        }
        if (thread == 0) wait_for_stores();
    }
    cluster_arrive();  // nobody leaves while the other may still arrive at its mbarriers, or send to its stages
    cluster_wait();
}
