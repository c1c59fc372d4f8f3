// Little data: what takes the time is how long one thread works, not how many bytes move. The tile of the fourth rung
// with a thread for each element, or for a few: one load, one exchange, one store, 32-bit offsets, and no loop.
#include "dependent.cuh"
#include "elements.cuh"

#ifndef ROWS
#define ROWS 8  // of the tile at once: each thread moves TILE / ROWS elements
#endif
constexpr int TILE = 32;
constexpr int PAD = 4 / TW_T_BYTES;  // one word
constexpr int EACH = TILE / ROWS;

extern "C" __global__ void __launch_bounds__(TILE * ROWS)
transpose(const TW_T* __restrict__ x, TW_T* __restrict__ y, int M, int N, int ld_x) {
    wait_for_previous_grid();
    __shared__ TW_T tile[TILE][TILE + PAD];
    const int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    const TW_T* from = x + (row * ld_x + column);
    TW_T read[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        if (row + i * ROWS < M && column < N) read[i] = from[i * ROWS * ld_x];
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) tile[threadIdx.y + i * ROWS][threadIdx.x] = read[i];
    __syncthreads();
    const int out_column = blockIdx.y * TILE + threadIdx.x, out_row = blockIdx.x * TILE + threadIdx.y;
    TW_T* to = y + (out_row * M + out_column);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        if (out_row + i * ROWS < N && out_column < M) to[i * ROWS * M] = tile[threadIdx.x][threadIdx.y + i * ROWS];
    }
}
