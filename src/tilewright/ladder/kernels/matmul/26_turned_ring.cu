// The product turned over, in a ring that goes on: tiles are as high as it takes to share y out evenly over two rounds or
// more, where tiles that come 64 rows at a time leave the last round half empty. Two or three warpgroups have 64 columns
// each or 128; the blocks of a cluster share a's tile, or b's, in whichever way those lie. Sums are finished and leave by
// stmatrix, which turns them back, 32 rows at a time, while the next tiles come. The rest is 20_persistent, and what a
// thread has of the product, 25_turned.
#include "batches.cuh"
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
#ifndef TW_A_ALONG_M
#define TW_A_ALONG_M 0  // neighbours in memory are neighbours along m, not along k
#define TW_B_ALONG_K 0  // along k, not along n
#define TW_BIAS 0
#define TW_C 0
#define TW_ACTIVATION 0
#endif
#include "epilogue.cuh"

constexpr int CLUSTER = 2;               // blocks
constexpr int CONSUMERS = TW_CONSUMERS;  // warpgroups
constexpr int EACH = TW_EACH;            // boxes of 64 columns of a warpgroup
constexpr bool SHARES_A = TW_SHARE_A;    // neighbours in a row of tiles share a, those in a column b
constexpr int BM = TW_BM;
constexpr int BOXES = CONSUMERS * EACH;  // of b's tile
constexpr int BN = BOXES * 64;
constexpr int BK = 64;
constexpr int WIDE = 64;  // elements of a box's rows, 128 bytes: the width of the swizzle
constexpr int STAGES = TW_STAGES;
constexpr int BLOCKS = TW_BLOCKS;
constexpr int GROUP = TW_GROUP;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int BOX_BYTES = 64 * 128;
constexpr int A_WIDTHS = (BM + WIDE - 1) / WIDE;  // boxes of an a whose rows are k
constexpr int A_BYTES = TW_A_ALONG_M ? A_WIDTHS * BOX_BYTES : BM * 128;
constexpr int B_BYTES = BOXES * BOX_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SLOTS = 2;       // pieces of a warpgroup's result that wait to be stored
constexpr int SLOT_ROWS = 32;  // of 64 columns; the last piece of a tile may have half of them
constexpr int STORE_ROWS = 16;
constexpr int SLOT_BYTES = SLOT_ROWS * 128;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * SLOT_BYTES + 1024;
// What a block brings of a's tile, and of b's: all of it, or a part for both blocks. That is half the rows of a box whose
// own rows are k's neighbours; else whole boxes where they can be shared out, or half of the k of each.
constexpr int A_PARTS = SHARES_A ? CLUSTER : 1, B_PARTS = SHARES_A ? 1 : CLUSTER;
constexpr bool A_WHOLE = TW_A_ALONG_M && BM % (WIDE * A_PARTS) == 0;
constexpr int A_BOXES = !TW_A_ALONG_M ? 1 : A_WHOLE ? A_WIDTHS / A_PARTS : A_WIDTHS;
constexpr int A_BOX_ROWS = !TW_A_ALONG_M ? BM / A_PARTS : A_WHOLE ? BK : BK / A_PARTS;
constexpr int A_SHARE = A_WHOLE ? A_BYTES / A_PARTS : A_BOX_ROWS * 128;  // bytes from a block's part to the other's
constexpr bool B_WHOLE = !TW_B_ALONG_K && BOXES % B_PARTS == 0;
constexpr int B_BOXES = TW_B_ALONG_K ? 1 : B_WHOLE ? BOXES / B_PARTS : BOXES;
constexpr int B_BOX_ROWS = TW_B_ALONG_K ? BN / B_PARTS : B_WHOLE ? BK : BK / B_PARTS;
constexpr int B_SHARE = B_WHOLE ? B_BYTES / B_PARTS : B_BOX_ROWS * 128;
constexpr int ROWS = SHARES_A ? BM : CLUSTER * BM, COLUMNS = SHARES_A ? CLUSTER * BN : BN;  // of a cluster's tile
static_assert(BM % 16 == 0 && BM <= 256, "what wgmma has, and whole patterns of the swizzle for either block");
static_assert(A_BYTES % 1024 == 0, "b's boxes begin where the pattern does");
static_assert(CONSUMERS == 2 || CONSUMERS == 3, "registers");

