#include <cuda_pipeline.h>
// C[M, N] = A[M, K] * B[K, N] in float4, A transposed through a register, pointers advanced from tile to tile.
// M and N are multiples of 32, K is one of 8.
#define BM 32
#define BN 32
#define BK 8
#define FLOAT4(x) (reinterpret_cast<float4 *>(&(x))[0])
#define CONST4(x) (reinterpret_cast<const float4 *>(&(x))[0])

__global__ void vector(const float *A, const float *B, float *C, int M, int N, int K)
{
    constexpr int STAGES = 3;
    __shared__ __align__(16) float As_ring[STAGES][BK * BM], Bs_ring[STAGES][BK * BN];

    const int tid = threadIdx.x;
    const int a_row = tid / 2;
    const int a_col = tid % 2 * 4;
    const int b_row = tid / 8;
    const int b_col = tid % 8 * 4;
    const int r = tid / 8 * 4;
    const int c = tid % 8 * 4;
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += blockIdx.y * BM * N + blockIdx.x * BN;
    float sum[4][4] = {};

    // Software pipeline: while a tile is computed, the copies of the next STAGES - 1 tiles are in flight.
    auto copy_tile = [&](int stage) {
        auto &As = As_ring[stage];
        auto &Bs = Bs_ring[stage];
        const float4 &tmp = CONST4(A[a_row * K + a_col]);
        __pipeline_memcpy_async(&As[(a_col + 0) * BM + a_row], &tmp.x, 4);
        __pipeline_memcpy_async(&As[(a_col + 1) * BM + a_row], &tmp.y, 4);
        __pipeline_memcpy_async(&As[(a_col + 2) * BM + a_row], &tmp.z, 4);
        __pipeline_memcpy_async(&As[(a_col + 3) * BM + a_row], &tmp.w, 4);
        __pipeline_memcpy_async(&FLOAT4(Bs[b_row * BN + b_col]), &CONST4(B[b_row * N + b_col]), 16);

        A += BK;
        B += BK * N;
    };

    // Prologue: fill all stages but one. Each commits, even with no tile left: the wait counts groups.
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        int k = stage * BK;
        if (k < K) copy_tile(stage);
        __pipeline_commit();
    }

    int read_stage = 0;
    int write_stage = STAGES - 1;
    for (int k = 0; k < K; k += BK) {
        __pipeline_wait_prior(STAGES - 2);  // this tile has landed
        __syncthreads();  // for every thread; and nobody still reads the stage that is filled next
        const int k_ahead = k + (STAGES - 1) * BK;
        if (k_ahead < K) copy_tile(write_stage);
        __pipeline_commit();

        auto &As = As_ring[read_stage];
        auto &Bs = Bs_ring[read_stage];
        for (int d = 0; d < BK; ++d) {
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) {
                    sum[i][j] += As[d * BM + r + i] * Bs[d * BN + c + j];
                }
            }
        }

        read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
        write_stage = write_stage + 1 == STAGES ? 0 : write_stage + 1;
    }
    __syncthreads();  // as behind every tile of the original: nobody still reads the last one

    for (int i = 0; i < 4; ++i) {
        FLOAT4(C[(r + i) * N + c]) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
    }
}
