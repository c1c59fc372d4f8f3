// Second pass, the same grid: every block merges the states of its row and writes its part.
extern "C" __global__ void __launch_bounds__(THREADS)
${name}_apply(const T* __restrict__ X, const float* __restrict__ W,$extra_kernel_parameters
    Out* __restrict__ Y, int R, int C)
{
    if (C % VEC || (size_t)X % sizeof(Vector) || (size_t)Y % sizeof(Vector)) {
        __trap();
    }
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / WORKERS;
    if (row >= R) {
        return;
    }
    const State state = state_of_parts(W, row, R);
    const long long begin = begin_of(blockIdx.y, C);
    const long long end = begin_of(blockIdx.y + 1, C);
    Vector values[LOADS];
    load(values, X + row * C, begin + threadIdx.x % WORKERS * VEC, end);
    write_row(values, state, X + row * C, Y + row * C, begin, end$extra_arguments_all);
}
