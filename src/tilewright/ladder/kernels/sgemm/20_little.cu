// Small matrices: what they take is the time of a few accesses, one behind the other, so there should be few of those.
// Small tiles make many blocks. A thread asks for all that it brings of a stretch of K before it puts any of it down, and
// the next stretch is on its way while one is computed. The warps of a block share the stretch, not the tile: each adds
// up an eighth of the terms for all of it, and in the end their sums are added in the order of the warps.
#include "dependent.cuh"

constexpr int BM = 32;
constexpr int BN = 32;
constexpr int BK = 64;
constexpr int WARPS = 8;
constexpr int THREADS = WARPS * 32;
constexpr int TM = 8;  // of a lane: every fourth row
constexpr int TN = 4;
constexpr int WK = BK / WARPS;    // terms of a warp
constexpr int A_PITCH = BK + 4;   // rows four apart begin at other banks
constexpr int A_ROWS = THREADS / BK;
constexpr int B_ROWS = THREADS / BN;
constexpr int A_LOADS = BM / A_ROWS;
constexpr int B_LOADS = BK / B_ROWS;

extern "C" __global__ void __launch_bounds__(THREADS)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    // A stretch of both, and behind them the warps' sums of the tile in their place.
    __shared__ __align__(16) float shared[WARPS * BM * BN];
    static_assert(BM * A_PITCH + BK * BN <= WARPS * BM * BN, "there is room for both");
    float* const a_tile = shared;                 // [row][k]
    float* const b_tile = shared + BM * A_PITCH;  // [k][column]
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int a_row = tid / BK;
    const int a_k = tid % BK;
    const int b_k = tid / BN;
    const int b_column = tid % BN;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    a += (long long)(first_row + a_row) * ld_a + a_k;
    b += (long long)b_k * ld_b + first_column + b_column;
    wait_for_previous_grid();

    float a_next[A_LOADS];
    float b_next[B_LOADS];
    auto ask = [&](int k0) {
        #pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            const bool is_there = first_row + a_row + i * A_ROWS < M && k0 + a_k < K;
            a_next[i] = is_there ? a[(long long)(i * A_ROWS) * ld_a + k0] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            const bool is_there = first_column + b_column < N && k0 + b_k + i * B_ROWS < K;
            b_next[i] = is_there ? b[(long long)(k0 + i * B_ROWS) * ld_b] : 0.0f;
        }
    };

    const int patch_row = lane / 8;
    const int patch_column = lane % 8 * TN;
    float sums[TM][TN] = {};
    ask(0);
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int i = 0; i < A_LOADS; ++i) a_tile[(a_row + i * A_ROWS) * A_PITCH + a_k] = a_next[i];
        #pragma unroll
        for (int i = 0; i < B_LOADS; ++i) b_tile[(b_k + i * B_ROWS) * BN + b_column] = b_next[i];
        __syncthreads();
        if (k0 + BK < K) ask(k0 + BK);
        if (k0 + warp * WK < K) {
            #pragma unroll
            for (int k = 0; k < WK; k += 4) {
                float4 a_part[TM];
                #pragma unroll
                for (int i = 0; i < TM; ++i)
                    a_part[i] =
                        *reinterpret_cast<const float4*>(&a_tile[(patch_row + i * 4) * A_PITCH + warp * WK + k]);
                #pragma unroll
                for (int step = 0; step < 4; ++step) {
                    const float4 b_part =
                        *reinterpret_cast<const float4*>(&b_tile[(warp * WK + k + step) * BN + patch_column]);
                    #pragma unroll
                    for (int i = 0; i < TM; ++i) {
                        const float a_value = step == 0   ? a_part[i].x
                                              : step == 1 ? a_part[i].y
                                              : step == 2 ? a_part[i].z
                                                          : a_part[i].w;
                        sums[i][0] = fmaf(a_value, b_part.x, sums[i][0]);
                        sums[i][1] = fmaf(a_value, b_part.y, sums[i][1]);
                        sums[i][2] = fmaf(a_value, b_part.z, sums[i][2]);
                        sums[i][3] = fmaf(a_value, b_part.w, sums[i][3]);
                    }
                }
            }
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < TM; ++i)
        *reinterpret_cast<float4*>(&shared[warp * BM * BN + (patch_row + i * 4) * BN + patch_column]) =
            make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < BM; i += B_ROWS) {
        const int row = first_row + b_k + i;
        const int column = first_column + b_column;
        float sum = 0.0f;
        #pragma unroll
        for (int part = 0; part < WARPS; ++part) sum += shared[part * BM * BN + (b_k + i) * BN + b_column];
        if (row < M && column < N) c[(long long)row * N + column] = sum;
    }
}
