// Welford's recurrence finds the mean and the squares around it in one pass: each element moves the mean, and the
// squares by what that makes. Two readings of the row instead of three. What threads found is merged by Chan's formula.
#include "elements.cuh"
#include "warp.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

struct Moments {
    float count, mean, squares;  // squares: the sum of (x - mean)**2
};

__device__ __forceinline__ Moments merged(const Moments& a, const Moments& b) {
    const float count = a.count + b.count;
    if (count == 0.0f) return a;
    const float apart = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share};
}

__device__ __forceinline__ Moments merged_in_warp(Moments moments) {
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        moments = merged(moments, {__shfl_xor_sync(ALL_LANES, moments.count, distance),
                                   __shfl_xor_sync(ALL_LANES, moments.mean, distance),
                                   __shfl_xor_sync(ALL_LANES, moments.squares, distance)});
    }
    return moments;
}

extern "C" __global__ void __launch_bounds__(THREADS)
layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, const TW_T* __restrict__ bias,
          TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    __shared__ Moments of_warps[WARPS];
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    Moments moments = {0.0f, 0.0f, 0.0f};
    for (int column = threadIdx.x; column < C; column += THREADS) {
        const float value = to_float(x[column]);
        const float apart = value - moments.mean;
        moments.count += 1.0f;
        moments.mean += apart / moments.count;
        moments.squares += apart * (value - moments.mean);
    }
    moments = merged_in_warp(moments);
    const int lane = threadIdx.x % 32;
    if (lane == 0) of_warps[threadIdx.x / 32] = moments;
    __syncthreads();
    moments = merged_in_warp(lane < WARPS ? of_warps[lane] : Moments{0.0f, 0.0f, 0.0f});
    // The two lanes of a pair merge the other way round, and may differ in the last bit: one lane speaks for all.
    const float mean = __shfl_sync(ALL_LANES, moments.mean, 0);
    const float scale = rsqrtf(__shfl_sync(ALL_LANES, moments.squares, 0) / C + epsilon);
    for (int column = threadIdx.x; column < C; column += THREADS) {
        const float value = (to_float(x[column]) - mean) * scale;
        from_float(y[column], value * to_float(weight[column]) + to_float(bias[column]));
    }
}
