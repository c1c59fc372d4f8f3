// ldmatrix, stmatrix and movmatrix: in [16][16] 16-bit numbers, through fragments, to out.
// words [11][32]: the registers of x4, x4.trans, x2 and of movmatrix; stored [16][16] as it was,
// transposed [16][16]: the whole matrix transposed by stmatrix.trans.
#include "ptx_wrappers.cuh"

extern "C" __global__ void __launch_bounds__(32)
    matrix_moves(const u16 *__restrict__ in, u32 *__restrict__ words, u16 *__restrict__ stored,
                 u16 *__restrict__ transposed) {
    __shared__ alignas(16) u16 tile[16][24];
    __shared__ alignas(16) u16 copy[16][24];
    __shared__ alignas(16) u16 flipped[16][24];
    const int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) tile[i / 16][i % 16] = in[i];
    __syncwarp();
    u32 plain[4], trans[4], two[2];
    // Matrix i of four: rows from 8 (i % 2), columns from 8 (i / 2).
    const u32 row = shared_address(&tile[lane % 16][lane / 16 * 8]);
    ldmatrix_x4(plain, row);
    ldmatrix_x4_trans(trans, row);
    ldmatrix_x2(two, shared_address(&tile[lane % 16][8]));
    for (int i = 0; i < 4; i++) words[i * 32 + lane] = plain[i];
    for (int i = 0; i < 4; i++) words[(4 + i) * 32 + lane] = trans[i];
    for (int i = 0; i < 2; i++) words[(8 + i) * 32 + lane] = two[i];
    words[10 * 32 + lane] = movmatrix(plain[1]);
    stmatrix_x4(shared_address(&copy[lane % 16][lane / 16 * 8]), plain);
    // Each 8 x 8 matrix is transposed where it lands; here it also lands in the transposed place.
    stmatrix_x4_trans(shared_address(&flipped[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]), plain);
    __syncwarp();
    for (int i = lane; i < 256; i += 32) {
        stored[i] = copy[i / 16][i % 16];
        transposed[i] = flipped[i / 16][i % 16];
    }
}
