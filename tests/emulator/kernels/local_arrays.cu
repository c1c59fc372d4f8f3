// A local array with indices known at run time only: each thread sorts its sixteen numbers by insertion.
// in [N][16] int, out [N][16] int. N threads.
extern "C" __global__ void __launch_bounds__(64) local_arrays(const int *__restrict__ in, int *__restrict__ out) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int sorted[16];
#pragma unroll 1
    for (int i = 0; i < 16; i++) {
        const int x = in[thread * 16 + i];
        int at = i;
        while (at > 0 && sorted[at - 1] > x) {
            sorted[at] = sorted[at - 1];
            at--;
        }
        sorted[at] = x;
    }
#pragma unroll 1
    for (int i = 0; i < 16; i++) out[thread * 16 + i] = sorted[i];
}
