static_assert(SPLIT == 1, "a row is read by one block or one warp");

extern "C" __global__ void __launch_bounds__(THREADS)
$name(const T* __restrict__ X,$extra_kernel_parameters
    Out* __restrict__ Y, int R, int C)
{
    if (C % VEC || (size_t)X % sizeof(Vector)$aligned_y) {
        __trap();
    }
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / WORKERS;
    if (row >= R) {
        return;
    }
    Vector values[LOADS];
    const State state = state_of(values, X + row * C, 0, C);
    $finish
}
