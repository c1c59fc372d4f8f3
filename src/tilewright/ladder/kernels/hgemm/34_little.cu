// Little products, of rows that begin anywhere: what they take is the time of a few accesses, one behind the other, so there
// should be few of those. Tiles are as small as an instruction's, which makes many blocks, and the warps of a block share K,
// 16 at a time. No warp wants what another has read: operands go straight to the registers of the one that multiplies them,
// all that a warp takes of 256 k at once. Sums meet in shared memory, and are added in the order of the warps.
#define TW_ANYWHERE 1
#include "dependent.cuh"
#include "mma.cuh"

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
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    __shared__ float4 left[WARPS][BN / 8][32];  // sums, as lanes have them
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.y * BM + lane / 4;  // and 8 further on
    const int column = blockIdx.x * BN + lane / 4;
    int k = warp * 16 + lane % 4 * 4;
    const TW_T* of_a = a + (long long)row * ld_a + k;
    const TW_T* of_b = b + (long long)k * ld_b + column;
    wait_for_previous_grid();
    let_next_grid_come();

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
                a_part[s][i].load(of_a + i * 8ll * ld_a + on, 1, row + i * 8 < M ? there : 0);
                b_part[s][i].load(of_b + i * 8 + on * ld_b, ld_b, column + i * 8 < N ? there : 0);
            }
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const unsigned rows[4] = {a_part[s][0].at[0], a_part[s][1].at[0], a_part[s][0].at[1], a_part[s][1].at[1]};
            #pragma unroll
            for (int i = 0; i < 2; ++i) multiply_add(sums[i], rows, b_part[s][i].at[0], b_part[s][i].at[1]);
        }
        of_a += BK;
        of_b += (long long)BK * ld_b;
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
    const int to_column = blockIdx.x * BN + warp * 8 + lane % 4 * 2;
    store_inside(c, row, to_column, M, N, sum[0], sum[1]);
    store_inside(c, row + 8, to_column, M, N, sum[2], sum[3]);
}
