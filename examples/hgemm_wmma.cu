// FP16 GEMM with the WMMA interface, for matrices of any size.
//
//   C[M, N] = A[M, K] * B[K, N]      A, B: half    C: float    all row-major
//
// Nothing is assumed of M, N and K: elements outside A and B count as zero, and the result goes
// through a small scratch tile per warp, from which only the elements inside C are written.

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cstdio>

namespace wmma = nvcuda::wmma;

const int BM = 64;
const int BN = 64;
const int BK = 32;
const int SKEW = 8;        // halves of padding per shared row
const int NUM_WARPS = 4;   // 2 x 2, each 32 x 32
const int BLOCK_SIZE = NUM_WARPS * 32;
const int FRAG = 16;

__global__ void __launch_bounds__(BLOCK_SIZE)
hgemm_wmma(const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int M, int N, int K)
{
    alignas(32) __shared__ half As[BM][BK + SKEW];
    alignas(32) __shared__ half Bs[BK][BN + SKEW];
    alignas(32) __shared__ float scratch[NUM_WARPS][FRAG][FRAG + 4];

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int wm = (warp / 2) * 32;
    const int wn = (warp % 2) * 32;
    const int row0 = blockIdx.y * BM;
    const int col0 = blockIdx.x * BN;

    wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> acc[2][2];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            wmma::fill_fragment(acc[i][j], 0.0f);
        }
    }

    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += BLOCK_SIZE) {
            const int r = i / BK;
            const int k = i % BK;
            if (row0 + r < M && k0 + k < K) {
                As[r][k] = a[(row0 + r) * K + (k0 + k)];
            } else {
                As[r][k] = __float2half(0.0f);
            }
        }
        for (int i = threadIdx.x; i < BK * BN; i += BLOCK_SIZE) {
            const int k = i / BN;
            const int n = i % BN;
            if (k0 + k < K && col0 + n < N) {
                Bs[k][n] = b[(k0 + k) * N + (col0 + n)];
            } else {
                Bs[k][n] = __float2half(0.0f);
            }
        }
        __syncthreads();

        #pragma unroll
        for (int kk = 0; kk < BK; kk += FRAG) {
            wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, half, wmma::row_major> fa[2];
            wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, half, wmma::row_major> fb[2];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                wmma::load_matrix_sync(fa[i], &As[wm + i * FRAG][kk], BK + SKEW);
                wmma::load_matrix_sync(fb[i], &Bs[kk][wn + i * FRAG], BN + SKEW);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
                }
            }
        }
        __syncthreads();
    }

    // One fragment at a time through this warp's scratch tile.
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            wmma::store_matrix_sync(&scratch[warp][0][0], acc[i][j], FRAG + 4, wmma::mem_row_major);
            __syncwarp();
            for (int e = lane; e < FRAG * FRAG; e += 32) {
                const int r = row0 + wm + i * FRAG + e / FRAG;
                const int n = col0 + wn + j * FRAG + e % FRAG;
                if (r < M && n < N) {
                    c[r * N + n] = scratch[warp][e / FRAG][e % FRAG];
                }
            }
            __syncwarp();
        }
    }
}

cudaError_t hgemm_wmma_launch(const half* a, const half* b, float* c, int M, int N, int K, cudaStream_t stream)
{
    const dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
    hgemm_wmma<<<grid, BLOCK_SIZE, 0, stream>>>(a, b, c, M, N, K);
    cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) {
        fprintf(stderr, "hgemm_wmma(%d, %d, %d): %s\n", M, N, K, cudaGetErrorString(status));
    }
    return status;
}
