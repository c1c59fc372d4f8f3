// Two blocks, one above the other, form a cluster: they need the same tile of b, so each asks for one half of it, and the
// copy engine delivers that half to both. L2 is asked for a third fewer bytes. A stage is then written by both producers:
// it is empty when the consumers of both blocks have read it.
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BN 128
#define TW_STAGES 2
#endif
constexpr int CLUSTER = 2;    // blocks
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int BM = CONSUMERS * 64;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 8;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = BN * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(BN % (64 * CLUSTER) == 0, "each block brings whole boxes");

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const int rank = cluster_rank();
    constexpr int ROWS = CLUSTER * BM;  // of a cluster's tile
    const Place place = place_of<GROUP>(blockIdx.x / CLUSTER, (M + ROWS - 1) / ROWS, (N + BN - 1) / BN);
    const int first_row = place.row * ROWS + rank * BM;
    const int first_column = place.column * BN;
    const int k_tiles = (K + BK - 1) / BK;

    if (threadIdx.x == 0) stages.template begin<CLUSTER * CONSUMERS>();
    cluster_arrive();  // the other block's mbarriers are there, too
    cluster_wait();
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                unsigned char* tile = tiles + turn.stage * STAGE_BYTES;
                Arrivals* full = &stages.full[turn.stage];
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                expect_bytes(full, STAGE_BYTES);  // its own, and what the other block sends
                copy_box(tile, &a_map, t * BK, first_row, full);
                #pragma unroll
                for (int i = 0; i < BN / CLUSTER; i += 64) {
                    const int n = rank * (BN / CLUSTER) + i;
                    copy_box_to_blocks(tile + A_BYTES + n * 128, &b_map, first_column + n, t * BK, full,
                                       (1 << CLUSTER) - 1);
                }
                turn.next();
            }
        }
        __syncwarp();  // the whole warp comes to the cluster's barrier
    } else {
        more_registers<232>();
        const int part = warpgroup - 1;  // of the tile's rows
        const int thread = threadIdx.x % 128;
        float sums[BN / 2];
        Turn<STAGES> turn;
        int before = 0;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages.full[turn.stage], turn.phase);
            const unsigned tile = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(tile + part * 64 * 128, 0);
            const unsigned long long of_b = tile_descriptor(tile + A_BYTES, BK * 128);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 16) wgmma<true>(sums, moved(of_a, k * 2), moved(of_b, k * 128), t > 0 || k > 0);
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
        for (int i = 0; i < BN / 2; i += 2) {
            const int row = first_row + part * 64 + sum_row(threadIdx.x, i);
            store_inside(c, row, first_column + sum_column(threadIdx.x, i), M, N, sums[i], sums[i + 1]);
        }
    }
    cluster_arrive();  // nobody leaves while the other may still arrive at its mbarriers, or send to its stages
    cluster_wait();
}
