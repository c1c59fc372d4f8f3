    // ldmatrix transposes pairs of bytes. The order of its rows is free: those that are chosen here bring four
    // neighbours in K to one lane, for two columns; the permutes part the columns. So the matrix instruction n makes
    // the even ones of 16 columns, and n + 1 the odd ones.
    #pragma unroll
    for (int n = 0; n < NT; n += 2) {
        const int matrix = lane / 8;
        const int row = step * 32 + matrix / 2 * 16 + lane % 8 / 2 * 4 + matrix % 2 * 2 + lane % 2;
        const int chunk = (warp_col + n * 8) / 16;
        unsigned r[4];
        ldmatrix_x4_trans(r[0], r[1], r[2], r[3],
                          stage + A_BYTES + row * B_ROW_BYTES + swizzled_b(row, chunk) * 16);
        b[n][0] = __byte_perm(r[0], r[1], 0x6420);
        b[n][1] = __byte_perm(r[2], r[3], 0x6420);
        b[n + 1][0] = __byte_perm(r[0], r[1], 0x7531);
        b[n + 1][1] = __byte_perm(r[2], r[3], 0x7531);
    }
