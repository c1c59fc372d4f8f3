// Tiles of any shape that registers hold, so that some shape fits: two or three warpgroups multiply, 64 rows each or 128,
// and as many columns as leave no multiprocessor idle in the last round. The blocks of a cluster share b's tile, or a's.
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_CONSUMERS 3
#define TW_EACH 1
#define TW_BN 144
#define TW_SHARE_A 1
#define TW_STAGES 2
#define TW_SLOTS 1
#define TW_BLOCKS 2
#define TW_GROUP 8
#endif
constexpr int CLUSTER = 2;               // blocks
constexpr int CONSUMERS = TW_CONSUMERS;  // warpgroups
constexpr int EACH = TW_EACH;            // times 64 rows of a warpgroup
constexpr bool SHARES_A = TW_SHARE_A;    // neighbours in a row of tiles share a, those in a column b
constexpr int BM = CONSUMERS * EACH * 64;
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
constexpr int SLOTS = TW_SLOTS;      // boxes of a warpgroup's result that wait to be stored
constexpr int BOX_BYTES = 64 * 128;  // 64 rows of 64 elements
constexpr int LEFT = BN % 64;        // columns of the tile's last box, in rows without a swizzle
constexpr int LEFT_BOX = LEFT ? LEFT : 64;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * BOX_BYTES + 1024;
// What a block brings of a's rows, and of b's tile: all, or a part for both blocks (whole boxes where they can be shared
// out, else rows of each).
constexpr int A_ROWS = SHARES_A ? BM / CLUSTER : BM;
constexpr bool HAS_WHOLE_BOXES = SHARES_A || BN % (64 * CLUSTER) == 0;
constexpr int B_BOXES = !SHARES_A && HAS_WHOLE_BOXES ? BOXES / CLUSTER : BOXES;
constexpr int B_BOX_ROWS = HAS_WHOLE_BOXES ? BK : BK / CLUSTER;
constexpr int ROWS = SHARES_A ? BM : CLUSTER * BM, COLUMNS = SHARES_A ? CLUSTER * BN : BN;  // of a cluster's tile
// A launch of four warpgroups has 128 registers a thread until they move, and the compiler wants room for an instruction's
// sums in those: wide tiles take two.
constexpr int FIRST = CONSUMERS == 3 && BN > 192 ? 128 : BN, REST = BN - FIRST;  // columns
static_assert(EACH * BOXES % SLOTS == 0, "the next tile begins with the slot that has waited longest");
static_assert(REST % 16 == 0, "such a width needs an instruction for its second part");
static_assert(BN % 8 == 0 && (CONSUMERS == 2 || CONSUMERS == 3), "what wgmma has, and registers");

template <int FROM, int COUNT, int ALL>
__device__ __forceinline__ float (&part_of(float (&sums)[ALL]))[COUNT] {
    return reinterpret_cast<float(&)[COUNT]>(sums[FROM]);
}

// Sums of a warpgroup's 64 rows and the tile's last columns.
__device__ __forceinline__ void store_left(unsigned char* slot, int thread, const float* sums) {
    #pragma unroll
    for (int i = 0; i < LEFT / 2; i += 2) {
        unsigned char* to = slot + (sum_row(thread, i) * LEFT + sum_column(thread, i)) * 2;
        *reinterpret_cast<unsigned*>(to) = pack_word(&sums[i], TW_T());
    }
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
      const __grid_constant__ TensorMap c_map, const __grid_constant__ TensorMap c_left_map) {
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
                const int first_row = place.row * ROWS + rank * (SHARES_A ? A_ROWS : BM);
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
                            copy_box(to + A_BYTES + i * BK * 128, &b_map, first_column + i * 64, k, full);
                    } else {
                        copy_box(to, &a_map, k, first_row, full);
                        to += A_BYTES + rank * (HAS_WHOLE_BOXES ? B_BYTES / CLUSTER : B_BOX_ROWS * 128);
                        #pragma unroll
                        for (int i = 0; i < B_BOXES; ++i)
                            copy_box_to_blocks(to + i * BK * 128, &b_map, first_column + i * 64, k + first_k, full,
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
        const int part = warpgroup - 1;  // of the tile's rows
        const int thread = threadIdx.x % 128;
        unsigned char* boxes = tiles + STAGES * STAGE_BYTES + part * SLOTS * BOX_BYTES;
        Turn<STAGES> turn;
        for (int tile = first_tile; tile < rows * columns; tile += step) {
            float sums[EACH][BN / 2];
            int before = 0;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                wait_for(&stages.full[turn.stage], turn.phase);
                const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
                const unsigned long long of_a = tile_descriptor(from + part * EACH * 64 * 128, 0);
                const unsigned long long of_b = tile_descriptor(from + A_BYTES, BK * 128);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < BK; k += 16)
                    #pragma unroll
                    for (int i = 0; i < EACH; ++i) {
                        const unsigned long long a_here = moved(of_a, k * 2 + i * 64 * 128), b_here = moved(of_b, k * 128);
                        wgmma<true>(part_of<0, FIRST / 2>(sums[i]), a_here, b_here, t > 0 || k > 0);
                        if constexpr (REST > 0)
                            wgmma<true>(part_of<REST ? FIRST / 2 : 0, REST ? REST / 2 : 8>(sums[i]), a_here, moved(b_here, FIRST * BK * 2),
                                        t > 0 || k > 0);
                    }
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
            const int rank_again = blockIdx.x % CLUSTER;  // no register is kept for it beside the sums
            const int first_row = place.row * ROWS + !SHARES_A * rank_again * BM + part * EACH * 64;
            const int first_column = place.column * COLUMNS + SHARES_A * rank_again * BN;
            #pragma unroll
            for (int box = 0; box < EACH * BOXES; ++box) {
                const int i = box / BOXES, j = box % BOXES;
                const bool is_left = j == BN / 64;
                unsigned char* slot = boxes + box % SLOTS * BOX_BYTES;
                if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                sync_warpgroups(1 + part);
                if (is_left) {
                    store_left(slot, thread, &sums[i][j * 32]);
                } else {
                    #pragma unroll
                    for (int s = 0; s < 32; s += 8) store_sums(slot, thread, s / 4, &sums[i][j * 32 + s]);
                }
                publish_to_copies();
                sync_warpgroups(1 + part);
                if (thread == 0) {
                    store_box(is_left ? &c_left_map : &c_map, first_column + j * 64, first_row + i * 64, slot);
                    commit_stores();
                }
            }
        }
        if (thread == 0) wait_until_read<0>();  // when the stores have arrived, the grid's end tells
    }
    // Nobody leaves while the other may still arrive at its mbarriers, or send to its stages.
    cluster_arrive_relaxed();
    cluster_wait();
}
