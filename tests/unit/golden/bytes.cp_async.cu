// C[M, N] = A[M, K] * B[K, N] in int8, byte-wise strided copies, 32 x 32 tiles, 64 threads.
#include <cstdint>
#include <cuda_pipeline.h>

constexpr int BM = 32;
constexpr int BN = 32;
constexpr int BK = 32;
constexpr int THREADS = 64;

__global__ void __launch_bounds__(THREADS)
bytes(const int8_t *__restrict__ A, const int8_t *__restrict__ B, float *__restrict__ C, int M, int N, int K)
{
    constexpr int STAGES = 3;
    __shared__ __align__(16) int8_t As_ring[STAGES][BM * BK];
    __shared__ __align__(16) int8_t Bs_ring[STAGES][BK][BN];

    const int tid = threadIdx.x;
    const int row0 = blockIdx.y * BM;
    const int col0 = blockIdx.x * BN;
    const int r = tid / 2;
    const int c = tid % 2 * 16;
    float sum[16] = {};

    // Software pipeline: while a tile is computed, the copies of the next STAGES - 1 tiles are in flight.
    auto copy_tile = [&](int k0, int stage) {
        auto &As = As_ring[stage];
        auto &Bs = Bs_ring[stage];
        // A: rows of BK bytes.
        #pragma unroll
        for (int pass = 0; pass < (BM * BK) / (16 * THREADS); ++pass) {
            const int first = (tid + pass * THREADS) * 16;
            if (first < BM * BK) {
                int i = first;
                int row = i / BK;
                int col = i % BK;
                if (row0 + row < M && k0 + col + 15 < K
                    && reinterpret_cast<size_t>(&A[(row0 + row) * K + k0 + col]) % 16 == 0) {
                    __pipeline_memcpy_async(&As[i], &A[(row0 + row) * K + k0 + col], 16);
                } else {
                    // The ragged edge, or a row that is not 16-byte aligned.
                    #pragma unroll 1
                    for (int i = first; i < first + 16; ++i) {
                        int row = i / BK;
                        int col = i % BK;
                        As[i] = (row0 + row < M && k0 + col < K) ? A[(row0 + row) * K + k0 + col] : 0;
                    }
                }
            }
        }
        // B: rows of BN bytes.
        #pragma unroll
        for (int pass = 0; pass < (BK * BN) / (16 * THREADS); ++pass) {
            const int first = (tid + pass * THREADS) * 16;
            if (first < BK * BN) {
                int i = first;
                int row = i / BN;
                int col = i % BN;
                if (k0 + row < K && col0 + col + 15 < N
                    && reinterpret_cast<size_t>(&B[(k0 + row) * N + col0 + col]) % 16 == 0) {
                    __pipeline_memcpy_async(&Bs[row][col], &B[(k0 + row) * N + col0 + col], 16);
                } else {
                    // The ragged edge, or a row that is not 16-byte aligned.
                    #pragma unroll 1
                    for (int i = first; i < first + 16; ++i) {
                        int row = i / BN;
                        int col = i % BN;
                        Bs[row][col] = (k0 + row < K && col0 + col < N) ? B[(k0 + row) * N + col0 + col] : 0;
                    }
                }
            }
        }
    };

    // Prologue: fill all stages but one. Each commits, even with no tile left: the wait counts groups.
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        int k0 = stage * BK;
        if (k0 < K) copy_tile(k0, stage);
        __pipeline_commit();
    }

    int read_stage = 0;
    int write_stage = STAGES - 1;
    for (int k0 = 0; k0 < K; k0 += BK) {
        __pipeline_wait_prior(STAGES - 2);  // this tile has landed
        __syncthreads();  // for every thread; and nobody still reads the stage that is filled next
        const int k0_ahead = k0 + (STAGES - 1) * BK;
        if (k0_ahead < K) copy_tile(k0_ahead, write_stage);
        __pipeline_commit();

        auto &As = As_ring[read_stage];
        auto &Bs = Bs_ring[read_stage];
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a = As[r * BK + k];
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
                sum[j] += a * Bs[k][c + j];
            }
        }

        read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
        write_stage = write_stage + 1 == STAGES ? 0 : write_stage + 1;
    }
    __syncthreads();  // as behind every tile of the original: nobody still reads the last one

    for (int j = 0; j < 16; ++j) {
        if (row0 + r < M && col0 + c + j < N) {
            C[(row0 + r) * N + col0 + c + j] = sum[j];
        }
    }
}
