// What becomes of the sums of a product: y = activation(alpha * sum + beta * c + bias), in float, rounded once. Which of
// these there are is known when a rung is compiled: what is not there costs nothing.
#pragma once

#ifndef TW_ANYWHERE
#define TW_ANYWHERE 0  // 1: arrays begin at any element, so pairs may lie at odd ones
#endif

#include "activations.cuh"
#include "words.cuh"

#ifndef TW_BIAS
#define TW_BIAS 0        // 1: there is one, an element for each column
#define TW_C 0           // 1: in rows whose pairs begin at multiples of 4 bytes; 2: with any strides
#define TW_ACTIVATION 0  // of those below; kernels get it as an argument, too, which none of them reads
#endif
constexpr int NO_ACTIVATION = 0;
constexpr int RELU = 1;
constexpr int GELU = 2;
constexpr int GELU_TANH = 3;
constexpr int SILU = 4;

__device__ __forceinline__ float activated(float x) {
    if constexpr (TW_ACTIVATION == RELU) return relu(x);
    if constexpr (TW_ACTIVATION == GELU) return gelu(x);
    // 0.5 x (1 + tanh(u)) is x sigmoid(2 u), with u = sqrt(2 / pi) (x + 0.044715 x**3).
    if constexpr (TW_ACTIVATION == GELU_TANH) return x * sigmoid(1.5957691f * (x + 0.044715f * x * x * x));
    if constexpr (TW_ACTIVATION == SILU) return x * sigmoid(x);
    return x;
}

__device__ __forceinline__ float finished(float sum, float alpha, float beta, float c, float bias) {
    float x = alpha * sum;
    if constexpr (TW_C != 0) x += beta * c;
    if constexpr (TW_BIAS != 0) x += bias;
    return activated(x);
}

// Two neighbours of a row as one word; zeros for those of them that are not `left`. The load stays where it is written: the
// compiler, which knows that nobody writes there, would bring all of a tile's at once, and have no registers for them.
template <bool IS_PAIR>
__device__ __forceinline__ unsigned two_of(const TW_T* from, long long step, int left) {
    if (left <= 0) return 0;
    if (IS_PAIR && (!TW_ANYWHERE || reinterpret_cast<size_t>(from) % 4 == 0)) {
        unsigned word;
        asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(word) : "l"(from));
        return word;
    }
    const unsigned short* bits = reinterpret_cast<const unsigned short*>(from);
    return bits[0] | (left > 1 ? (unsigned)bits[step] << 16 : 0u);
}

// c, as far as a rung reads it: its first element of the matrix, and its strides in elements.
struct Added {
    const TW_T* c;
    long long ld;
    long long step;

    // Of (row, column) and the next column.
    __device__ __forceinline__ unsigned at(int row, int column, int M, int N) const {
        if constexpr (TW_C == 0) return 0;
        const long long each = TW_C == 1 ? 1 : step;  // addresses of pairs then differ by what an instruction adds itself
        return two_of<TW_C == 1>(c + row * ld + column * each, each, row < M ? N - column : 0);
    }
};

// Two neighbours of a row, finished: to[0] and to[1].
__device__ __forceinline__ void finish_two(float* to, const float* sums, float alpha, float beta, unsigned c,
                                           unsigned bias) {
    float more[2];
    float biases[2];
    unpack_word(more, c, TW_T());
    unpack_word(biases, bias, TW_T());
    to[0] = finished(sums[0], alpha, beta, more[0], biases[0]);
    to[1] = finished(sums[1], alpha, beta, more[1], biases[1]);
}
