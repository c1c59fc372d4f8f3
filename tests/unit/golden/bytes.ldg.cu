// C[M, N] = A[M, K] * B[K, N] in int8, byte-wise strided copies, 32 x 32 tiles, 64 threads.
#include <cstdint>

constexpr int BM = 32;
constexpr int BN = 32;
constexpr int BK = 32;
constexpr int THREADS = 64;

__global__ void __launch_bounds__(THREADS)
bytes(const int8_t *__restrict__ A, const int8_t *__restrict__ B, float *__restrict__ C, int M, int N, int K)
{
    constexpr int STAGES = 2;
    __shared__ __align__(16) int8_t As_ring[STAGES][BM * BK];
    __shared__ __align__(16) int8_t Bs_ring[STAGES][BK][BN];

    const int tid = threadIdx.x;
    const int row0 = blockIdx.y * BM;
    const int col0 = blockIdx.x * BN;
    const int r = tid / 2;
    const int c = tid % 2 * 16;
    float sum[16] = {};

    // Software pipeline: the loads of the next tile wait in registers while this tile is computed.
    uint4 As_next[(BM * BK) / (16 * THREADS)];
    uint4 Bs_next[(BK * BN) / (16 * THREADS)];
    auto fetch_tile = [&](int k0) {
        // Cleared first: loads into registers that a branch may have skipped wait for each other.
        #pragma unroll
        for (uint4 &vector : As_next) vector = make_uint4(0, 0, 0, 0);
        #pragma unroll
        for (uint4 &vector : Bs_next) vector = make_uint4(0, 0, 0, 0);
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
                    As_next[pass] = *reinterpret_cast<const uint4 *>(&A[(row0 + row) * K + k0 + col]);
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
                    Bs_next[pass] = *reinterpret_cast<const uint4 *>(&B[(k0 + row) * N + col0 + col]);
                }
            }
        }
    };
    auto store_tile = [&](int k0, int stage) {
        auto &As = As_ring[stage];
        auto &Bs = Bs_ring[stage];
        #pragma unroll
        for (int pass = 0; pass < (BM * BK) / (16 * THREADS); ++pass) {
            const int first = (tid + pass * THREADS) * 16;
            if (first < BM * BK) {
                int i = first;
                int row = i / BK;
                int col = i % BK;
                *reinterpret_cast<uint4 *>(&As[i]) = As_next[pass];
                if (!(row0 + row < M && k0 + col + 15 < K
                    && reinterpret_cast<size_t>(&A[(row0 + row) * K + k0 + col]) % 16 == 0)) {
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
        #pragma unroll
        for (int pass = 0; pass < (BK * BN) / (16 * THREADS); ++pass) {
            const int first = (tid + pass * THREADS) * 16;
            if (first < BK * BN) {
                int i = first;
                int row = i / BN;
                int col = i % BN;
                *reinterpret_cast<uint4 *>(&Bs[row][col]) = Bs_next[pass];
                if (!(k0 + row < K && col0 + col + 15 < N
                    && reinterpret_cast<size_t>(&B[(k0 + row) * N + col0 + col]) % 16 == 0)) {
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

    {  // Prologue: the first tile.
        int k0 = 0;
        if (k0 < K) {
            fetch_tile(k0);
            store_tile(k0, 0);
        }
    }
    __syncthreads();

    int stage = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        const int k0_next = k0 + BK;
        const bool has_next = k0_next < K;
        if (has_next) fetch_tile(k0_next);

        auto &As = As_ring[stage];
        auto &Bs = Bs_ring[stage];
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a = As[r * BK + k];
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
                sum[j] += a * Bs[k][c + j];
            }
        }

        if (has_next) store_tile(k0_next, stage ^ 1);
        __syncthreads();  // the next tile is in shared memory, and nobody reads this one any more
        stage ^= 1;
    }

    for (int j = 0; j < 16; ++j) {
        if (row0 + r < M && col0 + c + j < N) {
            C[(row0 + r) * N + col0 + c + j] = sum[j];
        }
    }
}
