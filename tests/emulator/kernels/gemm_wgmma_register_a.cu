// C = A B by one warpgroup: A from registers, B [K][N] MN-major in shared memory by TMA with the 128-byte swizzle.
// A [M][K], B [K][N] bf16, C [M][N] float. M, N, K multiples of 64. 128 threads, a 64 x 64 tile of C a block.
#include "wgmma_wrappers.cuh"

constexpr int BM = 64, BN = 64, BK = 64;
constexpr int THREADS = 128;
constexpr int STAGES = 2;
constexpr int B_BYTES = BK * BN * 2;

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_wgmma_register_a(const u16 *__restrict__ a, const __grid_constant__ TensorMap b_map, float *__restrict__ c, int n,
                          int k) {
    __shared__ alignas(1024) unsigned char b_tile[STAGES][B_BYTES];
    __shared__ alignas(8) u64 full[STAGES];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    if (thread == 0) {
        for (int s = 0; s < STAGES; s++) mbarrier_init(shared_address(&full[s]), 1);
        fence_mbarrier_init();
        fence_proxy_async();
    }
    __syncthreads();

    const int tiles = k / BK;
    auto copy = [&](int t) {
        const u32 barrier = shared_address(&full[t % STAGES]);
        mbarrier_arrive_expect(barrier, B_BYTES);
        tma_load(shared_address(b_tile[t % STAGES]), &b_map, n0, t * BK, barrier);
    };
    if (thread == 0) copy(0);
    __syncwarp();

    float sum[32];
    for (int i = 0; i < 32; i++) sum[i] = 0;
    const u16 *row = a + (m0 + warp * 16 + lane / 4) * k + lane % 4 * 2;
    for (int t = 0; t < tiles; t++) {
        // The barrier at the end of the trip before has freed the other buffer.
        if (thread == 0 && t + 1 < tiles) copy(t + 1);
        __syncwarp();
        u32 part[BK / 16][4];
        for (int x = 0; x < BK / 16; x++)
            for (int i = 0; i < 4; i++)
                part[x][i] = *(const u32 *)(row + i % 2 * 8 * k + t * BK + x * 16 + i / 2 * 8);
        mbarrier_wait(shared_address(&full[t % STAGES]), t / STAGES & 1);
        const u32 b_at = shared_address(b_tile[t % STAGES]);
        wgmma_fence();
        // Sixteen rows of K an instruction; eight rows are one atom of 1024 bytes.
        for (int x = 0; x < BK / 16; x++)
            wgmma_bf16_register_a(sum, part[x], descriptor_128b(b_at + x * 2048, 1024), t + x > 0);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
    }
    for (int i = 0; i < 32; i++)
        c[(m0 + accumulator_row(thread, i)) * n + n0 + accumulator_column(thread, i)] = sum[i];
}
