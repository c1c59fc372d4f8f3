// What sums of products of quantised values stand for.
#pragma once

// In float, in this order: the sum rounded to float, times the scale of its row of a, times that of its column (a row of
// the weights, so an output), plus the bias.
__device__ __forceinline__ float dequantised(int sum, float scale_a, float scale_b, float bias) {
    return (float)sum * scale_a * scale_b + bias;
}

// Two neighbours of a row. What stands beyond the last column is not stored.
struct Columns {
    float scale[2];
    float bias[2];

    __device__ __forceinline__ void load(const float* scales, const TW_T* biases, int column, int N) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const bool exists = column + i < N;
            scale[i] = exists ? scales[column + i] : 0.0f;
            bias[i] = exists ? to_float(biases[column + i]) : 0.0f;
        }
    }
    // Where both exist, and the first is an even one: one load each.
    __device__ __forceinline__ void load_pair(const float* scales, const TW_T* biases, int column, int N) {
        if (column >= N) return;
        const float2 both = *reinterpret_cast<const float2*>(scales + column);
        struct alignas(4) Pair {
            TW_T at[2];
        };
        const Pair pair = *reinterpret_cast<const Pair*>(biases + column);
        scale[0] = both.x;
        scale[1] = both.y;
        bias[0] = to_float(pair.at[0]);
        bias[1] = to_float(pair.at[1]);
    }
    __device__ __forceinline__ float of(int which, int sum, float scale_a) const {
        return dequantised(sum, scale_a, scale[which], bias[which]);
    }
};
