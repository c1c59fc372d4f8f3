// Little products of rows that begin anywhere, or lie across k: packing them is a launch, and no less than the product. Tiles
// are little, which makes many blocks, and the warps of a block share k.
#define TW_ANYWHERE 1
#include "dependent.cuh"
#include "little_bytes.cuh"

#include "dequantise.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 16
#define TW_BN 16
#define TW_WARPS 4
#endif
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int WARPS = TW_WARPS;
constexpr int THREADS = WARPS * 32;

extern "C" __global__ void __launch_bounds__(THREADS)
w8a8(const signed char* __restrict__ a, const signed char* __restrict__ b, const float* __restrict__ scale_a,
     const float* __restrict__ scale_b, const TW_T* __restrict__ bias, TW_T* __restrict__ y, int M, int N, int K,
     long long ld_a, long long step_a, long long ld_b, long long step_b) {
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    wait_for_previous_grid();
    let_next_grid_come();
    LittleProduct<BM, BN, WARPS> product;
    product.multiply({a, M, K, ld_a, step_a}, {b, N, K, ld_b, step_b}, first_row, first_column);
    product.meet(first_row, first_column, [=](int row, int column, const int (&four)[4]) {
        const float upper_scale = row < M ? scale_a[row] : 0.0f;
        const float lower_scale = row + 8 < M ? scale_a[row + 8] : 0.0f;
        Columns two;
        two.load(scale_b, bias, column, N);
        store_inside(y, row, column, M, N, two.of(0, four[0], upper_scale), two.of(1, four[1], upper_scale));
        store_inside(y, row + 8, column, M, N, two.of(0, four[2], lower_scale), two.of(1, four[3], lower_scale));
    });
}
