// C = A B^T by one warpgroup: TMA with the 128-byte swizzle, wgmma m64n64, one group in flight.
// A [M][K], B [N][K], K-major; ELEMENT 0: bf16, 1: e4m3, 2: s8. C [M][N] float, or int for s8.
// M, N multiples of 64, K of 128 bytes. 128 threads, a 64 x 64 tile of C a block.
#include "wgmma_wrappers.cuh"

constexpr int BM = 64, BN = 64, ROW_BYTES = 128;
constexpr int THREADS = 128;
constexpr int STAGES = 3;
constexpr int A_BYTES = BM * ROW_BYTES, B_BYTES = BN * ROW_BYTES;
constexpr int BK = ELEMENT == 0 ? 64 : 128;

#if ELEMENT == 2
typedef int Sum;
#else
typedef float Sum;
#endif

DEVICE void multiply(Sum (&sum)[32], u64 a, u64 b, int accumulate) {
#if ELEMENT == 0
    wgmma_bf16(sum, a, b, accumulate);
#elif ELEMENT == 1
    wgmma_e4m3(sum, a, b, accumulate);
#else
    wgmma_s8(sum, a, b, accumulate);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_wgmma(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, Sum *__restrict__ c, int n,
               int k) {
    extern __shared__ unsigned char dynamic[];
    __shared__ alignas(8) u64 full[STAGES];
    __shared__ alignas(8) u64 empty[STAGES];
    const u32 tiles_at = (shared_address(dynamic) + 1023) / 1024 * 1024;
    const int thread = threadIdx.x;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    if (thread == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(shared_address(&full[s]), 1);
            mbarrier_init(shared_address(&empty[s]), THREADS);
        }
        fence_mbarrier_init();
        fence_proxy_async();
    }
    __syncthreads();

    const int tiles = k / BK;
    auto a_at = [&](int t) { return tiles_at + t % STAGES * (A_BYTES + B_BYTES); };
    auto copy = [&](int t) {
        const int stage = t % STAGES;
        if (t >= STAGES) mbarrier_wait(shared_address(&empty[stage]), (t / STAGES - 1) & 1);
        const u32 barrier = shared_address(&full[stage]);
        mbarrier_arrive_expect(barrier, A_BYTES + B_BYTES);
        tma_load(a_at(t), &a_map, t * BK, m0, barrier);
        tma_load(a_at(t) + A_BYTES, &b_map, t * BK, n0, barrier);
    };
    if (thread == 0)
        for (int t = 0; t < STAGES - 1 && t < tiles; t++) copy(t);
    __syncwarp();

    Sum sum[32];
    for (int i = 0; i < 32; i++) sum[i] = 0;
    for (int t = 0; t < tiles; t++) {
        mbarrier_wait(shared_address(&full[t % STAGES]), t / STAGES & 1);
        wgmma_fence();
        // 32 bytes of K an instruction, inside the swizzle atom.
        for (int x = 0; x < ROW_BYTES; x += 32)
            multiply(sum, descriptor_128b(a_at(t) + x, 1024), descriptor_128b(a_at(t) + A_BYTES + x, 1024), t + x > 0);
        wgmma_commit();
        // All but this tile's group: the tile before has been read.
        wgmma_wait<1>();
        if (t > 0) mbarrier_arrive(shared_address(&empty[(t - 1) % STAGES]));
        if (thread == 0 && t + STAGES - 1 < tiles) copy(t + STAGES - 1);
        __syncwarp();
    }
    wgmma_wait<0>();
    for (int i = 0; i < 32; i++)
        c[(m0 + accumulator_row(thread, i)) * n + n0 + accumulator_column(thread, i)] = sum[i];
}
