// Roles: one warpgroup only asks for tiles, two only multiply, and they meet on the stages' mbarriers alone. The copies run
// as far ahead as the ring is deep, whatever the others are at; and the producer hands registers that it has no use for to
// the consumers (setmaxnreg), so that each of those holds 64 x 256 sums a warpgroup: both share the tile of b, so that a
// block's 128 x 256 products need fewer bytes from L2 than any smaller tile's.
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BN 64
#define TW_STAGES 2
#endif
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int BM = CONSUMERS * 64;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 16;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = BN * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 1024;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const Place place = place_of<GROUP>(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN);
    const int first_row = place.row * BM;
    const int first_column = place.column * BN;
    const int k_tiles = (K + BK - 1) / BK;

    if (threadIdx.x == 0) stages.template begin<CONSUMERS>();
    __syncthreads();
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
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);  // nobody reads a fresh stage: this passes at once
                expect_bytes(full, STAGE_BYTES);
                copy_box(tile, &a_map, t * BK, first_row, full);
                #pragma unroll
                for (int n = 0; n < BN; n += 64)
                    copy_box(tile + A_BYTES + n * 128, &b_map, first_column + n, t * BK, full);
                turn.next();
            }
        }
    } else {
        more_registers<232>();
        const int part = warpgroup - 1;  // of the tile's rows
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
                wgmma_wait<1>();  // a group of products is all four warps': one thread tells that their reads are over
                if (threadIdx.x % 128 == 0) arrive(&stages.empty[before]);
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
}
