// A thread makes 8 x 16 elements of C instead of one, in registers. For every step of K it reads 8 values of A and 16 of B
// from shared memory, and makes 128 multiply-adds of them: 5.3 for each value that it reads, where it was one half. The
// block's tile grows to 128 x 256 with it, so that fewer bytes of global memory are read as well.
#include "dependent.cuh"

constexpr int BM = 128;
constexpr int BN = 256;
constexpr int BK = 16;
constexpr int TM = 8;
constexpr int TN = 16;
constexpr int THREADS = (BM / TM) * (BN / TN);

extern "C" __global__ void __launch_bounds__(THREADS)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    wait_for_previous_grid();
    __shared__ float a_tile[BM][BK];
    __shared__ float b_tile[BK][BN];
    const int tid = threadIdx.x;
    // Threads stand 16 x 16; each makes every sixteenth row, and every sixteenth column.
    const int patch_row = tid / (BN / TN);
    const int patch_column = tid % (BN / TN);
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    a += (long long)first_row * ld_a;
    b += first_column;

    float sums[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int i = 0; i < BM * BK / THREADS; ++i) {
            const int element = tid + i * THREADS;
            const int row = element / BK;
            const int k = element % BK;
            a_tile[row][k] = first_row + row < M && k0 + k < K ? a[row * ld_a + k] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < BK * BN / THREADS; ++i) {
            const int element = tid + i * THREADS;
            const int k = element / BN;
            const int column = element % BN;
            b_tile[k][column] = k0 + k < K && first_column + column < N ? b[k * ld_b + column] : 0.0f;
        }
        __syncthreads();
        a += BK;
        b += (long long)BK * ld_b;

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a_part[TM];
            float b_part[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) a_part[i] = a_tile[patch_row + i * (BM / TM)][k];
            #pragma unroll
            for (int j = 0; j < TN; ++j) b_part[j] = b_tile[k][patch_column + j * (BN / TN)];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) sums[i][j] = fmaf(a_part[i], b_part[j], sums[i][j]);
            }
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = first_row + patch_row + i * (BM / TM);
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int column = first_column + patch_column + j * (BN / TN);
            if (row < M && column < N) c[(long long)row * N + column] = sums[i][j];
        }
    }
}
