// Tensor cores: a warp multiplies 16 x 32 by 32 x 8 bytes in one instruction. ldmatrix brings operands as it wants them:
// made for halves, it moves 16 bytes of a row, four of them to a lane, and a lane's four neighbours along k are what one
// register of this instruction holds. Both operands lie along k, so that none is turned on its way.
#define TW_ANYWHERE 1
#include "mma_s8.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 64
#endif

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;
constexpr int WM = BM / 2;  // what a warp makes
constexpr int WN = BN / 2;
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int WORDS = BK / 4;

// Four neighbours along k of one row; zeros beyond the end.
__device__ __forceinline__ int word_of(const TW_T* row, long long step, int k, int K, bool exists) {
    unsigned word = 0;
    #pragma unroll
    for (int byte = 0; byte < 4; ++byte) {
        if (exists && k + byte < K) word |= (unsigned)(unsigned char)row[(k + byte) * step] << 8 * byte;
    }
    return (int)word;
}

extern "C" __global__ void __launch_bounds__(THREADS)
igemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, int* __restrict__ c, int M, int N, int K, long long ld_a,
      long long step_a, long long ld_b, long long step_b) {
    __shared__ __align__(16) TW_T a_tile[BM][BK];
    __shared__ __align__(16) TW_T b_tile[BN][BK];
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int word = tid % WORDS;
    const int copied_row = tid / WORDS;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;

    int sums[WM / 16][WN / 8][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll 2
        for (int i = copied_row; i < BM; i += THREADS / WORDS) {
            const int row = first_row + i;
            const int value = word_of(a + row * ld_a, step_a, k0 + word * 4, K, row < M);
            *reinterpret_cast<int*>(&a_tile[i][word * 4]) = value;
        }
        #pragma unroll 2
        for (int i = copied_row; i < BN; i += THREADS / WORDS) {
            const int column = first_column + i;
            const int value = word_of(b + column * ld_b, step_b, k0 + word * 4, K, column < N);
            *reinterpret_cast<int*>(&b_tile[i][word * 4]) = value;
        }
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; k += 32) {
            unsigned a_part[WM / 16][4];
            unsigned b_part[WN / 16][4];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i)
                load_matrices_of_bytes(a_part[i], &a_tile[warp_row + i * 16 + lane % 16][k + lane / 16 * 16]);
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j)
                load_matrices_of_bytes(b_part[j], &b_tile[warp_column + j * 16 + lane % 16][k + lane / 16 * 16]);
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
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < WN / 8; ++j) {
            const int row = first_row + warp_row + i * 16 + lane / 4;
            const int column = first_column + warp_column + j * 8 + lane % 4 * 2;
            store_inside(c, row, column, M, N, sums[i][j][0], sums[i][j][1]);
            store_inside(c, row + 8, column, M, N, sums[i][j][2], sums[i][j][3]);
        }
    }
}
