// Which chunk of its row a chunk is kept in. Rows shorter than 128 bytes share a line of banks, so they change in turn.
template <int ROW_BYTES>
__device__ __forceinline__ int swizzled(int row, int chunk)
{
    constexpr int ROWS_PER_LINE = ROW_BYTES >= 128 ? 1 : 128 / ROW_BYTES;
    constexpr int CHUNKS = ROW_BYTES >= 128 ? 8 : ROW_BYTES / 16;
    return chunk ^ (row / ROWS_PER_LINE % CHUNKS);
}
