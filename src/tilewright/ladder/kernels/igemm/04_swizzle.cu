// ldmatrix reads 8 rows of 16 bytes at a time. Rows of 64 bytes begin in one of two groups of banks, so that these reads
// wait for each other. A piece of 16 bytes therefore lies where its number, XORed with half its row's, says: 8 rows that
// are read together are then in 8 groups of banks, and no memory is lost to padding.
#include "mma_s8.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 64
#define TW_STAGES 4
#endif

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;
constexpr int STAGES = TW_STAGES;
constexpr int WM = BM / 2;  // what a warp makes
constexpr int WN = BN / 2;
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int PIECES = BK / 16;             // of a row
constexpr int COPIED = THREADS / PIECES;  // rows that all threads copy at a time
static_assert(COPIED % 8 == 0, "the XOR is the same in all rows that a thread copies");
constexpr int SHARED_BYTES = STAGES * (BM + BN) * BK;

extern "C" __global__ void __launch_bounds__(THREADS)
igemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, int* __restrict__ c, int M, int N, int K, long long ld_a,
      long long step_a, long long ld_b, long long step_b) {
    extern __shared__ __align__(128) unsigned char ring[];
    auto& a_ring = *reinterpret_cast<TW_T(*)[STAGES][BM][BK]>(ring);
    auto& b_ring = *reinterpret_cast<TW_T(*)[STAGES][BN][BK]>(ring + sizeof(a_ring));
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int copied_row = tid / PIECES;
    const int copied_k = tid % PIECES * 16;
    const int copied_place = (tid % PIECES ^ copied_row / 2 % 4) * 16;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;

    auto copy_tile = [&](int k0, int stage) {
        const int k = k0 + copied_k;
        #pragma unroll
        for (int i = copied_row; i < BM; i += COPIED)
            copy_bytes_piece(&a_ring[stage][i][copied_place], a + (first_row + i) * ld_a + k, first_row + i < M && k < K);
        #pragma unroll
        for (int i = copied_row; i < BN; i += COPIED)
            copy_bytes_piece(&b_ring[stage][i][copied_place], b + (first_column + i) * ld_b + k,
                             first_column + i < N && k < K);
        commit_copies();
    };

    int sums[WM / 16][WN / 8][4] = {};
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) copy_tile(stage * BK, stage);
    int read_stage = 0;
    int write_stage = STAGES - 1;
    for (int k0 = 0; k0 < K; k0 += BK) {
        wait_for_copies<STAGES - 2>();  // this tile has landed
        __syncthreads();                // for every thread; and nobody still reads the stage that is filled next
        copy_tile(k0 + (STAGES - 1) * BK, write_stage);

        #pragma unroll
        for (int k = 0; k < BK; k += 32) {
            // The same in all rows that a lane reads: they are 16 apart.
            const int place = ((k / 16 + lane / 16) ^ lane / 2 % 4) * 16;
            unsigned a_part[WM / 16][4];
            unsigned b_part[WN / 16][4];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i)
                load_matrices_of_bytes(a_part[i], &a_ring[read_stage][warp_row + i * 16 + lane % 16][place]);
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j)
                load_matrices_of_bytes(b_part[j], &b_ring[read_stage][warp_column + j * 16 + lane % 16][place]);
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                #pragma unroll
                for (int j = 0; j < WN / 8; ++j)
                    multiply_add(sums[i][j], a_part[i], b_part[j / 2][j % 2], b_part[j / 2][j % 2 + 2]);
            }
        }
        read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
        write_stage = write_stage + 1 == STAGES ? 0 : write_stage + 1;
    }
    wait_for_copies<0>();  // those of zeros, beyond the last tile

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
