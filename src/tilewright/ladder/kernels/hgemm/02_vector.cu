// Tiles are copied 16 bytes at a time: one instruction moves 8 elements, and a warp's 32 of them lie in few rows. Rows
// have to be whole pieces, and to begin at multiples of 16 bytes; a piece then exists whole, or not at all.
#include <mma.h>

#include "elements.cuh"

constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 32;
constexpr int WM = 64;
constexpr int WN = 64;
constexpr int WARPS = (BM / WM) * (BN / WN);
constexpr int THREADS = WARPS * 32;
constexpr int A_ROWS = THREADS / (BK / 8);  // that all threads copy at a time
constexpr int B_ROWS = THREADS / (BN / 8);

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
    const int a_row = tid / (BK / 8);
    const int a_k = tid % (BK / 8) * 8;
    const int b_k = tid / (BN / 8);
    const int b_column = tid % (BN / 8) * 8;
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
        #pragma unroll
        for (int i = 0; i < BM; i += A_ROWS) {
            uint4 value = make_uint4(0, 0, 0, 0);
            if (first_row + a_row + i < M && k0 + a_k < K) {
                value = *reinterpret_cast<const uint4*>(&a[(a_row + i) * ld_a + a_k]);
            }
            *reinterpret_cast<uint4*>(&a_tile[a_row + i][a_k]) = value;
        }
        #pragma unroll
        for (int i = 0; i < BK; i += B_ROWS) {
            uint4 value = make_uint4(0, 0, 0, 0);
            if (k0 + b_k + i < K && first_column + b_column < N) {
                value = *reinterpret_cast<const uint4*>(&b[(b_k + i) * ld_b + b_column]);
            }
            *reinterpret_cast<uint4*>(&b_tile[b_k + i][b_column]) = value;
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
