// A thread turns a pack of 16 bytes: two pairs of floats, or four of 16-bit elements. A quarter or an eighth of the
// requests. Heads that do not lie in packs go pair by pair.
#include "divide.cuh"
#include "elements.cuh"
#include "round.cuh"
#include "streams.cuh"

constexpr int THREADS = 256;
constexpr int PAIRS = 8 / TW_T_BYTES;  // of a pack

__device__ __forceinline__ void turn(float& a, float& b, float cosine, float sine) {
    const float turned = a * cosine - b * sine;
    b = b * cosine + a * sine;
    a = turned;
}

extern "C" __global__ void __launch_bounds__(THREADS)
rope(const TW_T* __restrict__ x, const float* __restrict__ cosines, const float* __restrict__ sines,
     TW_T* __restrict__ y, int tokens, int H, int D, long long ld_x) {
    const int pairs = D / 2;  // of a head
    const bool packed = D % TW_PACK == 0 && ld_x % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y) &&
                        is_pack_aligned(cosines) && is_pack_aligned(sines);
    const int step = packed ? PAIRS : 1, steps = pairs / step;  // pairs of a thread, threads of a head
    // As many threads as packs; where elements go one by one, each thread comes round again.
    const long long all = (long long)tokens * H * steps;
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < all; at += (long long)gridDim.x * THREADS) {
        const auto [token, rest] = divide(at, H * steps);
        const int head = rest / steps, i = rest % steps * step;
        const TW_T* from = x + token * ld_x + head * D + 2 * i;
        TW_T* to = y + (token * H + head) * D + 2 * i;
        const float *cosine_at = cosines + token * pairs + i, *sine_at = sines + token * pairs + i;
        if (packed) {
            const Pack pack = load_pack_once(from);
            float values[TW_PACK];
            #pragma unroll
            for (int j = 0; j < TW_PACK; ++j) values[j] = to_float(pack.at[j]);
            #pragma unroll
            for (int j = 0; j < PAIRS; j += 2) {
                const float2 cosine = *reinterpret_cast<const float2*>(cosine_at + j);
                const float2 sine = *reinterpret_cast<const float2*>(sine_at + j);
                turn(values[2 * j], values[2 * j + 1], cosine.x, sine.x);
                turn(values[2 * j + 2], values[2 * j + 3], cosine.y, sine.y);
            }
            store_pack_once(to, rounded(values));
        } else {
            float a = to_float(from[0]), b = to_float(from[1]);
            turn(a, b, *cosine_at, *sine_at);
            from_float(to[0], a);
            from_float(to[1], b);
        }
    }
}
