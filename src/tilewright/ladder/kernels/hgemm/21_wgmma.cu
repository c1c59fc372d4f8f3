// A warpgroup's own instruction, wgmma, reads both operands from shared memory, where a warp's mma wants them in registers:
// no ldmatrix, no fragments, and one instruction multiplies 64 rows by up to 256 columns. It runs by itself: while the
// tensor cores are at one tile, the warps already wait for the next, and give the one before back to the ring.
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 64
#define TW_STAGES 2
#endif
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 8;
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * 32;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = BN * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 1024;

extern "C" __global__ void __launch_bounds__(THREADS)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int lane = threadIdx.x % 32;
    const Place place = place_of<GROUP>(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN);
    const int first_row = place.row * BM;
    const int first_column = place.column * BN;
    const int k_tiles = (K + BK - 1) / BK;

    if (threadIdx.x == 0) stages.template begin<WARPS>();
    __syncthreads();
    wait_for_previous_grid();
    let_next_grid_come();

    const auto fill = [&](int stage, int k_tile) {
        unsigned char* tile = tiles + stage * STAGE_BYTES;
        expect_bytes(&stages.full[stage], STAGE_BYTES);
        copy_box(tile, &a_map, k_tile * BK, first_row, &stages.full[stage]);
        #pragma unroll
        for (int n = 0; n < BN; n += 64)
            copy_box(tile + A_BYTES + n * 128, &b_map, first_column + n, k_tile * BK, &stages.full[stage]);
    };
    if (threadIdx.x == 0)
        for (int t = 0; t < min(STAGES, k_tiles); ++t) fill(t, t);

    float sums[BM / 64][BN / 2];
    Turn<STAGES> turn;
    Turn<STAGES> before;
    #pragma unroll 1
    for (int t = 0; t < k_tiles; ++t) {
        wait_for(&stages.full[turn.stage], turn.phase);
        const unsigned tile = shared_address(tiles + turn.stage * STAGE_BYTES);
        const unsigned long long of_a = tile_descriptor(tile, 0);
        const unsigned long long of_b = tile_descriptor(tile + A_BYTES, BK * 128);
        wgmma_fence();
        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            #pragma unroll
            for (int i = 0; i < BM / 64; ++i)
                wgmma<true>(sums[i], moved(of_a, k * 2 + i * 64 * 128), moved(of_b, k * 128), t > 0 || k > 0);
        }
        wgmma_commit();
        if (t > 0) {
            wgmma_wait<1>();  // the tile before has been multiplied
            if (lane == 0) arrive(&stages.empty[before.stage]);
            if (threadIdx.x == 0 && t - 1 + STAGES < k_tiles) {
                wait_for(&stages.empty[before.stage], before.phase);
                fill(before.stage, t - 1 + STAGES);
            }
            __syncwarp();
            before.next();
        }
        turn.next();
    }
    wgmma_wait<0>();

    #pragma unroll
    for (int i = 0; i < BM / 64; ++i) {
        #pragma unroll
        for (int j = 0; j < BN / 2; j += 2) {
            const int row = first_row + i * 64 + sum_row(threadIdx.x, j);
            store_inside(c, row, first_column + sum_column(threadIdx.x, j), M, N, sums[i][j], sums[i][j + 1]);
        }
    }
}
