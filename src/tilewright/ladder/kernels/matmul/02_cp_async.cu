// Where an operand is packed along one of its dimensions, 16 bytes go at a time from global to shared memory, past the
// registers, and STAGES - 1 tiles are on their way while one is multiplied. A tile keeps the order in which it lay in
// memory, rows of k or rows across it; ldmatrix turns the latter on their way to the registers. Pieces of 16 bytes lie
// where an XOR with their row puts them, so that it meets no bank twice.
#include "mma.cuh"
#include "pieces.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 64
#define TW_STAGES 4
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
constexpr int STAGES = TW_STAGES;
constexpr int WM = BM / 2;  // what a warp makes
constexpr int WN = BN / 2;
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int A_LENGTH = BM * BK;  // elements
constexpr int B_LENGTH = BN * BK;
constexpr int SHARED_BYTES = STAGES * (A_LENGTH + B_LENGTH) * 2;
static_assert(BM % 64 == 0 && BN % 64 == 0, "rows of a tile are eight pieces at the least, where they are not of k");

// A tile of LINES (rows of a, columns of b) by BK: PIECES pieces a row.
template <int LINES, bool ALONG_K>
struct Tile {
    static constexpr int PIECES = (ALONG_K ? BK : LINES) / 8;
    static constexpr int ROWS = ALONG_K ? LINES : BK;

    // Where piece `piece` of a row begins. Rows of k are half as long as all banks: two of them are a line.
    __device__ static int place(int row, int piece) {
        return (row * PIECES + (piece ^ (ALONG_K ? row / 2 % 4 : row % 8))) * 8;
    }

    // From the tile's first element on, of which so many lines, and so many k, are there; zeros in place of the others.
    __device__ static void copy(TW_T* to, const TW_T* from, long long pitch, int lines, int ks) {
        const int rows = ALONG_K ? lines : ks;
        const int elements = ALONG_K ? ks : lines;
        #pragma unroll
        for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
            const int row = i / PIECES;
            const int piece = i % PIECES;
            const int count = row < rows ? min(max(elements - piece * 8, 0), 8) : 0;
            const TW_T* source = count > 0 ? from + row * pitch + piece * 8 : from;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
                             static_cast<unsigned>(__cvta_generic_to_shared(to + place(row, piece)))),
                         "l"(source), "r"(count * 2)
                         : "memory");
        }
    }

    // Sixteen lines from `line` on, of 16 k: as a's operand, and as two of b's, of which the registers 0 and 2, 1 and 3
    // are one each.
    __device__ static void load(unsigned (&part)[4], const TW_T* tile, int line, int k) {
        const int lane = threadIdx.x % 32;
        if constexpr (ALONG_K) {
            load_matrices(part, tile + place(line + lane % 16, k / 8 + lane / 16));
        } else {
            load_turned_matrices(part, tile + place(k + lane % 8 + lane / 16 * 8, line / 8 + lane / 8 % 2));
        }
    }
};
using TileA = Tile<BM, !TW_A_ALONG_M>;
using TileB = Tile<BN, TW_B_ALONG_K>;

extern "C" __global__ void __launch_bounds__(THREADS)
matmul(const TW_T* __restrict__ a, const TW_T* __restrict__ b, const TW_T* __restrict__ bias,
       const TW_T* __restrict__ c, TW_T* __restrict__ y, int B, int M, int N, int K, long long batch_a, long long ld_a,
       long long step_a, long long batch_b, long long ld_b, long long step_b, long long batch_c, long long ld_c,
       long long step_c, int activation, float alpha, float beta) {
    extern __shared__ __align__(128) unsigned char shared[];
    TW_T* a_ring = reinterpret_cast<TW_T*>(shared);
    TW_T* b_ring = a_ring + STAGES * A_LENGTH;
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

    auto copy_tile = [&](int k, int stage) {
        TileA::copy(a_ring + stage * A_LENGTH, a + k * step_a, TW_A_ALONG_M ? step_a : ld_a, M - first_row, K - k);
        TileB::copy(b_ring + stage * B_LENGTH, b + k * ld_b, TW_B_ALONG_K ? step_b : ld_b, N - first_column, K - k);
        commit_copies();
    };

    float sums[WM / 16][WN / 8][4] = {};
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        copy_tile(stage * BK, stage);
    }
    int read_stage = 0;
    int write_stage = STAGES - 1;
    for (int k0 = 0; k0 < K; k0 += BK) {
        wait_for_copies<STAGES - 2>();  // this tile has landed
        __syncthreads();                // for every thread; and nobody still reads the stage that is filled next
        copy_tile(k0 + (STAGES - 1) * BK, write_stage);

        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            unsigned a_part[WM / 16][4];
            unsigned b_part[WN / 16][4];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) TileA::load(a_part[i], a_ring + read_stage * A_LENGTH, warp_row + i * 16, k);
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j)
                TileB::load(b_part[j], b_ring + read_stage * B_LENGTH, warp_column + j * 16, k);
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
