/*
 * Single-precision GEMM without tensor cores:  C = alpha * A * B + beta * C
 *
 * A is M x K, B is K x N, C is M x N, all row-major. A block of 256 threads makes a 128 x 128
 * tile, each thread an 8 x 8 patch of it, held in registers. Both operands are fetched as
 * float4; A is turned on its way into shared memory, so that the inner loop reads columns of A
 * and rows of B as float4 too.
 *
 * No bounds checks: M and N must be multiples of 128, K a multiple of 8.
 */
#include <cassert>
#include <cuda_runtime.h>

#define BM 128
#define BN 128
#define BK 8
#define TM 8
#define TN 8
#define THREADS ((BM / TM) * (BN / TN))

__global__ void __launch_bounds__(THREADS)
sgemm_float4(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
             int M, int N, int K, float alpha, float beta)
{
    __shared__ float As[BK * BM];  // transposed: As[k][m]
    __shared__ float Bs[BK * BN];

    const int tid = threadIdx.x;

    // Which float4 of the tiles this thread fetches.
    const int a_row = tid / (BK / 4);
    const int a_col = tid % (BK / 4);
    const int b_row = tid / (BN / 4);
    const int b_col = tid % (BN / 4);

    // Which patch of C it computes.
    const int t_row = tid / (BN / TN);
    const int t_col = tid % (BN / TN);

    // Move to the first tile of this block.
    a += blockIdx.y * BM * K;
    b += blockIdx.x * BN;
    c += blockIdx.y * BM * N + blockIdx.x * BN;

    float sum[TM][TN] = {0.0f};
    float reg_a[TM];
    float reg_b[TN];

    for (int k = 0; k < K; k += BK) {
        float4 tmp = reinterpret_cast<const float4 *>(&a[a_row * K + a_col * 4])[0];
        As[(a_col * 4 + 0) * BM + a_row] = tmp.x;
        As[(a_col * 4 + 1) * BM + a_row] = tmp.y;
        As[(a_col * 4 + 2) * BM + a_row] = tmp.z;
        As[(a_col * 4 + 3) * BM + a_row] = tmp.w;

        reinterpret_cast<float4 *>(&Bs[b_row * BN + b_col * 4])[0] =
            reinterpret_cast<const float4 *>(&b[b_row * N + b_col * 4])[0];
        __syncthreads();

        a += BK;
        b += BK * N;

        #pragma unroll
        for (int d = 0; d < BK; ++d) {
            #pragma unroll
            for (int i = 0; i < TM; i += 4) {
                float4 v = *reinterpret_cast<const float4 *>(&As[d * BM + t_row * TM + i]);
                reg_a[i + 0] = v.x;
                reg_a[i + 1] = v.y;
                reg_a[i + 2] = v.z;
                reg_a[i + 3] = v.w;
            }
            #pragma unroll
            for (int j = 0; j < TN; j += 4) {
                float4 v = *reinterpret_cast<const float4 *>(&Bs[d * BN + t_col * TN + j]);
                reg_b[j + 0] = v.x;
                reg_b[j + 1] = v.y;
                reg_b[j + 2] = v.z;
                reg_b[j + 3] = v.w;
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    sum[i][j] += reg_a[i] * reg_b[j];
                }
            }
        }
        __syncthreads();
    }

    // C is read and written as float4.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            float4 *dst = reinterpret_cast<float4 *>(&c[(t_row * TM + i) * N + t_col * TN + j]);
            float4 v = *dst;
            v.x = alpha * sum[i][j + 0] + beta * v.x;
            v.y = alpha * sum[i][j + 1] + beta * v.y;
            v.z = alpha * sum[i][j + 2] + beta * v.z;
            v.w = alpha * sum[i][j + 3] + beta * v.w;
            *dst = v;
        }
    }
}

void run_sgemm_float4(const float *a, const float *b, float *c, int M, int N, int K, float alpha, float beta)
{
    assert(M % BM == 0 && N % BN == 0 && K % BK == 0);
    dim3 grid(N / BN, M / BM);
    dim3 block(THREADS);
    sgemm_float4<<<grid, block>>>(a, b, c, M, N, K, alpha, beta);
}
