    #pragma unroll
    for (int n = 0; n < NT; n += 2) {
        const int row = step * 16 + lane % 16;
        const int chunk = (warp_col + n * 8) / 8 + lane / 16;
        ldmatrix_x4_trans(b[n][0], b[n][1], b[n + 1][0], b[n + 1][1],
                          stage + A_BYTES + row * B_ROW_BYTES + swizzled<B_ROW_BYTES>(row, chunk) * 16);
    }
