// One function that is not inlined reads through generic pointers into shared, local and global memory, and writes.
// in [N][4] int, out [N] int: for each thread, the sums of its own four numbers read three ways, and a swap by pointer.
__noinline__ __device__ int weighted(const int *p, int stride) {
    return p[0] + 10 * p[stride] + 100 * p[2 * stride] + 1000 * p[3 * stride];
}

__noinline__ __device__ void swap(int *p, int *q) {
    const int x = *p;
    *p = *q;
    *q = x;
}

extern "C" __global__ void __launch_bounds__(64) generic_pointers(const int *__restrict__ in, int *__restrict__ out) {
    __shared__ int shared[4][64];
    const int thread = threadIdx.x;
    const int at = (blockIdx.x * blockDim.x + thread) * 4;
    int local[4];
    for (int i = 0; i < 4; i++) {
        shared[i][thread] = in[at + i];
        local[i] = in[at + 3 - i];
    }
    swap(&local[0], &shared[1][thread]);
    swap(&local[1], &local[2]);
    const int sum = weighted(in + at, 1) + 3 * weighted(&shared[0][thread], 64) + 5 * weighted(local, 1);
    out[blockIdx.x * blockDim.x + thread] = sum;
}
