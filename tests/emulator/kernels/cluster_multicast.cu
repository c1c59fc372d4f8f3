// C = A B^T by clusters of two blocks, one above the other: they share the tile of B, each loads half of it for both.
// A [M][K], B [N][K] bf16, C [M][N] float. M a multiple of 64, N of 16, K of 64. 128 threads, a 32 x 16 tile a block.
#include "ptx_wrappers.cuh"

constexpr int BM = 32, BN = 16, BK = 64;
constexpr int ROW_BYTES = BK * 2;
constexpr int THREADS = 128, WARPS = 4, BLOCKS = 2;
constexpr int STAGES = 2;
constexpr int A_BYTES = BM * ROW_BYTES, B_BYTES = BN * ROW_BYTES;

DEVICE u32 chunk_offset(int row, int chunk) { return row * ROW_BYTES + (chunk ^ (row % 8)) * 16; }

extern "C" __global__ void __cluster_dims__(1, 2, 1) __launch_bounds__(THREADS)
    cluster_multicast(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
                      float *__restrict__ c, int n, int k) {
    __shared__ alignas(1024) unsigned char a_tile[STAGES][A_BYTES];
    __shared__ alignas(1024) unsigned char b_tile[STAGES][B_BYTES];
    __shared__ alignas(8) u64 full[STAGES];
    __shared__ alignas(8) u64 empty[STAGES];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const u32 rank = cluster_rank();
    if (thread == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(shared_address(&full[s]), 1);
            // A stage is written in both blocks at once, so both blocks' warps must have read it.
            mbarrier_init(shared_address(&empty[s]), WARPS * BLOCKS);
        }
        fence_mbarrier_init();
    }
    cluster_sync();

    const int tiles = k / BK;
    auto copy = [&](int t) {
        const int stage = t % STAGES;
        if (t >= STAGES) mbarrier_wait_cluster(shared_address(&empty[stage]), (t / STAGES - 1) & 1);
        const u32 barrier = shared_address(&full[stage]);
        mbarrier_arrive_expect(barrier, A_BYTES + B_BYTES);
        tma_load(shared_address(a_tile[stage]), &a_map, t * BK, m0, barrier);
        tma_load_multicast(shared_address(b_tile[stage]) + rank * (B_BYTES / 2), &b_map, t * BK, n0 + rank * (BN / 2),
                           barrier, (1 << BLOCKS) - 1);
    };
    if (thread == 0)
        for (int t = 0; t < STAGES - 1 && t < tiles; t++) copy(t);

    const int warp_m = warp / 2 * 16, warp_n = warp % 2 * 8;
    float sum[4] = {0, 0, 0, 0};
    for (int t = 0; t < tiles; t++) {
        if (thread == 0 && t + STAGES - 1 < tiles) copy(t + STAGES - 1);
        __syncwarp();
        const int stage = t % STAGES;
        mbarrier_wait(shared_address(&full[stage]), t / STAGES & 1);
        const u32 a_at = shared_address(a_tile[stage]), b_at = shared_address(b_tile[stage]);
        for (int x = 0; x < BK / 8; x += 2) {
            u32 a_part[4], b_part[2];
            ldmatrix_x4(a_part, a_at + chunk_offset(warp_m + lane % 16, x + lane / 16));
            ldmatrix_x2(b_part, b_at + chunk_offset(warp_n + lane % 8, x + lane / 8 % 2));
            mma_bf16(sum, a_part, b_part);
        }
        __syncwarp();
        if (lane < BLOCKS) mbarrier_arrive_in_cluster(in_block(shared_address(&empty[stage]), lane));
    }
    for (int i = 0; i < 4; i++)
        c[(m0 + warp_m + lane / 4 + i / 2 * 8) * n + n0 + warp_n + lane % 4 * 2 + i % 2] = sum[i];
    // Nobody leaves while the other may still arrive at its barriers.
    cluster_sync();
}
