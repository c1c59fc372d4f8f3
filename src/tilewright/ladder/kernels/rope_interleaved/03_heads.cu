// A thread turns the same pack of HEADS heads of a token: it reads their cosines and sines once, and has the packs of
// all of them under way together.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "dependent.cuh"
#include "divide.cuh"
#include "elements.cuh"
#include "round.cuh"
#include "streams.cuh"

#ifndef HEADS
#define HEADS 4
#endif
constexpr int THREADS = 128;
constexpr int PAIRS = 8 / TW_T_BYTES;  // of a pack

__device__ __forceinline__ void turn(float& a, float& b, float cosine, float sine) {
    const float turned = a * cosine - b * sine;
    b = b * cosine + a * sine;
    a = turned;
}

__device__ __forceinline__ void turn_packs(const TW_T* x, const float* cosines, const float* sines, TW_T* y, int heads,
                                           int D) {
    Pack packs[HEADS];
    #pragma unroll
    for (int h = 0; h < HEADS; ++h)
        if (h < heads) packs[h] = load_pack_once(x + h * D);
    float cosine[PAIRS], sine[PAIRS];
    #pragma unroll
    for (int j = 0; j < PAIRS; j += 2) {
        *reinterpret_cast<float2*>(cosine + j) = *reinterpret_cast<const float2*>(cosines + j);
        *reinterpret_cast<float2*>(sine + j) = *reinterpret_cast<const float2*>(sines + j);
    }
    #pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        if (h < heads) {
            float values[TW_PACK];
            #pragma unroll
            for (int j = 0; j < PAIRS; ++j) {
                values[2 * j] = to_float(packs[h].at[2 * j]);
                values[2 * j + 1] = to_float(packs[h].at[2 * j + 1]);
                turn(values[2 * j], values[2 * j + 1], cosine[j], sine[j]);
            }
            store_pack_once(y + h * D, rounded(values));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
rope(const TW_T* __restrict__ x, const float* __restrict__ cosines, const float* __restrict__ sines,
     TW_T* __restrict__ y, int tokens, int H, int D, long long ld_x) {
    wait_for_previous_grid();
    const int pairs = D / 2;  // of a head
    const bool packed = D % TW_PACK == 0 && ld_x % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y) &&
                        is_pack_aligned(cosines) && is_pack_aligned(sines);
    const int step = packed ? PAIRS : 1, steps = pairs / step;  // pairs of a thread, threads of a head
    const int groups = (H + HEADS - 1) / HEADS;                 // of heads
    // As many threads as packs; where elements go one by one, each thread comes round again.
    const long long all = (long long)tokens * groups * steps;
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < all; at += (long long)gridDim.x * THREADS) {
        const auto [token, rest] = divide(at, groups * steps);
        const int head = rest / steps * HEADS, i = rest % steps * step;
        const int heads = min(HEADS, H - head);
        const TW_T* from = x + token * ld_x + head * D + 2 * i;
        TW_T* to = y + (token * H + head) * D + 2 * i;
        const float *cosine_at = cosines + token * pairs + i, *sine_at = sines + token * pairs + i;
        if (packed) {
            turn_packs(from, cosine_at, sine_at, to, heads, D);
        } else {
            for (int h = 0; h < heads; ++h) {
                float a = to_float(from[h * D]), b = to_float(from[h * D + 1]);
                turn(a, b, *cosine_at, *sine_at);
                from_float(to[h * D], a);
                from_float(to[h * D + 1], b);
            }
        }
    }
}
