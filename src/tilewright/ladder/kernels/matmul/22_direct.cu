// A few rows times weights that lie as layers have them, a row of k for each output: the product is the reading of b, each
// element of which is used once. So b goes from memory to the registers of the warp that multiplies it, and is nowhere else.
// The tensor cores make the product the other way round, 16 of its columns (rows of the weights) at a time: 8 rows of a are
// enough for an instruction. Which k an instruction's operands are of is nobody's matter as long as it is the same of both:
// a lane takes eight neighbours of k, of either operand, in one access, and they are its part of two instructions. Warps
// share the K of a block, and the blocks of a cluster that of a product; sums meet once, and are finished there.
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
#ifndef TW_A_ALONG_M
#define TW_A_ALONG_M 0  // neither: both operands lie along k
#define TW_B_ALONG_K 1
#define TW_BIAS 0
#define TW_C 0
#define TW_ACTIVATION 0
#endif
#include "epilogue.cuh"

constexpr int GROUPS = TW_GROUPS;  // of 8 rows of a
constexpr int SIDE = TW_SIDE;      // warps, one beside the other
constexpr int DEEP = TW_DEEP;      // warps that share the block's k, by turns
constexpr int PARTS = TW_PARTS;    // of K: the blocks of a cluster
constexpr int AHEAD = TW_AHEAD;    // elements of each of b's rows that L2 fetches while the grid before still runs
constexpr int RESIDENT = TW_RESIDENT;  // blocks for which a multiprocessor's registers have to suffice
constexpr bool ONCE = TW_ONCE;         // b is more than L2 holds: its lines go first
constexpr int BM = 8 * GROUPS;
constexpr int WIDTH = 64;  // columns of a warp, so that a's rows are read once for as many
constexpr int BN = SIDE * WIDTH;
constexpr int BK = 32;  // of a warp's step: 64 bytes of a row, and DEEP warps are neighbours
constexpr int THREADS = 32 * SIDE * DEEP;
constexpr int PITCH = BN + 4;  // floats: sums of rows that are stored together lie in different banks
constexpr int TILE = BM * PITCH;
constexpr int FOURS = BN / 4;  // of a row's sums
constexpr int SHARED_BYTES = DEEP * TILE * 4;
static_assert(BN <= THREADS && THREADS % FOURS == 0, "a thread has one row of b to fetch, and four columns to finish");
static_assert(!TW_A_ALONG_M && TW_B_ALONG_K, "a lane's eight neighbours are of k");

// What a lane multiplies in one step: eight elements of each of eight rows of b, and of a row of a for each group.
struct Step {
    Words b[8];
    Words a[GROUPS];

    // In place of columns that are not there the first one is read again: nobody stores what comes of them.
    __device__ __forceinline__ void load(const TW_T* of_a, const TW_T* of_b, long long ld_a, long long step_b, int rows,
                                         int columns, bool has_k) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) b[j] = Words{};
        #pragma unroll
        for (int i = 0; i < GROUPS; ++i) a[i] = Words{};
        if (!has_k) return;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            const TW_T* from = of_b + (j * 8 < columns ? j * 8 * step_b : 0);
            b[j] = ONCE ? load_words_gone(from) : load_words_once(from);
        }
        #pragma unroll
        for (int i = 0; i < GROUPS; ++i)
            if (i * 8 < rows) a[i] = load_words(of_a + i * 8 * ld_a);
    }

    // Sums of 16 columns, the lane's two rows of b, times eight rows of a.
    __device__ __forceinline__ void multiply(float (&sums)[GROUPS][4][4]) const {
        #pragma unroll
        for (int half = 0; half < 4; half += 2)
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const unsigned columns[4] = {b[i * 2].at[half], b[i * 2 + 1].at[half], b[i * 2].at[half + 1],
                                             b[i * 2 + 1].at[half + 1]};
                #pragma unroll
                for (int g = 0; g < GROUPS; ++g) multiply_add(sums[g][i], columns, a[g].at[half], a[g].at[half + 1]);
            }
    }
};

