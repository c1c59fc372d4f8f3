// C = A B^T, warp-specialised: one warpgroup copies, two compute, registers move between them, the result leaves by TMA.
// A [M][K], B [N][K], C [M][N] bf16; N, K multiples of 64, any M. 384 threads, a 128 x 64 tile of C a block.
#include "wgmma_wrappers.cuh"

constexpr int BM = 128, BN = 64, BK = 64, ROW_BYTES = 128;
constexpr int THREADS = 384, CONSUMER_WARPS = 8;
constexpr int STAGES = 2;
constexpr int A_BYTES = BM * ROW_BYTES, B_BYTES = BN * ROW_BYTES, C_BYTES = BM * ROW_BYTES;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_wgmma_specialised(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
                           const __grid_constant__ TensorMap c_map, int k) {
    extern __shared__ unsigned char dynamic[];
    __shared__ alignas(8) u64 full[STAGES];
    __shared__ alignas(8) u64 empty[STAGES];
    const u32 tiles_at = (shared_address(dynamic) + 1023) / 1024 * 1024;
    const u32 c_at = tiles_at + STAGES * (A_BYTES + B_BYTES);
    const int thread = threadIdx.x, group = thread / 128;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    if (thread == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(shared_address(&full[s]), 1);
            mbarrier_init(shared_address(&empty[s]), CONSUMER_WARPS);
        }
        fence_mbarrier_init();
        fence_proxy_async();
    }
    __syncthreads();

    const int tiles = k / BK;
    if (group == 0) {
        fewer_registers<40>();
        if (thread == 0) {
            for (int t = 0; t < tiles; t++) {
                const int stage = t % STAGES;
                const u32 barrier = shared_address(&full[stage]);
                const u32 a_at = tiles_at + stage * (A_BYTES + B_BYTES);
                // A fresh barrier counts as having completed the phase before the first: parity 1 passes at once.
                mbarrier_wait_in_ptx(shared_address(&empty[stage]), (t / STAGES & 1) ^ 1);
                mbarrier_arrive_expect(barrier, A_BYTES + B_BYTES);
                tma_load(a_at, &a_map, t * BK, m0, barrier);
                tma_load(a_at + A_BYTES, &b_map, t * BK, n0, barrier);
            }
        }
        return;
    }
    more_registers<232>();
    const int half = group - 1;
    float sum[32];
    for (int i = 0; i < 32; i++) sum[i] = 0;
    for (int t = 0; t < tiles; t++) {
        const int stage = t % STAGES;
        const u32 a_at = tiles_at + stage * (A_BYTES + B_BYTES) + half * 64 * ROW_BYTES;
        const u32 b_at = tiles_at + stage * (A_BYTES + B_BYTES) + A_BYTES;
        mbarrier_wait_in_ptx(shared_address(&full[stage]), t / STAGES & 1);
        wgmma_fence();
        for (int x = 0; x < ROW_BYTES; x += 32)
            wgmma_bf16(sum, descriptor_128b(a_at + x, 1024), descriptor_128b(b_at + x, 1024), t + x > 0);
        wgmma_commit();
        wgmma_wait<0>();
        __syncwarp();
        if (thread % 32 == 0) mbarrier_arrive(shared_address(&empty[stage]));
    }
    // Two neighbours of a row are one word; the chunk of sixteen bytes that it is in is flipped by the row.
    for (int i = 0; i < 32; i += 2) {
        const int row = half * 64 + accumulator_row(thread, i), column = accumulator_column(thread, i);
        const u32 target = c_at + row * ROW_BYTES + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(target), "r"(pack_bf16(sum[i], sum[i + 1])) : "memory");
    }
    fence_proxy_async();
    named_sync(1 + half, 128);
    if (thread % 128 == 0) {
        tma_store(&c_map, n0, m0 + half * 64, c_at + half * 64 * ROW_BYTES);
        bulk_commit();
        bulk_wait<0>();
    }
}
