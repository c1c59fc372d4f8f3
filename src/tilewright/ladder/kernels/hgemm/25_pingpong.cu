// Ping-pong: the two warpgroups that multiply have a tile each, not one half each of the same. While one writes its result,
// the other has the tensor cores for itself: they never wait for an epilogue. They take turns at whole K-loops, so that the
// ring's stages go to one tile after the other; a named barrier hands the turn over.
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 128
#define TW_STAGES 2
#define TW_BLOCKS 2
#endif
#ifndef TW_GROUP
#define TW_GROUP 8
#endif
constexpr int CLUSTER = 2;    // blocks
constexpr int CONSUMERS = 2;  // warpgroups, each with tiles of its own
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int BLOCKS = TW_BLOCKS;
constexpr int GROUP = TW_GROUP;  // rows of clusters' tiles, walked together
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = BN * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SLOTS = 2;              // boxes of a warpgroup's result that wait to be stored
constexpr int BOX_BYTES = 64 * 128;   // 64 rows of 64 elements
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * BOX_BYTES + 1024;
static_assert(BM % 64 == 0, "a warpgroup multiplies 64 rows at a time");
static_assert(BN % (64 * CLUSTER) == 0, "each block brings whole boxes");

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
      const __grid_constant__ TensorMap c_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const int rank = cluster_rank();
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
    cluster_arrive_relaxed();  // the other block's mbarriers are there, too: no more has to be known
    cluster_wait();
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            for (int tile = first_tile; tile < rows * columns; tile += step) {
                const Place place = place_of<GROUP>(tile, rows, columns);
                const int first_row = place.row * ROWS + rank * BM;
                const int first_column = place.column * BN + rank * (BN / CLUSTER);
                #pragma unroll 1
                for (int t = 0; t < k_tiles; ++t) {
                    unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                    Arrivals* full = &stages.full[turn.stage];
                    wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                    expect_bytes(full, STAGE_BYTES);  // its own, and what the other block sends
                    copy_box(to, &a_map, t * BK, first_row, full);
                    to += A_BYTES + rank * (B_BYTES / CLUSTER);
                    #pragma unroll
                    for (int n = 0; n < BN / CLUSTER; n += 64)
                        copy_box_to_blocks(to + n * 128, &b_map, first_column + n, t * BK, full, (1 << CLUSTER) - 1);
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
            float sums[BM / 64][BN / 2];
            int before = 0;
            if (tile != first_tile) sync_warpgroups<CONSUMERS>(1 + player);  // until the other hands the turn over
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                wait_for(&stages.full[turn.stage], turn.phase);
                const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
                const unsigned long long of_a = tile_descriptor(from, 0);
                const unsigned long long of_b = tile_descriptor(from + A_BYTES, BK * 128);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < BK; k += 16) {
                    #pragma unroll
                    for (int i = 0; i < BM / 64; ++i)
                        wgmma<true>(sums[i], moved(of_a, k * 2 + i * 64 * 128), moved(of_b, k * 128), t > 0 || k > 0);
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
            for (int box = 0; box < BM / 64 * (BN / 64); ++box) {
                const int i = box / (BN / 64);
                const int j = box % (BN / 64);
                unsigned char* slot = boxes + out.stage * BOX_BYTES;
                if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                sync_warpgroups(3 + player);
                #pragma unroll
                for (int s = 0; s < 32; s += 8) store_sums(slot, thread, s / 4, &sums[i][j * 32 + s]);
                publish_to_copies();
                sync_warpgroups(3 + player);
                if (thread == 0) {
                    store_box(&c_map, place.column * BN + j * 64, first_row + i * 64, slot);
                    commit_stores();
                }
                out.next();
            }
        }
        if (thread == 0) wait_until_read<0>();  // when the stores have arrived, the grid's end tells
    }
    // Nobody leaves while the other may still arrive at its mbarriers, or send to its stages.
    cluster_arrive_relaxed();
    cluster_wait();
}
