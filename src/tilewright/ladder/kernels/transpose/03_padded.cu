// Each row of the tile is longer by one bank's word, so the elements of a column lie in banks next to one another. It
// costs 128 bytes of shared memory a tile, and rows that no longer begin at a multiple of 16 bytes.
#include "elements.cuh"

constexpr int TILE = 32;
constexpr int PAD = 4 / TW_T_BYTES;  // one word
constexpr int ROWS = 8;  // of the tile at once: each thread moves TILE / ROWS elements

extern "C" __global__ void transpose(const TW_T* __restrict__ x, TW_T* __restrict__ y, int M, int N, int ld_x) {
    __shared__ TW_T tile[TILE][TILE + PAD];
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
