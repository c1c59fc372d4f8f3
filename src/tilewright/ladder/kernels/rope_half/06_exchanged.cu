// The threads of a warp read and write one run of memory: a thread has one pack of a head, and its partner, half a head
// further, has the other. They show each other what they read. Where a thread has both, a warp's accesses are halves of
// heads with gaps in between, and a line of memory is written in two turns.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "dependent.cuh"
#include "elements.cuh"
#include "round.cuh"
#include "streams.cuh"

#ifndef HEADS
#define DIM 128      // elements of a head: a power of two, up to a warp's packs
#define ALL 8        // heads of a token
#define HEADS 4      // of a thread
#define THREADS 32   // of a block
#define STREAMS 1    // 1: what is read takes no place in L1
#endif
constexpr int PAIRS = DIM / 2;                            // of a head
constexpr int STEPS = DIM / TW_PACK;                      // packs of a head
constexpr int PACKS = (ALL + HEADS - 1) / HEADS * STEPS;  // threads of a token
constexpr int BLOCKS = (PACKS + THREADS - 1) / THREADS;   // of a token
static_assert(STEPS >= 2 && 32 % STEPS == 0, "partners are within one warp");

// What the partner has.
__device__ __forceinline__ Pack exchanged(const Pack& mine) {
    const uint4 words = *reinterpret_cast<const uint4*>(&mine);
    const uint4 theirs = make_uint4(__shfl_xor_sync(0xffffffff, words.x, STEPS / 2),
                                    __shfl_xor_sync(0xffffffff, words.y, STEPS / 2),
                                    __shfl_xor_sync(0xffffffff, words.z, STEPS / 2),
                                    __shfl_xor_sync(0xffffffff, words.w, STEPS / 2));
    return *reinterpret_cast<const Pack*>(&theirs);
}

extern "C" __global__ void __launch_bounds__(THREADS)
rope(const TW_T* __restrict__ x, const float* __restrict__ cosines, const float* __restrict__ sines,
     TW_T* __restrict__ y, int tokens, int H, int D, long long ld_x) {
    wait_for_previous_grid();
    if (D != DIM || H != ALL) __trap();
    const int token = blockIdx.x / BLOCKS, at = blockIdx.x % BLOCKS * THREADS + threadIdx.x;
    const int head = at / STEPS * HEADS, step = at % STEPS;
    const int heads = PACKS % THREADS == 0 && ALL % HEADS == 0 ? HEADS : ALL - head;  // or more; none beyond the token
    x += token * ld_x + head * DIM + step * TW_PACK;
    y += (long long)token * (ALL * DIM) + head * DIM + step * TW_PACK;
    Pack packs[HEADS] = {};
    #pragma unroll
    for (int h = 0; h < HEADS; ++h)
        if (h < heads) packs[h] = STREAMS ? load_pack_once(x + h * DIM) : load_pack(x + h * DIM);
    const long long pair = (long long)token * PAIRS + step % (STEPS / 2) * TW_PACK;
    float cosine[TW_PACK], sine[TW_PACK];
    #pragma unroll
    for (int j = 0; j < TW_PACK; j += 4) {
        *reinterpret_cast<float4*>(cosine + j) = *reinterpret_cast<const float4*>(cosines + pair + j);
        *reinterpret_cast<float4*>(sine + j) = *reinterpret_cast<const float4*>(sines + pair + j);
    }
    const bool is_first = step < STEPS / 2;
    #pragma unroll
    for (int j = 0; j < TW_PACK; ++j) sine[j] = is_first ? -sine[j] : sine[j];
    #pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        const Pack other = exchanged(packs[h]);  // all take part
        float values[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j)
            values[j] = to_float(packs[h].at[j]) * cosine[j] + to_float(other.at[j]) * sine[j];
        if (h < heads) store_pack_once(y + h * DIM, rounded(values));
    }
}
