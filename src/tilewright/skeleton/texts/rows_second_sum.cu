// Second pass. Grid: one thread for each row.
extern "C" __global__ void __launch_bounds__(THREADS)
${name}_apply(const float* __restrict__ W, Out* __restrict__ Y, int R)
{
    const long long row = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (row < R) {
        Y[row] = state_of_parts(W, row, R).sum;
    }
}
