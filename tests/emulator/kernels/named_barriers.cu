// One warp loads rows of 32 numbers into two buffers, another adds them up, weighted; bar.sync and bar.arrive between
// them. in [ROWS][32] int, out [32] int: out[l] = sum over r of (r + 1) in[r][31 - l].
#include "ptx_wrappers.cuh"

constexpr int BUFFERS = 2;
constexpr int FULL = 1, EMPTY = 3;

extern "C" __global__ void __launch_bounds__(64)
    named_barriers(const int *__restrict__ in, int *__restrict__ out, int rows) {
    __shared__ int buffer[BUFFERS][32];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (int r = 0; r < rows; r++) {
            if (r >= BUFFERS) named_sync(EMPTY + r % BUFFERS, 64);
            buffer[r % BUFFERS][lane] = in[r * 32 + lane];
            __threadfence_block();
            named_arrive(FULL + r % BUFFERS, 64);
        }
    } else {
        int sum = 0;
        for (int r = 0; r < rows; r++) {
            named_sync(FULL + r % BUFFERS, 64);
            sum += (r + 1) * buffer[r % BUFFERS][31 - lane];
            // The last ones are not waited for by anybody.
            if (r + BUFFERS < rows) named_arrive(EMPTY + r % BUFFERS, 64);
        }
        out[lane] = sum;
    }
}
