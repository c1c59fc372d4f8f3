// The shape of a token is known when it is built: a thread finds its heads and its packs by shifts and multiplications of
// 32 bits, for all of a token's packs are counted from its first one. Nothing is asked about alignment, and nothing loops.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "dependent.cuh"
#include "elements.cuh"
#include "round.cuh"
#include "streams.cuh"

#ifndef HEADS
#define DIM 128      // elements of a head: its halves are whole packs
#define ALL 8        // heads of a token
#define HEADS 2      // of a thread
#define THREADS 32   // of a block
#define STREAMS 1    // 1: what is read takes no place in L1
#endif
constexpr int PAIRS = DIM / 2;                            // of a head
constexpr int STEPS = PAIRS / TW_PACK;                    // packs of a half
constexpr int PACKS = (ALL + HEADS - 1) / HEADS * STEPS;  // threads of a token
constexpr int BLOCKS = (PACKS + THREADS - 1) / THREADS;   // of a token

__device__ __forceinline__ void turn(float& a, float& b, float cosine, float sine) {
    const float turned = a * cosine - b * sine;
    b = b * cosine + a * sine;
    a = turned;
}

extern "C" __global__ void __launch_bounds__(THREADS)
rope(const TW_T* __restrict__ x, const float* __restrict__ cosines, const float* __restrict__ sines,
     TW_T* __restrict__ y, int tokens, int H, int D, long long ld_x) {
    wait_for_previous_grid();
    if (D != DIM || H != ALL) __trap();
    const int token = blockIdx.x / BLOCKS, at = blockIdx.x % BLOCKS * THREADS + threadIdx.x;
    if (PACKS % THREADS != 0 && at >= PACKS) return;
    const int head = at / STEPS * HEADS, step = at % STEPS;
    x += token * ld_x + head * DIM + step * TW_PACK;
    y += (long long)token * (ALL * DIM) + head * DIM + step * TW_PACK;
    Pack first[HEADS], second[HEADS];
    #pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        if (ALL % HEADS != 0 && head + h >= ALL) break;
        first[h] = STREAMS ? load_pack_once(x + h * DIM) : load_pack(x + h * DIM);
        second[h] = STREAMS ? load_pack_once(x + h * DIM + PAIRS) : load_pack(x + h * DIM + PAIRS);
    }
    const long long pair = (long long)token * PAIRS + step * TW_PACK;
    float cosine[TW_PACK], sine[TW_PACK];
    #pragma unroll
    for (int j = 0; j < TW_PACK; j += 4) {
        *reinterpret_cast<float4*>(cosine + j) = *reinterpret_cast<const float4*>(cosines + pair + j);
        *reinterpret_cast<float4*>(sine + j) = *reinterpret_cast<const float4*>(sines + pair + j);
    }
    #pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        if (ALL % HEADS != 0 && head + h >= ALL) break;
        float a[TW_PACK], b[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            a[j] = to_float(first[h].at[j]);
            b[j] = to_float(second[h].at[j]);
            turn(a[j], b[j], cosine[j], sine[j]);
        }
        store_pack_once(y + h * DIM, rounded(a));
        store_pack_once(y + h * DIM + PAIRS, rounded(b));
    }
}
