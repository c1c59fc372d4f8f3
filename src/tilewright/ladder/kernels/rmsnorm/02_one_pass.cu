// The row is kept in shared memory while its squares are added up: it is read from DRAM once.
#include "block.cuh"
#include "elements.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
rmsnorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, TW_T* __restrict__ y, int R, int C, long long ld_x,
        float epsilon) {
    extern __shared__ TW_T row[];  // C elements; each thread reads what it wrote itself
    __shared__ float sums[THREADS / 32];
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    float squares = 0.0f;
    for (int column = threadIdx.x; column < C; column += THREADS) {
        row[column] = x[column];
        const float value = to_float(row[column]);
        squares += value * value;
    }
    const float scale = rsqrtf(block_sum(squares, sums) / C + epsilon);
    for (int column = threadIdx.x; column < C; column += THREADS)
        from_float(y[column], to_float(row[column]) * scale * to_float(weight[column]));
}
