// C = A B, a ring of cp.async copies whose arrival the full barriers count; every thread copies and computes.
// A [M][K], B [K][N], C [M][N], float. M, N, K multiples of 16. 64 threads, one 16 x 16 tile of C a block.
#include "ptx_wrappers.cuh"

constexpr int TILE = 16;
constexpr int THREADS = 64;
constexpr int STAGES = 3;

extern "C" __global__ void __launch_bounds__(THREADS)
    ring_cp_async_mbarrier(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int n, int k) {
    __shared__ alignas(16) float a_tile[STAGES][TILE][TILE];
    __shared__ alignas(16) float b_tile[STAGES][TILE][TILE];
    __shared__ alignas(8) u64 full[STAGES];
    __shared__ alignas(8) u64 empty[STAGES];
    const int thread = threadIdx.x;
    const int row = thread / 4, column = thread % 4 * 4;
    const int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;
    if (thread < STAGES) {
        mbarrier_init(shared_address(&full[thread]), THREADS);
        mbarrier_init(shared_address(&empty[thread]), THREADS);
    }
    __syncthreads();

    const int tiles = k / TILE;
    auto copy = [&](int t) {
        const int stage = t % STAGES;
        if (t >= STAGES) mbarrier_poll(shared_address(&empty[stage]), (t / STAGES - 1) & 1);
        cp_async_16(shared_address(&a_tile[stage][row][column]), a + (m0 + row) * k + t * TILE + column);
        cp_async_16(shared_address(&b_tile[stage][row][column]), b + (t * TILE + row) * n + n0 + column);
        cp_async_arrive(shared_address(&full[stage]));
    };
    for (int t = 0; t < STAGES - 1 && t < tiles; t++) copy(t);

    float sum[4] = {0, 0, 0, 0};
    for (int t = 0; t < tiles; t++) {
        if (t + STAGES - 1 < tiles) copy(t + STAGES - 1);
        const int stage = t % STAGES;
        mbarrier_poll(shared_address(&full[stage]), t / STAGES & 1);
        for (int x = 0; x < TILE; x++)
            for (int j = 0; j < 4; j++) sum[j] = fmaf(a_tile[stage][row][x], b_tile[stage][x][column + j], sum[j]);
        mbarrier_arrive(shared_address(&empty[stage]));
    }
    for (int j = 0; j < 4; j++) c[(m0 + row) * n + n0 + column + j] = sum[j];
}
