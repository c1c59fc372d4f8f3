// The ring of the fastest product of halves, for operands that lie along k or across it, and for batches: a tensor map
// names the dimension that is contiguous first, boxes are 64 of it wide, and WGMMA is told which it is. No operand is
// copied to be turned. Blocks stay, one a multiprocessor, and go from matrix to matrix as from tile to tile. What an
// epilogue reads is on its way before the sums are there.
#include "batches.cuh"
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
#define TW_CLUSTER 2
#define TW_COME 1
#define TW_DIRECT 0  // rows of the result are no whole pieces of 16 bytes: no tensor map has it
#endif
#ifndef TW_A_ALONG_M
#define TW_A_ALONG_M 0  // neighbours in memory are neighbours along m, not along k
#define TW_B_ALONG_K 0  // along k, not along n
#define TW_BIAS 0
#define TW_C 0
#define TW_ACTIVATION 0
#endif
#include "epilogue.cuh"

constexpr int CLUSTER = TW_CLUSTER;  // blocks
constexpr int CONSUMERS = 2;         // warpgroups
constexpr int BM = CONSUMERS * 64;
constexpr int BN = TW_BN;
constexpr int BK = 64;
constexpr int WIDE = 64;  // elements of a box's rows, 128 bytes: the width of the swizzle
constexpr int STAGES = TW_STAGES;
constexpr int BLOCKS = TW_BLOCKS;
constexpr int GROUP = TW_GROUP;
constexpr bool COME = TW_COME;  // it comes while the grid before it ends, and lets the next one do so
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int BOXES = (BN + WIDE - 1) / WIDE;  // of a tile of the result, and of b where rows of it are k
constexpr int LEFT = BN % WIDE;                // columns of the last box, unless that is whole
constexpr int B_BYTES = (TW_B_ALONG_K ? BN : BOXES * WIDE) * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SLOTS = 2;             // boxes of a warpgroup's result that wait to be stored
constexpr int BOX_BYTES = 64 * 128;  // 64 rows of 64 elements
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * BOX_BYTES + 1024;
// a: one box of all rows, or one for each 64 rows, whose own rows are k.
constexpr int A_BOX_ROWS = TW_A_ALONG_M ? BK : BM;
constexpr int A_BOXES = TW_A_ALONG_M ? BM / WIDE : 1;
// b, of which a block brings its share for all of the cluster: a box of its columns, where rows of the box are columns;
// else whole boxes of 64 columns where they can be shared out, or its rows of each.
constexpr bool HAS_WHOLE_BOXES = BN % (WIDE * CLUSTER) == 0;
constexpr int B_BOXES = TW_B_ALONG_K ? 1 : HAS_WHOLE_BOXES ? BOXES / CLUSTER : BOXES;
constexpr int B_BOX_ROWS = TW_B_ALONG_K ? BN / CLUSTER : HAS_WHOLE_BOXES ? BK : BK / CLUSTER;
constexpr int B_SHARE_BYTES = TW_B_ALONG_K || HAS_WHOLE_BOXES ? B_BYTES / CLUSTER : B_BOX_ROWS * 128;
static_assert(BN > 0 && BN <= 256 && B_BOX_ROWS % 8 == 0, "whole patterns of the swizzle, of columns that WGMMA has");
static_assert(LEFT == 0 || LEFT == 32, "what is left of a tile's width has a map of its own");

// Whether a box of the result is the half one; its groups of 8 columns.
__device__ constexpr bool is_left_box(int box) { return LEFT > 0 && box == BN / WIDE; }
__device__ constexpr int chunks_of(int box) { return is_left_box(box) ? LEFT / 8 : WIDE / 8; }

// What a thread adds to its sums of a box: a pair of biases for each 8 columns; of c, one in its upper and its lower row.
struct Biases {
    unsigned at[8];

