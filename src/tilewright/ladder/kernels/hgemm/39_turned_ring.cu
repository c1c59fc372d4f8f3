// The product turned over, in a ring that goes on: tiles are as high as it takes to share c out evenly over two rounds or
// more, where tiles that come 64 rows at a time leave the last round half empty. Two or three warpgroups have 64 columns
// each or 128; the blocks of a cluster share a's tile, or b's. Sums leave by stmatrix, which turns them back, 32 rows at a
// time, while the next tiles come. The rest is 37_fitted, and what the product is, 38_turned.
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_CONSUMERS 2
#define TW_EACH 1
#define TW_BM 80
#define TW_SHARE_A 1
#define TW_STAGES 2
#define TW_BLOCKS 2
#define TW_GROUP 8
#endif
constexpr int CLUSTER = 2;               // blocks
constexpr int CONSUMERS = TW_CONSUMERS;  // warpgroups
constexpr int EACH = TW_EACH;            // boxes of 64 columns of a warpgroup
constexpr bool SHARES_A = TW_SHARE_A;    // neighbours in a row of tiles share a, those in a column b
constexpr int BM = TW_BM;
constexpr int BOXES = CONSUMERS * EACH;  // of b's tile
constexpr int BN = BOXES * 64;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int BLOCKS = TW_BLOCKS;
constexpr int GROUP = TW_GROUP;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int BOX_BYTES = 64 * BK * 2;
constexpr int B_BYTES = BOXES * BOX_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SLOTS = 2;       // pieces of a warpgroup's result that wait to be stored
constexpr int SLOT_ROWS = 32;  // of 64 columns
constexpr int STORE_ROWS = 16;
constexpr int SLOT_BYTES = SLOT_ROWS * 128;
constexpr int PIECES = (BM + SLOT_ROWS - 1) / SLOT_ROWS;  // of a tile's 64 columns; the last one may have half the rows
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * SLOT_BYTES + 1024;
// What a block brings of a's tile, and of b's: all, or a part for both blocks (whole boxes where they can be shared out,
// else rows of each).
constexpr int A_ROWS = SHARES_A ? BM / CLUSTER : BM;
constexpr bool HAS_WHOLE_BOXES = SHARES_A || BOXES % CLUSTER == 0;
constexpr int B_BOXES = !SHARES_A && HAS_WHOLE_BOXES ? BOXES / CLUSTER : BOXES;
constexpr int B_BOX_ROWS = HAS_WHOLE_BOXES ? BK : BK / CLUSTER;
constexpr int ROWS = SHARES_A ? BM : CLUSTER * BM, COLUMNS = SHARES_A ? CLUSTER * BN : BN;  // of a cluster's tile
static_assert(BM % 16 == 0 && BM <= 256, "what wgmma has, and whole patterns of the swizzle for either block");
static_assert(CONSUMERS == 2 || CONSUMERS == 3, "registers");

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
      const __grid_constant__ TensorMap c_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const int rank = cluster_rank();
    const int rows = (M + ROWS - 1) / ROWS;
    const int columns = (N + COLUMNS - 1) / COLUMNS;
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
        fewer_registers<CONSUMERS == 2 ? 40 : 32>();
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            bool is_backward = false;
            for (int tile = first_tile; tile < rows * columns; tile += step) {
                const Place place = place_of<GROUP>(tile, rows, columns);
                const int first_row = place.row * ROWS + rank * A_ROWS;
                const int first_column = place.column * COLUMNS + rank * (SHARES_A ? BN : HAS_WHOLE_BOXES * B_BOXES * 64);
                const int first_k = !HAS_WHOLE_BOXES * rank * B_BOX_ROWS;
                #pragma unroll 1
                for (int t = 0; t < k_tiles; ++t) {
                    const int k = (is_backward ? k_tiles - 1 - t : t) * BK;
                    unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                    Arrivals* full = &stages.full[turn.stage];
                    wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                    expect_bytes(full, STAGE_BYTES);  // its own, and what the other block sends
                    if constexpr (SHARES_A) {
                        copy_box_to_blocks(to + rank * A_ROWS * 128, &a_map, k, first_row, full, (1 << CLUSTER) - 1);
                        #pragma unroll
                        for (int i = 0; i < B_BOXES; ++i)
                            copy_box(to + A_BYTES + i * BOX_BYTES, &b_map, first_column + i * 64, k, full);
                    } else {
                        copy_box(to, &a_map, k, first_row, full);
                        to += A_BYTES + rank * (HAS_WHOLE_BOXES ? B_BYTES / CLUSTER : B_BOX_ROWS * 128);
                        #pragma unroll
                        for (int i = 0; i < B_BOXES; ++i)
                            copy_box_to_blocks(to + i * BOX_BYTES, &b_map, first_column + i * 64, k + first_k, full,
                                               (1 << CLUSTER) - 1);
                    }
                    turn.next();
                }
                is_backward = !is_backward;
            }
        }
        __syncwarp();  // the whole warp comes to the cluster's barrier
    } else {
        more_registers<CONSUMERS == 2 ? 232 : 160>();
        const int part = warpgroup - 1;  // of the tile's columns
        const int thread = threadIdx.x % 128;
        unsigned char* slots = tiles + STAGES * STAGE_BYTES + part * SLOTS * SLOT_BYTES;
        Turn<STAGES> turn;
        Turn<SLOTS> out;
        for (int tile = first_tile; tile < rows * columns; tile += step) {
            float sums[EACH][BM / 2];
            int before = 0;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                wait_for(&stages.full[turn.stage], turn.phase);
                const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
                const unsigned long long of_a = tile_descriptor(from, 0);
                const unsigned long long of_b = tile_descriptor(from + A_BYTES + part * EACH * BOX_BYTES, 0);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < BK; k += 16)
                    #pragma unroll
                    for (int i = 0; i < EACH; ++i)
                        wgmma<false, true>(sums[i], moved(of_b, k * 128 + i * BOX_BYTES), moved(of_a, k * 2),
                                           t > 0 || k > 0);
                wgmma_commit();
                if (t > 0) {
                    wgmma_wait<1>();  // a group of products is all four warps': one thread a block tells of it
                    if (thread < CLUSTER) arrive_in_block(&stages.empty[before], thread);
                }
                before = turn.stage;
                turn.next();
            }
            wgmma_wait<0>();
            #pragma unroll
            for (int i = 0; i < EACH; ++i) hold(sums[i]);
            if (thread < CLUSTER) arrive_in_block(&stages.empty[before], thread);

            const Place place = place_of<GROUP>(tile, rows, columns);
            const int rank_again = blockIdx.x % CLUSTER;  // no register is kept for it beside the sums
            const int first_row = place.row * ROWS + !SHARES_A * rank_again * BM;
            const int first_column = place.column * COLUMNS + SHARES_A * rank_again * BN + part * EACH * 64;
            #pragma unroll
            for (int piece = 0; piece < EACH * PIECES; ++piece) {
                const int i = piece / PIECES, j = piece % PIECES * SLOT_ROWS;
                const int height = BM - j < SLOT_ROWS ? BM - j : SLOT_ROWS;
                unsigned char* slot = slots + out.stage * SLOT_BYTES;
                if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                sync_warpgroups(1 + part);
                #pragma unroll
                for (int row = 0; row < height; row += 8) {
                    const float* four = &sums[i][(j + row) / 2];
                    store_turned(slot + row * 128, thread, make_float4(four[0], four[1], four[2], four[3]));
                }
                publish_to_copies();
                sync_warpgroups(1 + part);  // a row's columns come from four warps
                if (thread == 0) {
                    #pragma unroll
                    for (int row = 0; row < height; row += STORE_ROWS)
                        store_box(&c_map, first_column + i * 64, first_row + j + row, slot + row * 128);
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
