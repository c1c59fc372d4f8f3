// The ring of the fastest product of bytes: blocks stay, one a multiprocessor, and take tile after tile; one warpgroup asks
// for tiles by tensor map, two multiply them from shared memory (WGMMA), two blocks share b's. What an epilogue reads, the
// scales and biases of its columns, is on its way before the sums are there. Results leave as rows of 128 bytes.
#include "cluster.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma_s8.cuh"

#include "dequantise.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BN 128
#define TW_STAGES 2
#define TW_BLOCKS 2
#define TW_GROUP 8
#define TW_SLOTS 2
#define TW_CLUSTER 2
#endif
constexpr int CLUSTER = TW_CLUSTER;  // blocks
constexpr int CONSUMERS = 2;         // warpgroups
constexpr int BM = CONSUMERS * 64;
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
constexpr int BOX_BYTES = 64 * 128;  // 64 rows of 64 elements
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * BOX_BYTES + 1024;
static_assert(BN % 64 == 0 && B_ROWS % 8 == 0, "whole boxes of the result, and whole patterns of the swizzle");

// Of the eight pairs of columns that a thread has in a box.
__device__ __forceinline__ void load_columns(Columns (&to)[8], const float* scales, const TW_T* biases, int column, int N) {
    #pragma unroll
    for (int chunk = 0; chunk < 8; ++chunk) to[chunk].load_pair(scales, biases, column + chunk * 8, N);
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
w8a8(const signed char* __restrict__ a, const signed char* __restrict__ b, const float* __restrict__ scale_a,
     const float* __restrict__ scale_b, const TW_T* __restrict__ bias, TW_T* __restrict__ y, int M, int N, int K,
     long long ld_a, long long step_a, long long ld_b, long long step_b,
     const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
     const __grid_constant__ TensorMap y_map) {
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
        stages.template begin<CLUSTER * CONSUMERS>();
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
        const int part = warpgroup - 1;  // of the tile's rows
        const int thread = threadIdx.x % 128;
        unsigned char* boxes = tiles + STAGES * STAGE_BYTES + part * SLOTS * BOX_BYTES;
        Turn<STAGES> turn;
        Turn<SLOTS> out;
        for (int tile = first_tile; tile < rows * columns; tile += step) {
            // Scales and biases of the first columns come while the products are made.
            const Place place = place_of<GROUP>(tile, rows, columns);
            const int first_row = place.row * ROWS + rank * BM + part * 64;
            const int first_column = place.column * BN + sum_column(thread, 0);
            const int row = first_row + sum_row(thread, 0);
            const float upper_scale = row < M ? scale_a[row] : 0.0f;
            const float lower_scale = row + 8 < M ? scale_a[row + 8] : 0.0f;
            Columns two[8];
            load_columns(two, scale_b, bias, first_column, N);
            int sums[BN / 2];
            int before = 0;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                wait_for(&stages.full[turn.stage], turn.phase);
                const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
                const unsigned long long of_a = tile_descriptor(from + part * 64 * BK, 0);
                const unsigned long long of_b = tile_descriptor(from + A_BYTES, 0);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < BK; k += 32) wgmma_s8(sums, moved(of_a, k), moved(of_b, k), t > 0 || k > 0);
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

            #pragma unroll
            for (int box = 0; box < BN / 64; ++box) {
                Columns next[8];  // of the next box: on their way while this one is written
                if (box + 1 < BN / 64) load_columns(next, scale_b, bias, first_column + box * 64 + 64, N);
                unsigned char* slot = boxes + out.stage * BOX_BYTES;
                if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                sync_warpgroups(1 + part);
                #pragma unroll
                for (int chunk = 0; chunk < 8; chunk += 2) {
                    float values[8];
                    #pragma unroll
                    for (int i = 0; i < 8; ++i) {
                        const int sum = sums[box * 32 + chunk * 4 + i];
                        values[i] = two[chunk + i / 4].of(i % 2, sum, i & 2 ? lower_scale : upper_scale);
                    }
                    store_sums(slot, thread, chunk, values);
                }
                publish_to_copies();
                sync_warpgroups(1 + part);
                if (thread == 0) {
                    store_box(&y_map, place.column * BN + box * 64, first_row, slot);
                    commit_stores();
                }
                #pragma unroll
                for (int chunk = 0; chunk < 8; ++chunk) two[chunk] = next[chunk];
                out.next();
            }
        }
        if (thread == 0) wait_for_stores();
    }
    cluster_arrive();  // nobody leaves while the other may still arrive at its mbarriers, or send to its stages
    cluster_wait();
}
