// C[M, N] = A[M, K] * B[K, N] in int8, byte-wise strided copies, 32 x 32 tiles, 64 threads.
#include <cstdint>

constexpr int BM = 32;
constexpr int BN = 32;
constexpr int BK = 32;
constexpr int THREADS = 64;

__global__ void __launch_bounds__(THREADS)
bytes(const int8_t *__restrict__ A, const int8_t *__restrict__ B, float *__restrict__ C, int M, int N, int K)
{
    __shared__ int8_t As[BM * BK];
    __shared__ int8_t Bs[BK][BN];

    const int tid = threadIdx.x;
    const int row0 = blockIdx.y * BM;
    const int col0 = blockIdx.x * BN;
    const int r = tid / 2;
    const int c = tid % 2 * 16;
    float sum[16] = {};

    for (int k0 = 0; k0 < K; k0 += BK) {
        // A: rows of BK bytes.
        for (int i = tid; i < BM * BK; i += THREADS) {
            int row = i / BK;
            int col = i % BK;
            As[i] = (row0 + row < M && k0 + col < K) ? A[(row0 + row) * K + k0 + col] : 0;
        }
        // B: rows of BN bytes.
        for (int i = tid; i < BK * BN; i += THREADS) {
            int row = i / BN;
            int col = i % BN;
            Bs[row][col] = (k0 + row < K && col0 + col < N) ? B[(k0 + row) * N + col0 + col] : 0;
        }
        __syncthreads();  // both tiles are there

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a = As[r * BK + k];
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
                sum[j] += a * Bs[k][c + j];
            }
        }
        __syncthreads();
    }

    for (int j = 0; j < 16; ++j) {
        if (row0 + r < M && col0 + c + j < N) {
            C[(row0 + r) * N + col0 + c + j] = sum[j];
        }
    }
}
