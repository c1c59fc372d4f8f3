// C = A B^T, rows copied by cp.async.bulk and counted in bytes by the full barriers; one thread copies for the block.
// A [M][K], B [N][K] bf16, C [M][N] float. M a multiple of 32, N and K of 16. 128 threads, a 32 x 16 tile of C a block.
#include "ptx_wrappers.cuh"

constexpr int BM = 32, BN = 16, BK = 16;
constexpr int PITCH = BK + 8;  // 48 bytes: bulk copies want 16-byte alignment
constexpr int THREADS = 128, WARPS = 4;
#ifndef STAGES
#define STAGES 3
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    ring_bulk(const u16 *__restrict__ a, const u16 *__restrict__ b, float *__restrict__ c, int n, int k) {
    __shared__ alignas(16) u16 a_tile[STAGES][BM][PITCH];
    __shared__ alignas(16) u16 b_tile[STAGES][BN][PITCH];
    __shared__ alignas(8) u64 full[STAGES];
    __shared__ alignas(8) u64 empty[STAGES];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    if (thread == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(shared_address(&full[s]), 1);
            mbarrier_init(shared_address(&empty[s]), WARPS);
        }
        fence_mbarrier_init();
        fence_proxy_async();
    }
    __syncthreads();

    const int tiles = k / BK;
    auto copy = [&](int t) {
        const int stage = t % STAGES;
        if (t >= STAGES) mbarrier_wait(shared_address(&empty[stage]), (t / STAGES - 1) & 1);
        const u32 barrier = shared_address(&full[stage]);
        mbarrier_arrive_expect(barrier, (BM + BN) * BK * 2);
        for (int r = 0; r < BM; r++)
            bulk_load(shared_address(&a_tile[stage][r][0]), a + (m0 + r) * k + t * BK, BK * 2, barrier);
        for (int r = 0; r < BN; r++)
            bulk_load(shared_address(&b_tile[stage][r][0]), b + (n0 + r) * k + t * BK, BK * 2, barrier);
    };
    if (thread == 0)
        for (int t = 0; t < STAGES - 1 && t < tiles; t++) copy(t);

    const int group = lane / 4, member = lane % 4;
    const int warp_m = warp / 2 * 16, warp_n = warp % 2 * 8;
    float sum[4] = {0, 0, 0, 0};
    for (int t = 0; t < tiles; t++) {
        if (thread == 0 && t + STAGES - 1 < tiles) copy(t + STAGES - 1);
        __syncwarp();
        const int stage = t % STAGES;
        mbarrier_wait(shared_address(&full[stage]), t / STAGES & 1);
        u32 a_part[4], b_part[2];
        for (int i = 0; i < 4; i++)
            a_part[i] = *(const u32 *)&a_tile[stage][warp_m + group + i % 2 * 8][member * 2 + i / 2 * 8];
        for (int i = 0; i < 2; i++) b_part[i] = *(const u32 *)&b_tile[stage][warp_n + group][member * 2 + i * 8];
        mma_bf16(sum, a_part, b_part);
        __syncwarp();
        if (lane == 0) mbarrier_arrive(shared_address(&empty[stage]));
    }
    for (int i = 0; i < 4; i++)
        c[(m0 + warp_m + group + i / 2 * 8) * n + n0 + warp_n + member * 2 + i % 2] = sum[i];
}
