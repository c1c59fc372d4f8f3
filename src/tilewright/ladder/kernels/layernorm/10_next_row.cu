// Blocks that stay, with their weights and biases in registers: of what all rows share, nothing is read again. Threads ask
// for their share of the next row before they look at this one's, so that a row is under way while the one before meets
// its barrier and is written. Unlike a ring in shared memory, that is one row a block, and no more.
//
// A row of up to WORKERS * PIECES * 16 bytes fits, in whole packs of 16 bytes.
#include "block.cuh"
#include "dependent.cuh"
#include "share.cuh"

#ifndef WORKERS
#define WORKERS 128  // threads of a block: a power of two
#define PIECES 4     // packs of a thread
#define RESIDENT 4   // blocks of an SM
#define BLOCKS 4     // of the launch, at most
#endif
constexpr int WARPS = WORKERS / 32, ACROSS = 16 / TW_T_BYTES;
static_assert(WORKERS % 32 == 0, "whole warps");

// Elements of a row that a warp has.
__device__ __forceinline__ int elements_of(int warp, int C) {
    int count = 0;
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) count += min(max(C - (i * WORKERS + warp * 32) * ACROSS, 0), 32 * ACROSS);
    return count;
}

extern "C" __global__ void __launch_bounds__(WORKERS, RESIDENT)
layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, const TW_T* __restrict__ bias,
          TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    wait_for_previous_grid();
    if (C > WORKERS * PIECES * ACROSS) __trap();
    // Of each warp: its sum, its mean, the squares around it. Two boards take turns: who writes to one has met all others
    // behind the last time that they read it.
    __shared__ float4 states[2][WARPS];
    const int first = threadIdx.x * ACROSS, left = C - first;  // column; columns from there on
    long long row = blockIdx.x;
    if (row >= R) return;
    Bits<ACROSS> next[PIECES], weights[PIECES], biases[PIECES];
    load_share_in_order<WORKERS>(next, x + row * ld_x + first, left);
    load_share_in_order<WORKERS>(weights, weight + first, left);
    load_share_in_order<WORKERS>(biases, bias + first, left);
    const float rate = 1.0f / C, elements = elements_of(threadIdx.x / 32, C);
    const float own_rate = __fdividef(1.0f, fmaxf(elements, 1.0f));

    for (int board = 0; row < R; row += gridDim.x, board ^= 1) {
        float values[PIECES][ACROSS], sum = 0.0f, squares = 0.0f;
        unpack_share(values, next);
        if (row + gridDim.x < R) load_share_in_order<WORKERS>(next, x + (row + gridDim.x) * ld_x + first, left);
        #pragma unroll
        for (int i = 0; i < PIECES; ++i)
            #pragma unroll
            for (int j = 0; j < ACROSS; ++j) sum += values[i][j];
        sum = warp_sum(sum);
        const float own_mean = sum * own_rate;
        #pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const bool is_there = i * WORKERS * ACROSS < left;
            #pragma unroll
            for (int j = 0; j < ACROSS; ++j) {
                const float apart = is_there ? values[i][j] - own_mean : 0.0f;
                squares += apart * apart;
            }
        }
        squares = warp_sum(squares);
        const float4 state = met(states[board], make_float4(elements, sum, own_mean, squares));
        const float mean = group_sum<WARPS>(state.y) * rate;
        const float apart = state.z - mean;
        const float square = group_sum<WARPS>(state.w + (state.x > 0.0f ? apart * apart * state.x : 0.0f));
        const float scale = rsqrtf(square * rate + epsilon);
        if constexpr (TW_T_BYTES < 4) {
            // The compiler would keep their floats, in twice the registers.
            #pragma unroll
            for (int i = 0; i < PIECES; ++i)
                #pragma unroll
                for (int w = 0; w < 4; ++w) asm volatile("" : "+r"(weights[i].at[w]), "+r"(biases[i].at[w]));
        }
        TW_T* to = y + row * C + first;
        #pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            float factors[ACROSS], shifts[ACROSS];
            unpack(factors, weights[i]);
            unpack(shifts, biases[i]);
            #pragma unroll
            for (int j = 0; j < ACROSS; ++j) values[i][j] = (values[i][j] - mean) * scale * factors[j] + shifts[j];
            store_piece<WORKERS>(to, values[i], i, left);
        }
    }
}
