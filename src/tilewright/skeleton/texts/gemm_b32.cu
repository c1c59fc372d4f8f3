    // No ldmatrix transposes 32-bit elements: each is read by itself.
    #pragma unroll
    for (int n = 0; n < NT; ++n) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = step * 8 + half * 4 + lane % 4;
            const int col = warp_col + n * 8 + lane / 4;
            float value;
            asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(value)
                         : "r"(stage + A_BYTES + row * B_ROW_BYTES + swizzled_b(row, col / 4) * 16 + col % 4 * 4));
            b[n][half] = rounded(value);
        }
    }
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            a[m][i] = rounded(__uint_as_float(a[m][i]));
        }
    }
