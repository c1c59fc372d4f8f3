// A product of few rows is the reading of b: each of its elements is used once or a few times, and nothing is gained where it
// lies in shared memory first. Here b goes from memory to the registers of the warp that multiplies it, a whole line of 128
// bytes a row, and the tensor cores make the product the other way round, its columns 16 at a time: 8 rows of a are enough
// for an instruction. Which k an instruction's operands are of is nobody's matter as long as it is the same of both; so a
// lane takes eight neighbours of k, of a in one access. Warps share the K of a block, and the blocks of a cluster that of a
// product; sums meet once, at the end. Blocks are small, so that the next grid's come while these work, and fetch b's first
// rows to L2 before their wait.
#include "cluster.cuh"
#include "dependent.cuh"
#include "fetch.cuh"
#include "mma.cuh"
#include "words.cuh"

#ifndef TW_GROUPS  // for the emulator; a card gets those of ladder.toml
#define TW_GROUPS 1
#define TW_SIDE 1
#define TW_DEEP 2
#define TW_PARTS 2
#define TW_AHEAD 32
#define TW_RESIDENT 1
#define TW_ONCE 1
#endif
constexpr int GROUPS = TW_GROUPS;  // of 8 rows of a
constexpr int SIDE = TW_SIDE;      // warps, one beside the other
constexpr int DEEP = TW_DEEP;      // warps that share the block's k, by turns
constexpr int PARTS = TW_PARTS;    // of K: the blocks of a cluster
constexpr int AHEAD = TW_AHEAD;    // rows of b that L2 fetches while the grid before still runs
constexpr int RESIDENT = TW_RESIDENT;  // blocks for which a multiprocessor's registers have to suffice
constexpr bool ONCE = TW_ONCE;         // b is more than L2 holds: its lines go first
constexpr int BM = 8 * GROUPS;
constexpr int WIDTH = 64;  // columns of a warp: lines of 128 bytes
constexpr int BN = SIDE * WIDTH;
constexpr int BK = 32;  // of a warp's step: each of its four lanes in a row has 8
constexpr int THREADS = 32 * SIDE * DEEP;
constexpr int FOURS = SIDE * GROUPS * 4 * 32;  // of a tile's sums, as lanes have them
constexpr int SHARED_BYTES = DEEP * FOURS * 16;
static_assert(AHEAD <= THREADS, "a thread fetches one row at the most");

// What a lane multiplies in one step: eight elements of each of eight rows of b, and of a row of a for each group.
struct Step {
    Words b[8];
    Words a[GROUPS];

    __device__ __forceinline__ void load(const TW_T* of_a, const TW_T* of_b, long long group, long long ld_b, int rows,
                                         bool has_k, bool has_columns) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) b[j] = Words{};
        #pragma unroll
        for (int i = 0; i < GROUPS; ++i) a[i] = Words{};
        if (!has_k) return;
        if (has_columns) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) b[j] = ONCE ? load_words_gone(of_b + j * ld_b) : load_words_once(of_b + j * ld_b);
        }
        #pragma unroll
        for (int i = 0; i < GROUPS; ++i)
            if (i * 8 < rows) a[i] = load_words(of_a + i * group);
    }

    // Sums of columns 2 i and 2 i + 1 of the lane's eight: each of its two rows of a, by turns.
    __device__ __forceinline__ void multiply(float (&sums)[GROUPS][4][4]) const {
        #pragma unroll
        for (int half = 0; half < 2; ++half)
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const Words* row = &b[half * 4];
                const unsigned columns[4] = {
                    __byte_perm(row[0].at[i], row[1].at[i], 0x5410), __byte_perm(row[0].at[i], row[1].at[i], 0x7632),
                    __byte_perm(row[2].at[i], row[3].at[i], 0x5410), __byte_perm(row[2].at[i], row[3].at[i], 0x7632)};
                #pragma unroll
                for (int g = 0; g < GROUPS; ++g)
                    multiply_add(sums[g][i], columns, a[g].at[half * 2], a[g].at[half * 2 + 1]);
            }
    }
};

