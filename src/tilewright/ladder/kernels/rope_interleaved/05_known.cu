// The shape of a token is known when it is built: a thread finds its head and its pack by shifts and multiplications of
// 32 bits, for all of a token's packs are counted from its first one. Nothing is asked about alignment, and nothing loops.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "dependent.cuh"
#include "elements.cuh"
#include "round.cuh"
#include "streams.cuh"

#ifndef HEADS
#define DIM 128      // elements of a head: whole packs
#define ALL 8        // heads of a token
#define HEADS 4      // of a thread
#define THREADS 128  // of a block
#define STREAMS 1    // 1: what is read takes no place in L1
#endif
constexpr int PAIRS = 8 / TW_T_BYTES;                     // of a pack
constexpr int STEPS = DIM / TW_PACK;                      // packs of a head
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
    Pack packs[HEADS];
    #pragma unroll
    for (int h = 0; h < HEADS; ++h)
        if (ALL % HEADS == 0 || head + h < ALL) packs[h] = STREAMS ? load_pack_once(x + h * DIM) : load_pack(x + h * DIM);
    const long long pair = (long long)token * (DIM / 2) + step * PAIRS;
    float cosine[PAIRS], sine[PAIRS];
    #pragma unroll
    for (int j = 0; j < PAIRS; j += 2) {
        *reinterpret_cast<float2*>(cosine + j) = *reinterpret_cast<const float2*>(cosines + pair + j);
        *reinterpret_cast<float2*>(sine + j) = *reinterpret_cast<const float2*>(sines + pair + j);
    }
    #pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        if (ALL % HEADS != 0 && head + h >= ALL) break;
        float values[TW_PACK];
        #pragma unroll
        for (int j = 0; j < PAIRS; ++j) {
            values[2 * j] = to_float(packs[h].at[2 * j]);
            values[2 * j + 1] = to_float(packs[h].at[2 * j + 1]);
            turn(values[2 * j], values[2 * j + 1], cosine[j], sine[j]);
        }
        store_pack_once(y + h * DIM, rounded(values));
    }
}