// The element in the low half of a word; 0 where there is none. The load stays where it is written, see epilogue.cuh.
__device__ __forceinline__ unsigned one_of(const TW_T* from, bool is_there) {
    unsigned short bits = 0;
    if (is_there) asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(bits) : "l"(from));
    return bits;
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
matmul(const TW_T* __restrict__ a, const TW_T* __restrict__ b, const TW_T* __restrict__ bias,
       const TW_T* __restrict__ c, TW_T* __restrict__ y, int B, int M, int N, int K, long long batch_a, long long ld_a,
       long long step_a, long long batch_b, long long ld_b, long long step_b, long long batch_c, long long ld_c,
       long long step_c, int activation, float alpha, float beta, const __grid_constant__ TensorMap a_map,
       const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap y_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const int rank = cluster_rank();
    const int rows = (M + ROWS - 1) / ROWS;
    const int columns = (N + COLUMNS - 1) / COLUMNS;
    const int k_tiles = (K + BK - 1) / BK;
    const int matrix_tiles = rows * columns;
    const int all_tiles = B * matrix_tiles;
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
            for (int tile = first_tile; tile < all_tiles; tile += step) {
                const int batch = tile / matrix_tiles;
                const int a_batch = batch_a == 0 ? 0 : batch;  // one matrix may stand for all of a batch
                const int b_batch = batch_b == 0 ? 0 : batch;
                const Place place = place_of<GROUP>(tile - batch * matrix_tiles, rows, columns);
                const int first_row = place.row * ROWS + !SHARES_A * rank * BM;
                const int first_column = place.column * COLUMNS + SHARES_A * rank * BN;
                #pragma unroll 1
                for (int t = 0; t < k_tiles; ++t) {
                    const int k = (is_backward ? k_tiles - 1 - t : t) * BK;
                    unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                    Arrivals* full = &stages.full[turn.stage];
                    wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                    expect_bytes(full, STAGE_BYTES);  // its own, and what the other block sends
                    const int a_part = SHARES_A * rank, b_part = !SHARES_A * rank;
                    #pragma unroll
                    for (int i = 0; i < A_BOXES; ++i) {
                        const int row = first_row + (A_WHOLE * a_part * A_BOXES + i) * WIDE;
                        const int inner = TW_A_ALONG_M ? row : k;
                        const int outer = (TW_A_ALONG_M ? k : first_row) + !A_WHOLE * a_part * A_BOX_ROWS;
                        unsigned char* there = to + a_part * A_SHARE + i * BOX_BYTES;
                        if constexpr (SHARES_A)
                            copy_box_to_blocks(there, &a_map, inner, outer, a_batch, full, (1 << CLUSTER) - 1);
                        else
                            copy_box(there, &a_map, inner, outer, a_batch, full);
                    }
                    #pragma unroll
                    for (int i = 0; i < B_BOXES; ++i) {
                        const int column = first_column + (B_WHOLE * b_part * B_BOXES + i) * WIDE;
                        const int inner = TW_B_ALONG_K ? k : column;
                        const int outer = (TW_B_ALONG_K ? first_column : k) + !B_WHOLE * b_part * B_BOX_ROWS;
                        unsigned char* there = to + A_BYTES + b_part * B_SHARE + i * BOX_BYTES;
                        if constexpr (SHARES_A)
                            copy_box(there, &b_map, inner, outer, b_batch, full);
                        else
                            copy_box_to_blocks(there, &b_map, inner, outer, b_batch, full, (1 << CLUSTER) - 1);
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
        for (int tile = first_tile; tile < all_tiles; tile += step) {
            float sums[EACH][BM / 2];
            int before = 0;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                wait_for(&stages.full[turn.stage], turn.phase);
                const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
                const unsigned long long of_a = tile_descriptor(from, TW_A_ALONG_M ? BOX_BYTES : 0);
                const unsigned long long of_b = tile_descriptor(from + A_BYTES + part * EACH * BOX_BYTES, 0);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < BK; k += 16)  // 16 of k: as many elements of a row, or as many rows
                    #pragma unroll
                    for (int i = 0; i < EACH; ++i)
                        wgmma<TW_A_ALONG_M, !TW_B_ALONG_K>(
                            sums[i], moved(of_b, i * BOX_BYTES + (TW_B_ALONG_K ? k * 2 : k * 128)),
                            moved(of_a, TW_A_ALONG_M ? k * 128 : k * 2), t > 0 || k > 0);
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

            const int batch = tile / matrix_tiles;
            const Place place = place_of<GROUP>(tile - batch * matrix_tiles, rows, columns);
            const int rank_again = blockIdx.x % CLUSTER;  // no register is kept for it beside the sums
            const int first_row = place.row * ROWS + !SHARES_A * rank_again * BM;
            const int first_column = place.column * COLUMNS + SHARES_A * rank_again * BN + part * EACH * 64;
            #pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const int own_column = first_column + i * 64 + sum_row(thread, 0);  // and the eighth behind it
                const bool has_one = own_column < N, has_both = own_column + 8 < N;
                unsigned biases[2] = {};  // of either column, twice
                if (TW_BIAS) {
                    biases[0] = one_of(bias + own_column, has_one) * 0x10001u;
                    biases[1] = one_of(bias + own_column + 8, has_both) * 0x10001u;
                }
                const TW_T* to_add = c + batch * batch_c + own_column * step_c;
                #pragma unroll
                for (int j = 0; j < BM; j += SLOT_ROWS) {
                    const int height = BM - j < SLOT_ROWS ? BM - j : SLOT_ROWS;
                    unsigned char* slot = slots + out.stage * SLOT_BYTES;
                    if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                    sync_warpgroups(1 + part);
                    #pragma unroll
                    for (int line = 0; line < height; line += 8) {
                        const float* four = &sums[i][(j + line) / 2];
                        const int row = first_row + j + line + thread % 4 * 2;  // and the next one
                        unsigned added[2] = {};  // of either column, of two rows
                        if (TW_C) {
                            const TW_T *here = to_add + row * ld_c, *next = here + ld_c;
                            const bool has_row = row < M, has_next = row + 1 < M;
                            added[0] = one_of(here, has_row && has_one) | one_of(next, has_next && has_one) << 16;
                            added[1] = one_of(here + 8 * step_c, has_row && has_both) |
                                       one_of(next + 8 * step_c, has_next && has_both) << 16;
                        }
                        float4 sum;
                        finish_two(&sum.x, four, alpha, beta, added[0], biases[0]);
                        finish_two(&sum.z, four + 2, alpha, beta, added[1], biases[1]);
                        store_turned(slot + line * 128, thread, sum);
                    }
                    publish_to_copies();
                    sync_warpgroups(1 + part);  // a row's columns come from four warps
                    if (thread == 0) {
                        #pragma unroll
                        for (int line = 0; line < height; line += STORE_ROWS)
                            store_box(&y_map, first_column + i * 64, first_row + j + line, batch, slot + line * 128);
                        commit_stores();
                    }
                    out.next();
                }
            }
        }
        if (thread == 0) wait_until_read<0>();  // when the stores have arrived, the grid's end tells
    }
    // Nobody leaves while the other may still arrive at its mbarriers, or send to its stages.
    cluster_arrive_relaxed();
    cluster_wait();
}
