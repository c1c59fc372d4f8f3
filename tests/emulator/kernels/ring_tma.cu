// C = A B^T, tiles copied by TMA, swizzled (SWIZZLE 1: 128 bytes) or not; ldmatrix and mma.sync.
// A [M][K], B [N][K] bf16, C [M][N] float; any M, N, K that a tensor map can have: TMA fills with zeros.
// 128 threads, a 32 x 16 tile of C a block. The waits are loops in PTX.
#include "ptx_wrappers.cuh"

constexpr int BM = 32, BN = 16, BK = 64;
constexpr int ROW_BYTES = BK * 2;
constexpr int THREADS = 128, WARPS = 4;
constexpr int STAGES = 2;
constexpr int A_BYTES = BM * ROW_BYTES, B_BYTES = BN * ROW_BYTES;

// Byte offset of a 16-byte chunk of a tile, as TMA wrote it: the 128-byte swizzle flips the chunk by the row.
DEVICE u32 chunk_offset(int row, int chunk) { return row * ROW_BYTES + (SWIZZLE ? chunk ^ (row % 8) : chunk) * 16; }

extern "C" __global__ void __launch_bounds__(THREADS)
    ring_tma(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, float *__restrict__ c, int m,
             int n, int k) {
    __shared__ alignas(1024) unsigned char a_tile[STAGES][A_BYTES];
    __shared__ alignas(1024) unsigned char b_tile[STAGES][B_BYTES];
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

    const int tiles = (k + BK - 1) / BK;
    auto copy = [&](int t) {
        const int stage = t % STAGES;
        if (t >= STAGES) mbarrier_wait_in_ptx(shared_address(&empty[stage]), (t / STAGES - 1) & 1);
        const u32 barrier = shared_address(&full[stage]);
        mbarrier_arrive_expect(barrier, A_BYTES + B_BYTES);
        tma_load(shared_address(a_tile[stage]), &a_map, t * BK, m0, barrier);
        tma_load(shared_address(b_tile[stage]), &b_map, t * BK, n0, barrier);
    };
    if (thread == 0)
        for (int t = 0; t < STAGES - 1 && t < tiles; t++) copy(t);

    const int warp_m = warp / 2 * 16, warp_n = warp % 2 * 8;
    float sum[4] = {0, 0, 0, 0};
    for (int t = 0; t < tiles; t++) {
        if (thread == 0 && t + STAGES - 1 < tiles) copy(t + STAGES - 1);
        __syncwarp();
        const int stage = t % STAGES;
        mbarrier_wait_in_ptx(shared_address(&full[stage]), t / STAGES & 1);
        const u32 a_at = shared_address(a_tile[stage]), b_at = shared_address(b_tile[stage]);
        for (int x = 0; x < BK / 8; x += 2) {
            u32 a_part[4], b_part[2];
            ldmatrix_x4(a_part, a_at + chunk_offset(warp_m + lane % 16, x + lane / 16));
            ldmatrix_x2(b_part, b_at + chunk_offset(warp_n + lane % 8, x + lane / 8 % 2));
            mma_bf16(sum, a_part, b_part);
        }
        __syncwarp();
        if (lane == 0) mbarrier_arrive(shared_address(&empty[stage]));
    }
    for (int i = 0; i < 4; i++) {
        const int row = m0 + warp_m + lane / 4 + i / 2 * 8, column = n0 + warp_n + lane % 4 * 2 + i % 2;
        if (row < m && column < n) c[row * n + column] = sum[i];
    }
}
