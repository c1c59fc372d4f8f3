// C = A B^T, a ring of cp.async groups; ldmatrix and mma.sync. A [M][K], B [N][K] bf16, C [M][N] float.
// Ragged K and M: the copies fill with zeros. K a multiple of 8, N of 16. 128 threads, a 32 x 16 tile of C a block.
#include "ptx_wrappers.cuh"

constexpr int BM = 32, BN = 16, BK = 32;
constexpr int PITCH = BK + 8;
constexpr int THREADS = 128;
constexpr int STAGES = 3;

extern "C" __global__ void __launch_bounds__(THREADS)
    ring_cp_async_groups(const u16 *__restrict__ a, const u16 *__restrict__ b, float *__restrict__ c, int m, int n, int k) {
    __shared__ alignas(16) u16 a_tile[STAGES][BM][PITCH];
    __shared__ alignas(16) u16 b_tile[STAGES][BN][PITCH];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const int tiles = (k + BK - 1) / BK;
    const int row = thread / 4, column = thread % 4 * 8;

    auto copy = [&](int t) {
        const int at = t * BK + column;
        const bool in_a = m0 + row < m && at < k;
        cp_async_16_zero_filled(shared_address(&a_tile[t % STAGES][row][column]), a + (in_a ? (m0 + row) * k + at : 0),
                                in_a ? 16 : 0);
        if (row < BN) {
            const bool in_b = at < k;
            cp_async_16_zero_filled(shared_address(&b_tile[t % STAGES][row][column]),
                                    b + (in_b ? (n0 + row) * k + at : 0), in_b ? 16 : 0);
        }
    };
    for (int t = 0; t < STAGES - 1; t++) {
        if (t < tiles) copy(t);
        cp_async_commit();
    }
    const int warp_m = warp / 2 * 16, warp_n = warp % 2 * 8;
    float sum[4] = {0, 0, 0, 0};
    for (int t = 0; t < tiles; t++) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (t + STAGES - 1 < tiles) copy(t + STAGES - 1);
        cp_async_commit();
        for (int x = 0; x < BK; x += 16) {
            u32 a_part[4], b_part[2];
            ldmatrix_x4(a_part, shared_address(&a_tile[t % STAGES][warp_m + lane % 16][x + lane / 16 * 8]));
            ldmatrix_x2(b_part, shared_address(&b_tile[t % STAGES][warp_n + lane % 8][x + lane / 8 % 2 * 8]));
            mma_bf16(sum, a_part, b_part);
        }
    }
    for (int i = 0; i < 4; i++) {
        const int r = m0 + warp_m + lane / 4 + i / 2 * 8;
        if (r < m) c[r * n + n0 + warp_n + lane % 4 * 2 + i % 2] = sum[i];
    }
}