    __device__ __forceinline__ void load(const TW_T* biases, int column, int N, int chunks) {
        #pragma unroll
        for (int chunk = 0; chunk < chunks; ++chunk)
            at[chunk] = TW_BIAS ? two_of<!TW_DIRECT>(biases + column + chunk * 8, 1, N - column - chunk * 8) : 0;
    }
};
struct Terms {
    unsigned upper[8];
    unsigned lower[8];

    __device__ __forceinline__ void load(const Added& c, int row, int column, int M, int N, int chunks) {
        #pragma unroll
        for (int chunk = 0; chunk < chunks; ++chunk) {
            upper[chunk] = c.at(row, column + chunk * 8, M, N);
            lower[chunk] = c.at(row + 8, column + chunk * 8, M, N);
        }
    }
};

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
matmul(const TW_T* __restrict__ a, const TW_T* __restrict__ b, const TW_T* __restrict__ bias,
       const TW_T* __restrict__ c, TW_T* __restrict__ y, int B, int M, int N, int K, long long batch_a, long long ld_a,
       long long step_a, long long batch_b, long long ld_b, long long step_b, long long batch_c, long long ld_c,
       long long step_c, int activation, float alpha, float beta, const __grid_constant__ TensorMap a_map,
       const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap y_map,
       const __grid_constant__ TensorMap y_left_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const int rank = CLUSTER > 1 ? cluster_rank() : 0;
    constexpr int ROWS = CLUSTER * BM;  // of a cluster's tile
    const int rows = (M + ROWS - 1) / ROWS;
    const int columns = (N + BN - 1) / BN;
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
    cluster_arrive();  // the other block's mbarriers are there, too
    cluster_wait();
    if (COME) {
        wait_for_previous_grid();
        let_next_grid_come();
    }

    if (warpgroup == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            bool is_backward = false;  // along k, at every other tile: the same rows of a came last, and are still in L2
            for (int tile = first_tile; tile < all_tiles; tile += step) {
                const int batch = tile / matrix_tiles;
                const int a_batch = batch_a == 0 ? 0 : batch;  // one matrix may stand for all of a batch
                const int b_batch = batch_b == 0 ? 0 : batch;
                const Place place = place_of<GROUP>(tile - batch * matrix_tiles, rows, columns);
                const int first_row = place.row * ROWS + rank * BM;
                const int first_column = place.column * BN + (TW_B_ALONG_K || HAS_WHOLE_BOXES) * rank * (BN / CLUSTER);
                const int first_k = !(TW_B_ALONG_K || HAS_WHOLE_BOXES) * rank * B_BOX_ROWS;
                #pragma unroll 1
                for (int t = 0; t < k_tiles; ++t) {
                    unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                    Arrivals* full = &stages.full[turn.stage];
                    const int k = (is_backward ? k_tiles - 1 - t : t) * BK;
                    wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                    expect_bytes(full, STAGE_BYTES);  // its own, and what the other block sends
                    #pragma unroll
                    for (int i = 0; i < A_BOXES; ++i) {
                        const int row = first_row + i * WIDE;
                        copy_box(to + i * BOX_BYTES, &a_map, TW_A_ALONG_M ? row : k, TW_A_ALONG_M ? k : row, a_batch, full);
                    }
                    to += A_BYTES + rank * B_SHARE_BYTES;
                    #pragma unroll
                    for (int i = 0; i < B_BOXES; ++i) {
                        const int column = first_column + i * WIDE;
                        copy_box_to_blocks(to + i * BOX_BYTES, &b_map, TW_B_ALONG_K ? k : column,
                                           TW_B_ALONG_K ? column : k + first_k, b_batch, full, (1 << CLUSTER) - 1);
                    }
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
        for (int tile = first_tile; tile < all_tiles; tile += step) {
            const int batch = tile / matrix_tiles;
            const Place place = place_of<GROUP>(tile - batch * matrix_tiles, rows, columns);
            const int first_row = place.row * ROWS + rank * BM + part * 64;
            const int row = first_row + sum_row(thread, 0);
            const int first_column = place.column * BN + sum_column(thread, 0);
            const Added added = {c + batch * batch_c, ld_c, step_c};
            Biases biases;
            biases.load(bias, first_column, N, chunks_of(0));
            float sums[BN / 2];
            int before = 0;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                wait_for(&stages.full[turn.stage], turn.phase);
                const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
                const unsigned long long of_a = tile_descriptor(from + part * BOX_BYTES, 0);
                const unsigned long long of_b = tile_descriptor(from + A_BYTES, TW_B_ALONG_K ? 0 : BOX_BYTES);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < BK; k += 16)  // 16 of k: as many elements of a row, or as many rows
                    wgmma<!TW_B_ALONG_K, TW_A_ALONG_M>(sums, moved(of_a, TW_A_ALONG_M ? k * 128 : k * 2),
                                                       moved(of_b, TW_B_ALONG_K ? k * 2 : k * 128), t > 0 || k > 0);
                wgmma_commit();
                if (t > 0) {
                    wgmma_wait<1>();  // a group of products is all four warps': one thread a block tells of it
                    if (thread < CLUSTER) arrive_in_block(&stages.empty[before], thread);
                }
                before = turn.stage;
                turn.next();
            }
            wgmma_wait<0>();
            hold(sums);
            if (thread < CLUSTER) arrive_in_block(&stages.empty[before], thread);

            Terms terms;
            terms.load(added, row, first_column, M, N, chunks_of(0));
            #pragma unroll
            for (int box = 0; box < BOXES; ++box) {
                const bool is_left = is_left_box(box);
                Terms next_terms;  // of the next box: on their way while this one is written
                const int column = first_column + box * WIDE;
                if (box + 1 < BOXES) {
                    next_terms.load(added, row, column + WIDE, M, N, chunks_of(box + 1));
                }
                unsigned char* slot = boxes + out.stage * BOX_BYTES;
                if constexpr (!TW_DIRECT) {
                    if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                    sync_warpgroups(1 + part);
                }
                #pragma unroll
                for (int chunk = 0; chunk < chunks_of(box); chunk += 2) {
                    float values[8];
                    #pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const float* four = &sums[box * 32 + (chunk + i) * 4];
                        const unsigned two = biases.at[chunk + i];
                        finish_two(&values[i * 4], four, alpha, beta, terms.upper[chunk + i], two);
                        finish_two(&values[i * 4 + 2], four + 2, alpha, beta, terms.lower[chunk + i], two);
                        if constexpr (TW_DIRECT) {
                            TW_T* to = y + (long long)batch * M * N;
                            const int at = column + (chunk + i) * 8;
                            store_inside(to, row, at, M, N, values[i * 4], values[i * 4 + 1]);
                            store_inside(to, row + 8, at, M, N, values[i * 4 + 2], values[i * 4 + 3]);
                        }
                    }
                    if constexpr (!TW_DIRECT) {
                        if (is_left) store_sums<64>(slot, thread, chunk, values);
                        else store_sums(slot, thread, chunk, values);
                    }
                }
                if constexpr (!TW_DIRECT) {
                    publish_to_copies();
                    sync_warpgroups(1 + part);
                    if (thread == 0) {
                        const TensorMap* map = is_left ? &y_left_map : &y_map;
                        store_box(map, place.column * BN + box * WIDE, first_row, batch, slot);
                        commit_stores();
                    }
                    out.next();
                }
                if (box + 1 < BOXES) biases.load(bias, column + WIDE, N, chunks_of(box + 1));
                terms = next_terms;
            }
        }
        if (!TW_DIRECT && thread == 0) wait_until_read<0>();  // when they have arrived, the grid's end tells
    }
    // Nobody leaves while the other may still arrive at its mbarriers, or send to its stages.
    cluster_arrive_relaxed();
    cluster_wait();
}
