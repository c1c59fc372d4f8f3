// printf with several types of argument, and an assertion that holds. in [32] int, out [32] int: 2 in.
// What <cassert> makes of assert, without its header: NVRTC brings none.
extern "C" __device__ void __assertfail(const char *message, const char *file, unsigned line, const char *function,
                                        decltype(sizeof(0)) char_bytes);

extern "C" __global__ void __launch_bounds__(32) print_and_assert(const int *__restrict__ in, int *__restrict__ out) {
    const int thread = threadIdx.x;
    const int x = in[thread];
    if (!(x < 1000000)) __assertfail("x < 1000000", "print_and_assert.cu", 9, "print_and_assert", 1);
    if (thread < 2)
        printf("thread %d of block %u: %d, %.2f, %s, %c, %lld\n", thread, blockIdx.x, x, x * 0.5, "text", 'c',
               (long long)x << 33);
    out[thread] = 2 * x;
}
