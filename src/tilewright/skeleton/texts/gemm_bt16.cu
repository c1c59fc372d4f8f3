    // B's rows in memory are its columns: as ldmatrix brings them.
    #pragma unroll
    for (int n = 0; n < NT; n += 2) {
        const int row = warp_col + n * 8 + lane / 16 * 8 + lane % 8;
        const int chunk = step * 2 + lane / 8 % 2;
        ldmatrix_x4(b[n][0], b[n][1], b[n + 1][0], b[n + 1][1],
                    stage + A_BYTES + row * B_ROW_BYTES + swizzled<B_ROW_BYTES>(row, chunk) * 16);
    }
