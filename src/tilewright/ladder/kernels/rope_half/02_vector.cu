// A thread turns a pack of 16 bytes of a head's first half with the pack of its second half: half the requests of
// floats, a quarter or an eighth of those of the elements. Heads that do not lie in packs go pair by pair.
#include "divide.cuh"
#include "elements.cuh"
#include "round.cuh"
#include "streams.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ void turn(float& a, float& b, float cosine, float sine) {
    const float turned = a * cosine - b * sine;
    b = b * cosine + a * sine;
    a = turned;
}

extern "C" __global__ void __launch_bounds__(THREADS)
rope(const TW_T* __restrict__ x, const float* __restrict__ cosines, const float* __restrict__ sines,
     TW_T* __restrict__ y, int tokens, int H, int D, long long ld_x) {
    const int pairs = D / 2;  // of a head
    const bool packed = pairs % TW_PACK == 0 && ld_x % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y) &&
                        is_pack_aligned(cosines) && is_pack_aligned(sines);
    const int step = packed ? TW_PACK : 1, steps = pairs / step;  // pairs of a thread, threads of a head
    // As many threads as packs; where elements go one by one, each thread comes round again.
    const long long all = (long long)tokens * H * steps;
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < all; at += (long long)gridDim.x * THREADS) {
        const auto [token, rest] = divide(at, H * steps);
        const int head = rest / steps, i = rest % steps * step;
        const TW_T* from = x + token * ld_x + head * D + i;
        TW_T* to = y + (token * H + head) * D + i;
        const float *cosine_at = cosines + token * pairs + i, *sine_at = sines + token * pairs + i;
        if (packed) {
            const Pack first = load_pack_once(from), second = load_pack_once(from + pairs);
            float a[TW_PACK], b[TW_PACK];
            #pragma unroll
            for (int j = 0; j < TW_PACK; j += 4) {
                const float4 cosine = *reinterpret_cast<const float4*>(cosine_at + j);
                const float4 sine = *reinterpret_cast<const float4*>(sine_at + j);
                #pragma unroll
                for (int k = j; k < j + 4; ++k) {
                    a[k] = to_float(first.at[k]);
                    b[k] = to_float(second.at[k]);
                }
                turn(a[j], b[j], cosine.x, sine.x);
                turn(a[j + 1], b[j + 1], cosine.y, sine.y);
                turn(a[j + 2], b[j + 2], cosine.z, sine.z);
                turn(a[j + 3], b[j + 3], cosine.w, sine.w);
            }
            store_pack_once(to, rounded(a));
            store_pack_once(to + pairs, rounded(b));
        } else {
            float a = to_float(from[0]), b = to_float(from[pairs]);
            turn(a, b, *cosine_at, *sine_at);
            from_float(to[0], a);
            from_float(to[pairs], b);
        }
    }
}
