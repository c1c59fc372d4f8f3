// No padding: the elements of each row are permuted within it, by an exclusive or with the row's number. A column then
// lies in 32 banks, the tile keeps its size, and every row still begins at a multiple of its length.
#include "dependent.cuh"
#include "elements.cuh"

constexpr int TILE = 32;
constexpr int WORD = 4 / TW_T_BYTES;  // elements in a bank's word: they stay together
constexpr int ROWS = 8;  // of the tile at once: each thread moves TILE / ROWS elements

// Where column c of row r lies in its row.
__device__ __forceinline__ int swizzled(int r, int c) { return c ^ (r / WORD * WORD); }

extern "C" __global__ void transpose(const TW_T* __restrict__ x, TW_T* __restrict__ y, int M, int N, int ld_x) {
    wait_for_previous_grid();
    __shared__ TW_T tile[TILE][TILE];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += ROWS) {
        int r = threadIdx.y + i;
        if (row + i < M && column < N) tile[r][swizzled(r, threadIdx.x)] = x[(long long)(row + i) * ld_x + column];
    }
    __syncthreads();
    int out_column = blockIdx.y * TILE + threadIdx.x;
    int out_row = blockIdx.x * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += ROWS) {
        int at = swizzled(threadIdx.x, threadIdx.y + i);
        if (out_row + i < N && out_column < M) y[(long long)(out_row + i) * M + out_column] = tile[threadIdx.x][at];
    }
}
