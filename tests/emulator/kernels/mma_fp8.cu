// C = A B^T with m16n8k32 of FP8; A e4m3 [16][K], B e5m2 [8][K], C [16][8] float. K a multiple of 32. One warp.
#include "ptx_wrappers.cuh"

extern "C" __global__ void __launch_bounds__(32)
    mma_fp8(const unsigned char *__restrict__ a, const unsigned char *__restrict__ b, float *__restrict__ c, int k) {
    const int lane = threadIdx.x, group = lane / 4, member = lane % 4;
    float sum[4] = {0, 0, 0, 0};
    for (int t = 0; t < k; t += 32) {
        u32 a_part[4], b_part[2];
        for (int i = 0; i < 4; i++)
            a_part[i] = *(const u32 *)(a + (group + i % 2 * 8) * k + t + member * 4 + i / 2 * 16);
        for (int i = 0; i < 2; i++) b_part[i] = *(const u32 *)(b + group * k + t + member * 4 + i * 16);
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a_part[0]), "r"(a_part[1]), "r"(a_part[2]), "r"(a_part[3]), "r"(b_part[0]), "r"(b_part[1]));
    }
    for (int i = 0; i < 4; i++) c[(group + i / 2 * 8) * 8 + member * 2 + i % 2] = sum[i];
}
