// Any strides: element after element comes from where it lies, and goes to rows of k in shared memory, where tensor cores
// want them. Threads that are neighbours read neighbours, whichever way those lie in memory. What follows a product in a
// layer is done to the sums while they are in registers.
#define TW_ANYWHERE 1
#include "mma.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 64
#endif
#ifndef TW_A_ALONG_M
#define TW_A_ALONG_M 0  // neighbours in memory are neighbours along m, not along k
#define TW_B_ALONG_K 0  // along k, not along n
#define TW_BIAS 0
#define TW_C 0
#define TW_ACTIVATION 0
#endif
#include "epilogue.cuh"

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 32;
constexpr int ROW = BK + 8;  // elements of a row in shared memory: eight of them lie in different banks
constexpr int WM = BM / 2;   // what a warp makes
constexpr int WN = BN / 2;
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;

// A tile of LINES lines (rows of a, columns of b) by BK along k; zeros beyond the end of either.
template <int LINES, bool ALONG_K>
__device__ __forceinline__ void bring(TW_T (&to)[LINES][ROW], const TW_T* from, long long line_step, long long k_step,
                                      int lines, int ks) {
    #pragma unroll 8
    for (int i = threadIdx.x; i < LINES * BK; i += THREADS) {
        const int line = ALONG_K ? i / BK : i % LINES;
        const int k = ALONG_K ? i % BK : i / LINES;
        TW_T value;
        from_float(value, 0.0f);
        if (line < lines && k < ks) value = from[line * line_step + k * k_step];
        to[line][k] = value;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
matmul(const TW_T* __restrict__ a, const TW_T* __restrict__ b, const TW_T* __restrict__ bias,
       const TW_T* __restrict__ c, TW_T* __restrict__ y, int B, int M, int N, int K, long long batch_a, long long ld_a,
       long long step_a, long long batch_b, long long ld_b, long long step_b, long long batch_c, long long ld_c,
       long long step_c, int activation, float alpha, float beta) {
    __shared__ __align__(16) TW_T a_tile[BM][ROW];
    __shared__ __align__(16) TW_T b_tile[BN][ROW];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    const long long batch = blockIdx.z;
    a += batch * batch_a + first_row * ld_a;
    b += batch * batch_b + first_column * step_b;
    y += batch * M * N;
    const Added added = {c + batch * batch_c, ld_c, step_c};

    float sums[WM / 16][WN / 8][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        bring<BM, !TW_A_ALONG_M>(a_tile, a + k0 * step_a, ld_a, step_a, M - first_row, K - k0);
        bring<BN, TW_B_ALONG_K>(b_tile, b + k0 * ld_b, step_b, ld_b, N - first_column, K - k0);
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            unsigned a_part[WM / 16][4];
            unsigned b_part[WN / 16][4];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i)
                load_matrices(a_part[i], &a_tile[warp_row + i * 16 + lane % 16][k + lane / 16 * 8]);
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j)
                load_matrices(b_part[j], &b_tile[warp_column + j * 16 + lane % 16][k + lane / 16 * 8]);
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                #pragma unroll
                for (int j = 0; j < WN / 8; ++j)
                    multiply_add(sums[i][j], a_part[i], b_part[j / 2][j % 2], b_part[j / 2][j % 2 + 2]);
            }
        }
        __syncthreads();
    }

    #pragma unroll
    for (int j = 0; j < WN / 8; ++j) {
        const int column = first_column + warp_column + j * 8 + lane % 4 * 2;
        const unsigned biases = TW_BIAS ? two_of<false>(bias + column, 1, N - column) : 0;
        #pragma unroll
        for (int i = 0; i < WM / 16; ++i) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + warp_row + i * 16 + half * 8 + lane / 4;
                float two[2];
                finish_two(two, &sums[i][j][half * 2], alpha, beta, added.at(row, column, M, N), biases);
                store_inside(y, row, column, M, N, two[0], two[1]);
            }
        }
    }
}
