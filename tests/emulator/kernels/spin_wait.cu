// Two warps hand rows to each other through volatile flags in shared memory, without a barrier.
// in [ROWS][32] int, out [32] int: out[l] = sum over r of (r + 1) in[r][31 - l].
#include "ptx_wrappers.cuh"

extern "C" __global__ void __launch_bounds__(64) spin_wait(const int *__restrict__ in, int *__restrict__ out, int rows) {
    __shared__ int buffer[32];
    __shared__ int written;  // rows that the first warp has handed over
    __shared__ int read;     // rows that the second has taken
    volatile int *const written_flag = &written;
    volatile int *const read_flag = &read;
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) written = read = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int r = 0; r < rows; r++) {
            while (*read_flag < r) {
            }
            __threadfence_block();
            buffer[lane] = in[r * 32 + lane];
            __syncwarp();
            if (lane == 0) {
                // Behind the other lanes' stores, which the barrier of the warp has brought to this one.
                __threadfence_block();
                *written_flag = r + 1;
            }
        }
    } else {
        int sum = 0;
        for (int r = 0; r < rows; r++) {
            while (*written_flag <= r) {
            }
            __threadfence_block();
            sum += (r + 1) * buffer[31 - lane];
            __syncwarp();
            if (lane == 0) {
                __threadfence_block();
                *read_flag = r + 1;
            }
        }
        out[lane] = sum;
    }
}
