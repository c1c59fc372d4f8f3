// The same, each matrix transposed on the way: B is kept with K along its rows' order.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3,
                                                  unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(address));
}

// What a warp needs for one step of MMA_K: pieces of 16 x 16 of A and of B.
__device__ __forceinline__ void load_fragments(unsigned (&a)[MT][4], unsigned (&b)[NT][2], unsigned stage, int warp_row,
                                               int warp_col, int step)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        const int row = warp_row + m * 16 + lane % 16;
        const int chunk = step * 2 + lane / 16;
        ldmatrix_x4(a[m][0], a[m][1], a[m][2], a[m][3],
                    stage + row * A_ROW_BYTES + swizzled<A_ROW_BYTES>(row, chunk) * 16);
    }
    #pragma unroll
    for (int n = 0; n < NT; n += 2) {
        const int row = step * 16 + lane % 16;
        const int chunk = (warp_col + n * 8) / 8 + lane / 16;
        ldmatrix_x4_trans(b[n][0], b[n][1], b[n + 1][0], b[n + 1][1],
                          stage + A_BYTES + row * B_ROW_BYTES + swizzled<B_ROW_BYTES>(row, chunk) * 16);
    }
}
