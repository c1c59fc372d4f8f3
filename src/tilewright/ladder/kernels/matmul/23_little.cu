// Little products, of any strides: what they take is the time of a few accesses, one behind the other, so there should be few
// of those. Tiles are as small as an instruction's, which makes many blocks, and the warps of a block share K, 16 at a time.
// No warp wants what another has read: operands go straight to the registers of the one that multiplies them, all that a warp
// takes of 256 k at once, and c and the biases with them. Sums meet in shared memory, and are added in the order of the warps.
#define TW_ANYWHERE 1
#include "dependent.cuh"
#include "mma.cuh"

#ifndef TW_A_ALONG_M
#define TW_A_ALONG_M 0  // neither matters here: an access is one element
#define TW_B_ALONG_K 0
#define TW_BIAS 0
#define TW_C 0
#define TW_ACTIVATION 0
#endif
#include "epilogue.cuh"

constexpr int BM = 16;
constexpr int BN = 16;
constexpr int WARPS = 8;
constexpr int THREADS = WARPS * 32;
constexpr int STEPS = 2;  // of 16 k, that a warp asks for before it multiplies
constexpr int BK = WARPS * 16 * STEPS;

// A lane's four neighbours of k, of a row of a or a column of b, of which so many are there: which of an instruction's k they
// are is nobody's matter as long as it is the same of both.
struct Four {
    unsigned at[2];

    __device__ __forceinline__ void load(const TW_T* from, long long step, int left) {
        const unsigned short* bits = reinterpret_cast<const unsigned short*>(from);
        unsigned value[4];
        #pragma unroll
        for (int j = 0; j < 4; ++j) value[j] = j < left ? bits[j * step] : 0u;
        at[0] = value[0] | value[1] << 16;
        at[1] = value[2] | value[3] << 16;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
matmul(const TW_T* __restrict__ a, const TW_T* __restrict__ b, const TW_T* __restrict__ bias,
       const TW_T* __restrict__ c, TW_T* __restrict__ y, int B, int M, int N, int K, long long batch_a, long long ld_a,
       long long step_a, long long batch_b, long long ld_b, long long step_b, long long batch_c, long long ld_c,
       long long step_c, int activation, float alpha, float beta) {
    __shared__ float4 left[WARPS][BN / 8][32];  // sums, as lanes have them
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.y * BM + lane / 4;  // and 8 further on
    const int column = blockIdx.x * BN + lane / 4;
    const long long batch = blockIdx.z;
    int k = warp * 16 + lane % 4 * 4;
    const TW_T* of_a = a + batch * batch_a + row * ld_a + k * step_a;
    const TW_T* of_b = b + batch * batch_b + column * step_b + k * ld_b;
    const Added added = {c + batch * batch_c, ld_c, step_c};
    const int to_column = blockIdx.x * BN + warp * 8 + lane % 4 * 2;  // what it finishes, if it is of the first two warps
    y += batch * M * N;
    wait_for_previous_grid();
    let_next_grid_come();

    unsigned biases = 0;
    unsigned terms[2] = {};
    if (warp < BN / 8) {
        if (TW_BIAS) biases = two_of<false>(bias + to_column, 1, N - to_column);
        terms[0] = added.at(row, to_column, M, N);
        terms[1] = added.at(row + 8, to_column, M, N);
    }
    float sums[2][4] = {};
    for (; k - lane % 4 * 4 < K; k += BK) {
        Four a_part[STEPS][2];
        Four b_part[STEPS][2];
        #pragma unroll
        for (int s = 0; s < STEPS; ++s)
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int there = K - k - s * WARPS * 16;
                const long long on = s * WARPS * 16;
                a_part[s][i].load(of_a + i * 8 * ld_a + on * step_a, step_a, row + i * 8 < M ? there : 0);
                b_part[s][i].load(of_b + i * 8 * step_b + on * ld_b, ld_b, column + i * 8 < N ? there : 0);
            }
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const unsigned rows[4] = {a_part[s][0].at[0], a_part[s][1].at[0], a_part[s][0].at[1], a_part[s][1].at[1]};
            #pragma unroll
            for (int i = 0; i < 2; ++i) multiply_add(sums[i], rows, b_part[s][i].at[0], b_part[s][i].at[1]);
        }
        of_a += BK * step_a;
        of_b += BK * ld_b;
    }

    #pragma unroll
    for (int i = 0; i < 2; ++i) left[warp][i][lane] = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
    __syncthreads();
    if (warp >= BN / 8) return;
    float sum[4] = {};
    #pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        const float4 more = left[w][warp][lane];
        sum[0] += more.x;
        sum[1] += more.y;
        sum[2] += more.z;
        sum[3] += more.w;
    }
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        float two[2];
        finish_two(two, sum + half * 2, alpha, beta, terms[half], biases);
        store_inside(y, row + half * 8, to_column, M, N, two[0], two[1]);
    }
}