extern "C" __cluster_dims__(PARTS, 1, 1) __global__ void __launch_bounds__(THREADS, RESIDENT)
matmul(const TW_T* __restrict__ a, const TW_T* __restrict__ b, const TW_T* __restrict__ bias,
       const TW_T* __restrict__ c, TW_T* __restrict__ y, int B, int M, int N, int K, long long batch_a, long long ld_a,
       long long step_a, long long batch_b, long long ld_b, long long step_b, long long batch_c, long long ld_c,
       long long step_c, int activation, float alpha, float beta) {
    extern __shared__ __align__(16) float left[];  // [DEEP][BM][PITCH]: sums of each warp
    const int part = PARTS > 1 ? cluster_rank() : 0;
    const int first_column = blockIdx.x / PARTS * BN;
    const int first_row = blockIdx.y * BM;
    const long long batch = blockIdx.z;
    const int all = (K + BK - 1) / BK;
    const int first = (int)((long long)all * part / PARTS);  // step; parts differ by one at the most
    const int end = (int)((long long)all * (part + 1) / PARTS);
    a += batch * batch_a;
    b += batch * batch_b;
    y += batch * M * N;
    if (threadIdx.x < min(BN, N - first_column) && first * BK < K && AHEAD > 0)
        fetch_to_l2(b + (first_column + threadIdx.x) * step_b + first * BK, min(AHEAD, K - first * BK) * 2);
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int side = warp % SIDE;
    const int deep = warp / SIDE;
    const int row = first_row + lane / 4;                            // of a
    const int column = first_column + side * WIDTH + lane / 4;       // the first of eight, each 8 from the one before
    const int rows = M - row;                                        // that are left
    const int columns = N - column;
    int k = (first + deep) * BK + lane % 4 * 8;
    const TW_T* of_a = a + row * ld_a + k;
    const TW_T* of_b = b + min(column, N - 1) * step_b + k;
    const int last = min(K, end * BK);
    const int to_column = first_column + threadIdx.x % FOURS * 4;  // what it finishes, in some rows
    float sums[GROUPS][4][4] = {};
    wait_for_previous_grid();
    let_next_grid_come();

    unsigned biases[2] = {};
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (TW_BIAS) biases[i] = two_of<false>(bias + to_column + i * 2, 1, N - to_column - i * 2);
        asm volatile("" : "+r"(biases[i]));  // on their way from here on, not from where they are added
    }
    Step even, odd;  // one is multiplied while the other is on its way
    even.load(of_a, of_b, ld_a, step_b, rows, columns, k < last);
    #pragma unroll 1
    for (int step = first + deep; step < end; step += 2 * DEEP) {
        k += DEEP * BK;
        odd.load(of_a + DEEP * BK, of_b + DEEP * BK, ld_a, step_b, rows, columns, k < last);
        even.multiply(sums);
        k += DEEP * BK;
        of_a += 2 * DEEP * BK;
        of_b += 2 * DEEP * BK;
        even.load(of_a, of_b, ld_a, step_b, rows, columns, k < last);
        odd.multiply(sums);
    }

    float* mine = left + deep * TILE + side * WIDTH + lane % 4 * 2 * PITCH + lane / 4;
    #pragma unroll
    for (int g = 0; g < GROUPS; ++g)
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            #pragma unroll
            for (int j = 0; j < 4; ++j)  // rows 2 t and 2 t + 1 of a, of the lane's first column and of that 8 further on
                mine[(g * 8 + j % 2) * PITCH + i * 16 + j / 2 * 8] = sums[g][i][j];
    if (PARTS > 1) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    const Added added = {c + batch * batch_c, ld_c, step_c};
    for (int r = BM * part / PARTS + threadIdx.x / FOURS; r < BM * (part + 1) / PARTS; r += THREADS / FOURS) {
        const int to_row = first_row + r;
        if (to_row >= M || to_column >= N) continue;
        const float* from = left + r * PITCH + threadIdx.x % FOURS * 4;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        #pragma unroll
        for (int p = 0; p < PARTS; ++p)
            #pragma unroll
            for (int d = 0; d < DEEP; ++d) {  // in the order of the parts: the same bits every time
                const float4* there = reinterpret_cast<const float4*>(from + d * TILE);
                const float4 more = PARTS > 1 ? load4_of_block(there, p) : *there;
                sum.x += more.x;
                sum.y += more.y;
                sum.z += more.z;
                sum.w += more.w;
            }
        const float four[4] = {sum.x, sum.y, sum.z, sum.w};
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            float two[2];
            const int at = to_column + i * 2;
            finish_two(two, four + i * 2, alpha, beta, added.at(to_row, at, M, N), biases[i]);
            store_inside(y, to_row, at, M, N, two[0], two[1]);
        }
    }
    if (PARTS > 1) {
        cluster_arrive();  // nobody leaves while others read its sums
        cluster_wait();
    }
}
