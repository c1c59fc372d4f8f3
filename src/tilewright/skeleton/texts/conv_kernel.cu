static_assert(SPLIT_K == 1, "one block sums all of K");

// Grid: one block for each tile of pixels and filters.
extern "C" __global__ void __launch_bounds__($bounds)
$name(const T* __restrict__ X, const T* __restrict__ F, Out* __restrict__ Y, int images, int H, int W, int C,
     int filters)
{
    extern __shared__ __align__(128) unsigned char smem[];
    // The wrong vectors for this shape: stop, rather than read beside it.
    if (C % VEC_A || C % VEC_B || filters % VEC_C || (size_t)X % (VEC_A * sizeof(T)) || (size_t)F % (VEC_B * sizeof(T))
        || (size_t)Y % (VEC_C * sizeof(Out))) {
        __trap();
    }
    // Places are kept in 16 bits (a row or a column of an image) and in 31 (a pixel of all images).
    if (H > 0x7fff - R || W > 0x7fff - S || (long long)images * H * W > 0x7fffffff) {
        __trap();
    }
    const Shape shape = {H, W, C, (H + 2 * PAD - R) / STRIDE + 1, (W + 2 * PAD - S) / STRIDE + 1};
    const int M = images * shape.P * shape.Q;
    const int K = R * S * C;
    const unsigned ring = static_cast<unsigned>(__cvta_generic_to_shared(smem));
    const int k_tiles = (K + BK - 1) / BK;
    int row0;
    int col0;
    place_of(blockIdx.x, M, filters, row0, col0);
    Sum sums$sums_shape = {};
    multiply_tiles(sums, ring, Loader(X, F, row0, col0, k_tiles, M, filters, K, shape), k_tiles);
    $store_call Y, row0, col0, M, filters);
}
