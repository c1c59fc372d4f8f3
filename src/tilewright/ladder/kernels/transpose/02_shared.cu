// A block turns a tile in shared memory: it reads rows of x and writes rows of y, both next to one another in memory.
// The price: a column of the tile lies in one bank of shared memory, and a warp that reads it waits 32 times.
#include "elements.cuh"

constexpr int TILE = 32;
constexpr int ROWS = 8;  // of the tile at once: each thread moves TILE / ROWS elements

extern "C" __global__ void transpose(const TW_T* __restrict__ x, TW_T* __restrict__ y, int M, int N, int ld_x) {
    __shared__ TW_T tile[TILE][TILE];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += ROWS) {
        int r = threadIdx.y + i;
        if (row + i < M && column < N) tile[r][threadIdx.x] = x[(long long)(row + i) * ld_x + column];
    }
    __syncthreads();
    int out_column = blockIdx.y * TILE + threadIdx.x;
    int out_row = blockIdx.x * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += ROWS) {
        int at = threadIdx.y + i;
        if (out_row + i < N && out_column < M) y[(long long)(out_row + i) * M + out_column] = tile[threadIdx.x][at];
    }
}
