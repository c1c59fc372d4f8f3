// First pass. Grid: one block for each tile of C (x), one for each chunk of K of each matrix of the batch (z).
// W is a workspace of SPLIT_K x batch x M x N sums: chunk c of matrix z has its own part, so the order of the
// additions in the second pass, and with it every bit of the result, is always the same.
extern "C" __global__ void __launch_bounds__($bounds)
$name(const T* __restrict__ A, const T* __restrict__ B, Sum* __restrict__ W, int M, int N, int K)
{
    extern __shared__ __align__(128) unsigned char smem[];
    // The wrong vectors for these matrices: stop, rather than read beside them.
    if (K % VEC_A || N % VEC_B || N % VEC_C || (size_t)A % (VEC_A * sizeof(T)) || (size_t)B % (VEC_B * sizeof(T))) {
        __trap();
    }
    const int matrices = gridDim.z / SPLIT_K;
    const int matrix = blockIdx.z / SPLIT_K;
    const int chunk = blockIdx.z % SPLIT_K;
    A += (size_t)matrix * M * K;
    B += (size_t)matrix * K * N;
    W += ((size_t)chunk * matrices + matrix) * M * N;
    const unsigned ring = static_cast<unsigned>(__cvta_generic_to_shared(smem));
    const int k_tiles = (K + BK - 1) / BK;
    const int share = (k_tiles + SPLIT_K - 1) / SPLIT_K;
    const int first = min(chunk * share, k_tiles);
    const int last = min(first + share, k_tiles);  // a chunk may be empty: its sums are zeros
    int row0;
    int col0;
    place_of(blockIdx.x, M, N, row0, col0);
    Sum sums$sums_shape = {};
    multiply_tiles(sums, ring, Loader(A, B, row0, col0, first, last - first, M, N, K), last - first);
    store_sums(sums, W, row0, col0, M, N);
}

constexpr int REDUCE_THREADS = 256;

// Second pass. Grid: one thread for each element of C, count = batch * M * N.
extern "C" __global__ void __launch_bounds__(REDUCE_THREADS)
${name}_reduce(const Sum* __restrict__ W, Out* __restrict__ C, long long count)
{
    const long long i = (long long)blockIdx.x * REDUCE_THREADS + threadIdx.x;
    if (i < count) {
        Sum sum = W[i];
        #pragma unroll
        for (int chunk = 1; chunk < SPLIT_K; ++chunk) {
            sum += W[chunk * count + i];
        }
        C[i] = $to_one(sum);
    }
}
