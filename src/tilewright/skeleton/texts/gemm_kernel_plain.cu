static_assert(SPLIT_K == 1, "one block sums all of K");

// Grid: one block for each tile of C (x), one for each matrix of the batch (z).
extern "C" __global__ void __launch_bounds__($bounds)
$name(const T* __restrict__ A, const T* __restrict__ B, Out* __restrict__ C, int M, int N, int K)
{
    extern __shared__ __align__(128) unsigned char smem[];
    // The wrong vectors for these matrices: stop, rather than read beside them.
    if (K % VEC_A || N % VEC_B || N % VEC_C || (size_t)A % (VEC_A * sizeof(T)) || (size_t)B % (VEC_B * sizeof(T))
        || (size_t)C % (VEC_C * sizeof(Out))) {
        __trap();
    }
    A += (size_t)blockIdx.z * M * K;
    B += (size_t)blockIdx.z * K * N;
    C += (size_t)blockIdx.z * M * N;
    const unsigned ring = static_cast<unsigned>(__cvta_generic_to_shared(smem));
    const int k_tiles = (K + BK - 1) / BK;
    int row0;
    int col0;
    place_of(blockIdx.x, M, N, row0, col0);
    Sum sums$sums_shape = {};
    multiply_tiles(sums, ring, Loader(A, B, row0, col0, 0, k_tiles, M, N, K), k_tiles);
    $store_call C, row0, col0, M, N);
}
