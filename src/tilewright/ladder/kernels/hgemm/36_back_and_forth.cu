// Each tile's k is walked the other way from the last one's. All that run at once are a wave in a band of rows of tiles, and
// the next wave's tiles lie in the same band: they begin with the k of a's rows that came last, and is still in L2. The
// sums' order changes with it, from tile to tile, and is the same in every run.
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BN 128
#define TW_STAGES 2
#define TW_BLOCKS 2
#define TW_GROUP 8
#endif
constexpr int CLUSTER = 2;    // blocks
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int BM = CONSUMERS * 64;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int BLOCKS = TW_BLOCKS;
constexpr int GROUP = TW_GROUP;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int BOXES = (BN + 63) / 64;  // of b's tile
constexpr int B_BYTES = BOXES * 64 * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SLOTS = 2;              // boxes of a warpgroup's result that wait to be stored
constexpr int BOX_BYTES = 64 * 128;   // 64 rows of 64 elements
constexpr int LEFT = BN % 64;         // columns of the tile's last box
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * BOX_BYTES + 1024;
// A block brings so many boxes of b's tile for all: whole ones where they can be shared out, else its rows of each.
constexpr bool HAS_WHOLE_BOXES = BN % (64 * CLUSTER) == 0;
constexpr int B_BOXES = HAS_WHOLE_BOXES ? BOXES / CLUSTER : BOXES;
constexpr int B_BOX_ROWS = HAS_WHOLE_BOXES ? BK : BK / CLUSTER;
static_assert(LEFT == 0 || LEFT == 32, "what is left of a tile's width has a map of its own");

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
      const __grid_constant__ TensorMap c_map, const __grid_constant__ TensorMap c_left_map) {
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
        stages.template begin<CLUSTER * CONSUMERS>();
    }
    cluster_arrive_relaxed();  // the other block's mbarriers are there, too: no more has to be known
    cluster_wait();
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            bool is_backward = false;
            for (int tile = first_tile; tile < rows * columns; tile += step) {
                const Place place = place_of<GROUP>(tile, rows, columns);
                const int first_row = place.row * ROWS + rank * BM;
                const int first_column = place.column * BN + HAS_WHOLE_BOXES * rank * B_BOXES * 64;
                const int first_k = !HAS_WHOLE_BOXES * rank * B_BOX_ROWS;
                #pragma unroll 1
                for (int t = 0; t < k_tiles; ++t) {
                    const int k = (is_backward ? k_tiles - 1 - t : t) * BK;
                    unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                    Arrivals* full = &stages.full[turn.stage];
                    wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                    expect_bytes(full, STAGE_BYTES);  // its own, and what the other block sends
                    copy_box(to, &a_map, k, first_row, full);
                    to += A_BYTES + rank * (HAS_WHOLE_BOXES ? B_BYTES / CLUSTER : B_BOX_ROWS * 128);
                    #pragma unroll
                    for (int i = 0; i < B_BOXES; ++i)
                        copy_box_to_blocks(to + i * BK * 128, &b_map, first_column + i * 64, k + first_k, full,
                                           (1 << CLUSTER) - 1);
                    turn.next();
                }
                is_backward = !is_backward;
            }
        }
        __syncwarp();  // the whole warp comes to the cluster's barrier
    } else {
        more_registers<232>();
        const int part = warpgroup - 1;  // of the tile's rows
        const int thread = threadIdx.x % 128;
        unsigned char* boxes = tiles + STAGES * STAGE_BYTES + part * SLOTS * BOX_BYTES;
        Turn<STAGES> turn;
        Turn<SLOTS> out;
        for (int tile = first_tile; tile < rows * columns; tile += step) {
            float sums[BN / 2];
            int before = 0;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                wait_for(&stages.full[turn.stage], turn.phase);
                const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
                const unsigned long long of_a = tile_descriptor(from + part * 64 * 128, 0);
                const unsigned long long of_b = tile_descriptor(from + A_BYTES, BK * 128);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < BK; k += 16)
                    wgmma<true>(sums, moved(of_a, k * 2), moved(of_b, k * 128), t > 0 || k > 0);
                wgmma_commit();
                if (t > 0) {
                    wgmma_wait<1>();  // a group of products is all four warps': one thread a block tells of it
                    if (thread < CLUSTER) arrive_in_block(&stages.empty[before], thread);
                }
                before = turn.stage;
                turn.next();
            }
            wgmma_wait<0>();
            if (thread < CLUSTER) arrive_in_block(&stages.empty[before], thread);

            const Place place = place_of<GROUP>(tile, rows, columns);
            const int first_row = place.row * ROWS + rank * BM + part * 64;
            #pragma unroll
            for (int box = 0; box < BOXES; ++box) {
                const bool is_left = box == BN / 64;
                unsigned char* slot = boxes + out.stage * BOX_BYTES;
                if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                sync_warpgroups(1 + part);
                #pragma unroll
                for (int i = 0; i < (is_left ? LEFT / 2 : 32); i += 8) {
                    if (is_left) store_sums<64>(slot, thread, i / 4, &sums[box * 32 + i]);
                    else store_sums(slot, thread, i / 4, &sums[box * 32 + i]);
                }
                publish_to_copies();
                sync_warpgroups(1 + part);
                if (thread == 0) {
                    store_box(is_left ? &c_left_map : &c_map, place.column * BN + box * 64, first_row, slot);
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
