// One thread an element. Reads run along a row, so a warp's reads are next to one another; its writes go down a column,
// and each of them opens a 32-byte sector of its own to store one element in it.
#include "elements.cuh"

extern "C" __global__ void transpose(const TW_T* __restrict__ x, TW_T* __restrict__ y, int M, int N, int ld_x) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < M && column < N) y[(long long)column * M + row] = x[(long long)row * ld_x + column];
}
