// Tensor cores instead of multiply-adds of single threads, through WMMA: a warp multiplies 16 x 8 by 8 x 16 elements in one
// step. They take TF32, floats of which 10 bits of the fraction are kept: results are about as exact as half precision
// makes them, in float's range; sums stay float. This is another operation than that of the rungs before it, as it is in
// PyTorch, where it has to be allowed. A block makes 128 x 128, each of its 8 warps 64 x 32; rows of the tiles in shared
// memory are padded by 16 bytes, so that the rows of a fragment begin in different banks. What WMMA does not give: NVRTC
// 13.5 reads fragments of TF32 by generic addresses, four bytes at a time, and rounds each element in several steps.
#include <mma.h>

constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 16;
constexpr int WM = 64;
constexpr int WN = 32;
constexpr int PAD = 4;
constexpr int WARPS = (BM / WM) * (BN / WN);
constexpr int THREADS = WARPS * 32;
constexpr int A_PIECES = BM * BK / 4 / THREADS;
constexpr int B_PIECES = BK * BN / 4 / THREADS;

using namespace nvcuda;

extern "C" __global__ void __launch_bounds__(THREADS)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    __shared__ __align__(32) float a_tile[BM][BK + PAD];
    __shared__ __align__(32) float b_tile[BK][BN + PAD];
    __shared__ __align__(32) float c_patch[WARPS][16][16 + PAD];
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    a += (long long)first_row * ld_a;
    b += first_column;

    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums[WM / 16][WN / 16];
    #pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < WN / 16; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
    }
    for (int k0 = 0; k0 < K; k0 += BK) {
        // K and N are multiples of 4, and rows begin at multiples of 16 bytes: a piece exists whole, or not at all.
        #pragma unroll
        for (int i = 0; i < A_PIECES; ++i) {
            const int piece = tid + i * THREADS;
            const int row = piece / (BK / 4);
            const int k = piece % (BK / 4) * 4;
            float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (first_row + row < M && k0 + k < K) {
                value = *reinterpret_cast<const float4*>(&a[row * ld_a + k]);
            }
            *reinterpret_cast<float4*>(&a_tile[row][k]) = value;
        }
        #pragma unroll
        for (int i = 0; i < B_PIECES; ++i) {
            const int piece = tid + i * THREADS;
            const int k = piece / (BN / 4);
            const int column = piece % (BN / 4) * 4;
            float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (k0 + k < K && first_column + column < N) {
                value = *reinterpret_cast<const float4*>(&b[k * ld_b + column]);
            }
            *reinterpret_cast<float4*>(&b_tile[k][column]) = value;
        }
        __syncthreads();
        a += BK;
        b += (long long)BK * ld_b;

        #pragma unroll
        for (int k = 0; k < BK; k += 8) {
            wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a_part[WM / 16];
            wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b_part[WN / 16];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                wmma::load_matrix_sync(a_part[i], &a_tile[warp_row + i * 16][k], BK + PAD);
                #pragma unroll
                for (int e = 0; e < a_part[i].num_elements; ++e) a_part[i].x[e] = wmma::__float_to_tf32(a_part[i].x[e]);
            }
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j) {
                wmma::load_matrix_sync(b_part[j], &b_tile[k][warp_column + j * 16], BN + PAD);
                #pragma unroll
                for (int e = 0; e < b_part[j].num_elements; ++e) b_part[j].x[e] = wmma::__float_to_tf32(b_part[j].x[e]);
            }
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                #pragma unroll
                for (int j = 0; j < WN / 16; ++j) wmma::mma_sync(sums[i][j], a_part[i], b_part[j], sums[i][j]);
            }
        }
        __syncthreads();
    }

    // A fragment's elements lie as the hardware likes; by way of shared memory they come out in rows, and can be masked.
    #pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < WN / 16; ++j) {
            wmma::store_matrix_sync(&c_patch[warp][0][0], sums[i][j], 16 + PAD, wmma::mem_row_major);
            __syncwarp();
            #pragma unroll
            for (int piece = lane; piece < 64; piece += 32) {
                const int row = first_row + warp_row + i * 16 + piece / 4;
                const int column = first_column + warp_column + j * 16 + piece % 4 * 4;
                if (row < M && column < N) {
                    *reinterpret_cast<float4*>(&c[(long long)row * N + column])
                        = *reinterpret_cast<const float4*>(&c_patch[warp][piece / 4][piece % 4 * 4]);
                }
            }
            __syncwarp();
        }
    }
}