extern "C" __cluster_dims__(PARTS, 1, 1) __global__ void __launch_bounds__(THREADS, RESIDENT)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    extern __shared__ float4 left[];  // [DEEP][FOURS]: sums of each warp
    const int part = PARTS > 1 ? cluster_rank() : 0;
    const int first_column = blockIdx.x / PARTS * BN;
    const int first_row = blockIdx.y * BM;
    const int all = (K + BK - 1) / BK;
    const int first = (int)((long long)all * part / PARTS);  // step; parts differ by one at the most
    const int end = (int)((long long)all * (part + 1) / PARTS);
    if (threadIdx.x < AHEAD) {
        const int k = first * BK + threadIdx.x;
        if (k < K) fetch_to_l2(b + (long long)k * ld_b + first_column, min(BN, N - first_column) * 2);
    }
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int side = warp % SIDE;
    const int deep = warp / SIDE;
    const int row = first_row + lane / 4;                         // of a
    const int column = first_column + side * WIDTH + lane / 4 * 8;  // the first of eight
    const int rows = M - row;                                     // that are left
    int k = (first + deep) * BK + lane % 4 * 8;
    const TW_T* of_a = a + (long long)row * ld_a + k;
    const TW_T* of_b = b + (long long)k * ld_b + column;
    const long long next_b = (long long)DEEP * BK * ld_b;
    const int last = min(K, end * BK);
    float sums[GROUPS][4][4] = {};
    wait_for_previous_grid();
    let_next_grid_come();

    Step even, odd;  // one is multiplied while the other is on its way
    even.load(of_a, of_b, 8ll * ld_a, ld_b, rows, k < last, column < N);
    #pragma unroll 1
    for (int step = first + deep; step < end; step += 2 * DEEP) {
        k += DEEP * BK;
        odd.load(of_a + DEEP * BK, of_b + next_b, 8ll * ld_a, ld_b, rows, k < last, column < N);
        even.multiply(sums);
        k += DEEP * BK;
        of_a += 2 * DEEP * BK;
        of_b += 2 * next_b;
        even.load(of_a, of_b, 8ll * ld_a, ld_b, rows, k < last, column < N);
        odd.multiply(sums);
    }

    // Of each of a lane's rows of a, its eight columns are two times four.
    #pragma unroll
    for (int g = 0; g < GROUPS; ++g)
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float* low = &sums[g][i % 2 * 2][i / 2];
            const float* high = &sums[g][i % 2 * 2 + 1][i / 2];
            left[deep * FOURS + ((side * GROUPS + g) * 4 + i) * 32 + lane] = make_float4(low[0], low[2], high[0], high[2]);
        }
    if (PARTS > 1) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    for (int i = FOURS * part / PARTS + threadIdx.x; i < FOURS * (part + 1) / PARTS; i += THREADS) {
        const int whose = i % 32;
        const int group = i / 128 % GROUPS;
        const int to_row = first_row + group * 8 + whose % 4 * 2 + i / 64 % 2;
        const int to_column = first_column + i / 128 / GROUPS * WIDTH + whose / 4 * 8 + i / 32 % 2 * 4;
        if (to_row >= M || to_column >= N) continue;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        #pragma unroll
        for (int p = 0; p < PARTS; ++p)
            #pragma unroll
            for (int d = 0; d < DEEP; ++d) {  // in the order of the parts: the same bits every time
                const float4 more = PARTS > 1 ? load4_of_block(&left[d * FOURS + i], p) : left[d * FOURS + i];
                sum.x += more.x;
                sum.y += more.y;
                sum.z += more.z;
                sum.w += more.w;
            }
        struct alignas(8) Four {
            TW_T at[4];
        } four;
        from_float(four.at[0], sum.x);
        from_float(four.at[1], sum.y);
        from_float(four.at[2], sum.z);
        from_float(four.at[3], sum.w);
        *reinterpret_cast<Four*>(c + (long long)to_row * N + to_column) = four;
    }
    if (PARTS > 1) {
        cluster_arrive();  // nobody leaves while others read its sums
        cluster_wait();
    }
}
