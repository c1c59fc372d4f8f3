// Tensor cores through WMMA: a warp multiplies 16 x 16 by 16 x 16 elements in one step, and adds to sums in float. A
// block makes 128 x 128 of the result, each of its 4 warps 64 x 64: the wider a warp's part, the fewer times a tile's
// elements are read again; 64 x 64 sums are 128 registers a thread. Tiles are copied element by element: any size does.
#include <mma.h>

#include "elements.cuh"

constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 32;
constexpr int WM = 64;
constexpr int WN = 64;
constexpr int WARPS = (BM / WM) * (BN / WN);
constexpr int THREADS = WARPS * 32;

using namespace nvcuda;

extern "C" __global__ void __launch_bounds__(THREADS)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    __shared__ __align__(32) TW_T a_tile[BM][BK];
    __shared__ __align__(32) TW_T b_tile[BK][BN];
    __shared__ __align__(32) float c_patch[WARPS][16][16];
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    a += (long long)first_row * ld_a;
    b += first_column;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[WM / 16][WN / 16];
    #pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < WN / 16; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
    }
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll 8
        for (int i = 0; i < BM * BK / THREADS; ++i) {
            const int row = (tid + i * THREADS) / BK;
            const int k = tid % BK;
            TW_T value = {};
            if (first_row + row < M && k0 + k < K) value = a[row * ld_a + k];
            a_tile[row][k] = value;
        }
        #pragma unroll 8
        for (int i = 0; i < BK * BN / THREADS; ++i) {
            const int k = (tid + i * THREADS) / BN;
            const int column = tid % BN;
            TW_T value = {};
            if (k0 + k < K && first_column + column < N) value = b[k * ld_b + column];
            b_tile[k][column] = value;
        }
        __syncthreads();
        a += BK;
        b += (long long)BK * ld_b;

        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, TW_T, wmma::row_major> a_part[WM / 16];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, TW_T, wmma::row_major> b_part[WN / 16];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) wmma::load_matrix_sync(a_part[i], &a_tile[warp_row + i * 16][k], BK);
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j) wmma::load_matrix_sync(b_part[j], &b_tile[k][warp_column + j * 16], BN);
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                #pragma unroll
                for (int j = 0; j < WN / 16; ++j) wmma::mma_sync(sums[i][j], a_part[i], b_part[j], sums[i][j]);
            }
        }
        __syncthreads();
    }

    // A fragment's elements lie as the hardware likes; by way of shared memory they come out in rows, to be masked.
    #pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < WN / 16; ++j) {
            wmma::store_matrix_sync(&c_patch[warp][0][0], sums[i][j], 16, wmma::mem_row_major);
            __syncwarp();
            #pragma unroll
            for (int e = lane; e < 256; e += 32) {
                const int row = first_row + warp_row + i * 16 + e / 16;
                const int column = first_column + warp_column + j * 16 + e % 16;
                if (row < M && column < N) from_float(c[(long long)row * N + column], c_patch[warp][e / 16][e % 16]);
            }
            __syncwarp();
        }
    }
}
