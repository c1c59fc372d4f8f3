
// B's rows are read in another order (see load_fragments), so other rows have to lie apart.
__device__ __forceinline__ int swizzled_b(int row, int chunk)
{
    constexpr int CHUNKS = B_ROW_BYTES >= 128 ? 8 : B_ROW_BYTES / 16;
    const int key = CHUNKS == 8 ? row % 2 + row / 4 % 4 * 2 : row / 4 % CHUNKS;
    return chunk ^ key;
}
