// D = (A scale_a)(B scale_b)^T: one block-scaled m16n8k64 of FP4 (e2m1) with an e4m3 scale for every 16 of K.
// A [16][64], B [8][64] e2m1, two a byte, the lower nibble first; scale_a [16][4], scale_b [8][4]; D [16][8] float.
#include "ptx_wrappers.cuh"

extern "C" __global__ void __launch_bounds__(32)
    mma_nvfp4(const u32 *__restrict__ a, const u32 *__restrict__ b, const u32 *__restrict__ scale_a,
              const u32 *__restrict__ scale_b, float *__restrict__ d) {
    const int lane = threadIdx.x, group = lane / 4, member = lane % 4;
    // A row is eight words of eight elements.
    u32 a_part[4], b_part[2];
    for (int i = 0; i < 4; i++) a_part[i] = a[(group + i % 2 * 8) * 8 + member + i / 2 * 4];
    for (int i = 0; i < 2; i++) b_part[i] = b[group * 8 + member + i * 4];
    // Thread-id 0: the first two lanes of four hold the scales of rows `group` and `group + 8`, the first those of B.
    const u32 a_scales = scale_a[group + member % 2 * 8], b_scales = scale_b[group];
    const u16 zero = 0;
    float sum[4];
    asm volatile(
        "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10}, {%11}, {%13, %13}, {%12}, {%13, %13};"
        : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
        : "r"(a_part[0]), "r"(a_part[1]), "r"(a_part[2]), "r"(a_part[3]), "r"(b_part[0]), "r"(b_part[1]), "f"(0.0f),
          "r"(a_scales), "r"(b_scales), "h"(zero));
    for (int i = 0; i < 4; i++) d[(group + i / 2 * 8) * 8 + member * 2 + i % 2] = sum[i];
}
