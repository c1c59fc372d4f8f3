// One thread turns one pair: elements i and i + D / 2 of a head, by the angle of its token. Every head of the token
// reads the same cosines and sines.
#include "divide.cuh"
#include "elements.cuh"

constexpr int THREADS = 256;

// x is [tokens, H, D], a token's heads next to one another; cosines and sines are [tokens, D / 2].
extern "C" __global__ void __launch_bounds__(THREADS)
rope(const TW_T* __restrict__ x, const float* __restrict__ cosines, const float* __restrict__ sines,
     TW_T* __restrict__ y, int tokens, int H, int D, long long ld_x) {
    const int pairs = D / 2;  // of a head
    const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (at >= (long long)tokens * H * pairs) return;
    const auto [token, rest] = divide(at, H * pairs);
    const int head = rest / pairs, i = rest % pairs;
    x += token * ld_x + head * D;
    y += (token * H + head) * D;
    const float cosine = cosines[token * pairs + i], sine = sines[token * pairs + i];
    const float a = to_float(x[i]), b = to_float(x[i + pairs]);
    from_float(y[i], a * cosine - b * sine);
    from_float(y[i + pairs], b * cosine + a * sine);
}
