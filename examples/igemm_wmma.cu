// INT8 matrix product on the tensor cores, one block per 64x64 tile of the output.
//
//     C[M, N] = (A[M, K] * B[K, N]) * scale_a * scale_b
//
// A, B: int8, row-major.  C: float, row-major.  Sums are kept in int32.
// M and N have to be multiples of 16 (a WMMA fragment is stored whole); K is free.
//
// Plain tiling, no pipelining: load a tile, wait, multiply, wait.

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;

constexpr int BM = 64;  // output rows per block
constexpr int BN = 64;  // output columns per block
constexpr int BK = 32;  // depth of one tile

constexpr int WMMA_M = 16;
constexpr int WMMA_N = 16;
constexpr int WMMA_K = 16;

constexpr int WARPS_M = 2;
constexpr int WARPS_N = 2;
constexpr int WARP_SIZE = 32;
constexpr int NUM_THREADS = WARPS_M * WARPS_N * WARP_SIZE;

constexpr int WARP_TILE_M = BM / WARPS_M;  // 32
constexpr int WARP_TILE_N = BN / WARPS_N;  // 32
constexpr int FRAGS_M = WARP_TILE_M / WMMA_M;
constexpr int FRAGS_N = WARP_TILE_N / WMMA_N;

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
igemm_wmma(const int8_t* __restrict__ matrix_a,
           const int8_t* __restrict__ matrix_b,
           float* __restrict__ matrix_c,
           int M, int N, int K,
           float scale_a, float scale_b)
{
    alignas(32) __shared__ int8_t smem_a[BM * BK];
    alignas(32) __shared__ int8_t smem_b[BK * BN];

    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int warp_row = (warp_id / WARPS_N) * WARP_TILE_M;  // inside the block tile
    const int warp_col = (warp_id % WARPS_N) * WARP_TILE_N;

    const int block_row = blockIdx.y * BM;
    const int block_col = blockIdx.x * BN;

    wmma::fragment<wmma::accumulator, WMMA_M, WMMA_N, WMMA_K, int> acc[FRAGS_M][FRAGS_N];
    for (int i = 0; i < FRAGS_M; ++i) {
        for (int j = 0; j < FRAGS_N; ++j) {
            wmma::fill_fragment(acc[i][j], 0);
        }
    }

    for (int k0 = 0; k0 < K; k0 += BK) {
        // A tile: BM x BK, neighbouring threads take neighbouring bytes.
        for (int idx = tid; idx < BM * BK; idx += NUM_THREADS) {
            int row = idx / BK;
            int col = idx % BK;
            int g_row = block_row + row;
            int g_col = k0 + col;
            smem_a[idx] = (g_row < M && g_col < K) ? matrix_a[g_row * K + g_col] : int8_t(0);
        }

        // B tile: BK x BN.
        for (int idx = tid; idx < BK * BN; idx += NUM_THREADS) {
            int row = idx / BN;
            int col = idx % BN;
            int g_row = k0 + row;
            int g_col = block_col + col;
            smem_b[idx] = (g_row < K && g_col < N) ? matrix_b[g_row * N + g_col] : int8_t(0);
        }

        __syncthreads();

        #pragma unroll
        for (int kk = 0; kk < BK; kk += WMMA_K) {
            wmma::fragment<wmma::matrix_a, WMMA_M, WMMA_N, WMMA_K, signed char, wmma::row_major> frag_a[FRAGS_M];
            wmma::fragment<wmma::matrix_b, WMMA_M, WMMA_N, WMMA_K, signed char, wmma::row_major> frag_b[FRAGS_N];

            #pragma unroll
            for (int i = 0; i < FRAGS_M; ++i) {
                wmma::load_matrix_sync(frag_a[i], &smem_a[(warp_row + i * WMMA_M) * BK + kk], BK);
            }
            #pragma unroll
            for (int j = 0; j < FRAGS_N; ++j) {
                wmma::load_matrix_sync(frag_b[j], &smem_b[kk * BN + warp_col + j * WMMA_N], BN);
            }
            #pragma unroll
            for (int i = 0; i < FRAGS_M; ++i) {
                #pragma unroll
                for (int j = 0; j < FRAGS_N; ++j) {
                    wmma::mma_sync(acc[i][j], frag_a[i], frag_b[j], acc[i][j]);
                }
            }
        }

        __syncthreads();
    }

    // Dequantise and store; a fragment is either wholly inside C or wholly outside.
    const float scale = scale_a * scale_b;
    for (int i = 0; i < FRAGS_M; ++i) {
        for (int j = 0; j < FRAGS_N; ++j) {
            const int c_row = block_row + warp_row + i * WMMA_M;
            const int c_col = block_col + warp_col + j * WMMA_N;
            if (c_row < M && c_col < N) {
                wmma::fragment<wmma::accumulator, WMMA_M, WMMA_N, WMMA_K, float> out;
                for (int e = 0; e < out.num_elements; ++e) {
                    out.x[e] = static_cast<float>(acc[i][j].x[e]) * scale;
                }
                wmma::store_matrix_sync(&matrix_c[c_row * N + c_col], out, N, wmma::mem_row_major);
            }
        }
    }
}

#define CHECK_CUDA(call)                                                                   \
    do {                                                                                   \
        cudaError_t status_ = (call);                                                      \
        if (status_ != cudaSuccess) {                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
        }                                                                                  \
    } while (0)

// Host side: pointers are device pointers, the caller synchronises.
void igemm_wmma_launch(const int8_t* a, const int8_t* b, float* c, int M, int N, int K,
                       float scale_a, float scale_b, cudaStream_t stream)
{
    assert(M % WMMA_M == 0 && N % WMMA_N == 0);
    dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
    igemm_wmma<<<grid, NUM_THREADS, 0, stream>>>(a, b, c, M, N, K, scale_a, scale_b);
    CHECK_CUDA(cudaGetLastError());
}
