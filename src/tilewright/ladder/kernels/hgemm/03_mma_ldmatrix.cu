// The instructions that WMMA stands for, by name. ldmatrix brings four matrices of 8 x 8 at once, each lane the
// elements that mma wants it to have; of B, which lies in rows of k, it turns them on the way. What it buys: the layout
// of the tiles in shared memory is ours from here on, and so are the sums, which go from registers to global memory.
#include "mma.cuh"

#ifndef TW_BM
#define TW_BM 128
#define TW_BN 128
#define TW_WM 64
#define TW_WN 64
#endif

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 32;
constexpr int WM = TW_WM;  // what a warp makes
constexpr int WN = TW_WN;
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int A_ROWS = THREADS / (BK / 8);  // that all threads copy at a time
constexpr int B_ROWS = THREADS / (BN / 8);

extern "C" __global__ void __launch_bounds__(THREADS)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    __shared__ __align__(16) TW_T a_tile[BM][BK];
    __shared__ __align__(16) TW_T b_tile[BK][BN];
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int a_row = tid / (BK / 8);
    const int a_k = tid % (BK / 8) * 8;
    const int b_k = tid / (BN / 8);
    const int b_column = tid % (BN / 8) * 8;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    a += (long long)first_row * ld_a;
    b += first_column;

    float sums[WM / 16][WN / 8][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int i = 0; i < BM; i += A_ROWS) {
            uint4 value = make_uint4(0, 0, 0, 0);
            if (first_row + a_row + i < M && k0 + a_k < K) {
                value = *reinterpret_cast<const uint4*>(&a[(a_row + i) * ld_a + a_k]);
            }
            *reinterpret_cast<uint4*>(&a_tile[a_row + i][a_k]) = value;
        }
        #pragma unroll
        for (int i = 0; i < BK; i += B_ROWS) {
            uint4 value = make_uint4(0, 0, 0, 0);
            if (k0 + b_k + i < K && first_column + b_column < N) {
                value = *reinterpret_cast<const uint4*>(&b[(b_k + i) * ld_b + b_column]);
            }
            *reinterpret_cast<uint4*>(&b_tile[b_k + i][b_column]) = value;
        }
        __syncthreads();
        a += BK;
        b += (long long)BK * ld_b;

        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            unsigned a_part[WM / 16][4];
            unsigned b_part[WN / 16][4];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                const int row = warp_row + i * 16 + lane % 16;
                load_matrices(a_part[i], &a_tile[row][k + lane / 16 * 8]);
            }
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j) {
                const int row = k + lane % 16;
                load_turned_matrices(b_part[j], &b_tile[row][warp_column + j * 16 + lane / 16 * 8]);
            }
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                #pragma unroll
                for (int j = 0; j < WN / 8; ++j) {
                    multiply_add(sums[i][j], a_part[i], b_part[j / 2][j % 2 * 2], b_part[j / 2][j % 2 * 2 + 1]);
                }
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
            if (column < N && row < M) store_pair(&c[(long long)row * N + column], sums[i][j][0], sums[i][j][1]);
            if (column < N && row + 8 < M) {
                store_pair(&c[(long long)(row + 8) * N + column], sums[i][j][2], sums[i][j][3]);
            }
        }
    }
}
