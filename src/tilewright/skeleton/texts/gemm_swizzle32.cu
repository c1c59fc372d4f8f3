
// Four rows and two chunks of each are read together from B: the rows lie two chunks apart.
__device__ __forceinline__ int swizzled_b(int row, int chunk)
{
    return chunk ^ (row % 4 * 2);
}
