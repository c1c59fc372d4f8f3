// Sums in halves: an accumulator is two registers in place of four, and the result leaves as it is. Each step of 16
// products rounds the sum to 11 bits, and 65,504 is the end: it is for who knows what is summed, and is chosen by nobody
// else. Tensor cores of GeForce cards do it at twice the rate of sums in float; those of data-center cards at the same.
#include "mma.cuh"
#include "pieces.cuh"

#ifndef TW_BM
#define TW_BM 128
#define TW_BN 128
#define TW_WM 64
#define TW_WN 64
#define TW_STAGES 4
#endif

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 32;
constexpr int WM = TW_WM;  // what a warp makes
constexpr int WN = TW_WN;
constexpr int STAGES = TW_STAGES;
constexpr int BAND = 8;  // rows of tiles that are made column by column
constexpr int STEPS = BK / 16;
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int A_ROWS = THREADS / (BK / 8);  // that all threads copy at a time
constexpr int B_ROWS = THREADS / (BN / 8);
static_assert(A_ROWS % 8 == 0 && B_ROWS % 8 == 0, "the XOR is the same in all rows that a thread copies");
constexpr int PIECES = WN / 8;  // of a row of a warp's part
static_assert(STAGES * BK * (BM + BN) >= BM * BN, "the result of a block fits in its ring");
static_assert(STEPS % 2 == 0, "every tile begins with the same set of registers");

extern "C" __global__ void __launch_bounds__(THREADS)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    extern __shared__ __align__(128) unsigned char ring[];
    auto& a_ring = *reinterpret_cast<TW_T(*)[STAGES][BM][BK]>(ring);
    auto& b_ring = *reinterpret_cast<TW_T(*)[STAGES][BK][BN]>(ring + sizeof(a_ring));
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int a_row = tid / (BK / 8);
    const int a_k = tid % (BK / 8) * 8;
    const int b_k = tid / (BN / 8);
    const int b_column = tid % (BN / 8) * 8;
    const int a_place = (a_k / 8 ^ a_row / 2 % 4) * 8;
    const int b_place = (b_column / 8 ^ b_k % 8) * 8;
    const int number = blockIdx.y * gridDim.x + blockIdx.x;
    const int band = number / (BAND * gridDim.x);
    const int inside = number - band * BAND * gridDim.x;
    const int height = min((int)gridDim.y - band * BAND, BAND);  // the last one may have fewer
    const int first_row = (band * BAND + inside % height) * BM;
    const int first_column = inside / height * BN;
    a += (long long)first_row * ld_a;
    b += first_column;

    auto copy_tile = [&](int k0, int stage) {
        #pragma unroll
        for (int i = 0; i < BM; i += A_ROWS) {
            copy_piece(&a_ring[stage][a_row + i][a_place], &a[(a_row + i) * ld_a + a_k],
                       first_row + a_row + i < M && k0 + a_k < K);
        }
        #pragma unroll
        for (int i = 0; i < BK; i += B_ROWS) {
            copy_piece(&b_ring[stage][b_k + i][b_place], &b[(b_k + i) * ld_b + b_column],
                       k0 + b_k + i < K && first_column + b_column < N);
        }
        commit_copies();
        a += BK;
        b += (long long)BK * ld_b;
    };
    // Where a lane begins to read. The XOR is the same 16 rows further: one place does for all of a warp's rows.
    int a_lane[STEPS];
    int b_lane[WN / 16];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        a_lane[step] = (warp_row + lane % 16) * BK + ((step * 2 + lane / 16) ^ lane / 2 % 4) * 8;
    }
    #pragma unroll
    for (int j = 0; j < WN / 16; ++j) {
        b_lane[j] = lane % 16 * BN + ((warp_column / 8 + j * 2 + lane / 16) ^ lane % 8) * 8;
    }
    unsigned a_part[2][WM / 16][4];
    unsigned b_part[2][WN / 16][4];
    auto load_parts = [&](int stage, int step, int set) {
        const TW_T* a_tile = &a_ring[stage][0][0];
        const TW_T* b_tile = &b_ring[stage][step * 16][0];
        #pragma unroll
        for (int i = 0; i < WM / 16; ++i) load_matrices(a_part[set][i], a_tile + a_lane[step] + i * 16 * BK);
        #pragma unroll
        for (int j = 0; j < WN / 16; ++j) load_turned_matrices(b_part[set][j], b_tile + b_lane[j]);
    };

    unsigned sums[WM / 16][WN / 8][2] = {};  // two neighbours each: of row l / 4, and of row l / 4 + 8
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) copy_tile(stage * BK, stage);
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    load_parts(0, 0, 0);
    int read_stage = 0;
    int write_stage = STAGES - 1;
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                wait_for_copies<STAGES - 2>();  // the next tile has landed
                __syncthreads();  // for every thread; and all of this tile is in registers
                write_stage = read_stage;
                read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
            }
            load_parts(read_stage, (step + 1) % STEPS, (step + 1) % 2);
            // Since the barrier of the tile before nobody reads the stage that this tile's copies go to.
            if (step == 0) copy_tile(k0 + (STAGES - 1) * BK, write_stage);
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                #pragma unroll
                for (int j = 0; j < WN / 8; ++j) {
                    const unsigned(&b_words)[4] = b_part[step % 2][j / 2];
                    multiply_add_halves(sums[i][j], a_part[step % 2][i], b_words[j % 2 * 2], b_words[j % 2 * 2 + 1]);
                }
            }
        }
    }
    wait_for_copies<0>();
    __syncthreads();  // nobody reads the ring any more, and no copy comes

    auto place_of = [](int row, int piece) { return row * WN + (piece ^ row / (8 / PIECES) % PIECES) * 8; };
    TW_T* part = reinterpret_cast<TW_T*>(ring) + warp * WM * WN;
    #pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < PIECES; ++j) {
            const int row = i * 16 + lane / 4;
            *reinterpret_cast<unsigned*>(part + place_of(row, j) + lane % 4 * 2) = sums[i][j][0];
            *reinterpret_cast<unsigned*>(part + place_of(row + 8, j) + lane % 4 * 2) = sums[i][j][1];
        }
    }
    __syncwarp();
    const int piece = lane % PIECES;
    const int column = first_column + warp_column + piece * 8;
    #pragma unroll
    for (int i = lane / PIECES; i < WM; i += 32 / PIECES) {
        const int row = first_row + warp_row + i;
        if (row < M && column < N) {
            *reinterpret_cast<uint4*>(&c[(long long)row * N + column])
                = *reinterpret_cast<const uint4*>(part + place_of(i, piece));
        }
    }
}
