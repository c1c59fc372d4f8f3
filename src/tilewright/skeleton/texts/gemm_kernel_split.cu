// The sums of one chunk of K, as they are. Pairs where N is even, so that they are aligned.
__device__ __forceinline__ void store_sums(const Sum (&sums)[MT][NT][4], Sum* W, int row0, int col0, int M, int N)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    row0 += warp / WARPS_N * WM + lane / 4;
    col0 += warp % WARPS_N * WN + lane % 4 * 2;
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        #pragma unroll
        for (int n = 0; n < NT; ++n) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = row0 + m * 16 + half * 8;
                const int col = col0 + n * 8;
                Sum* to = W + (size_t)row * N + col;
                if constexpr (VEC_C % 2 == 0) {
                    if (row < M && col < N) {
                        *reinterpret_cast<${accumulator}2*>(to)
                            = make_${accumulator}2(sums[m][n][half * 2], sums[m][n][half * 2 + 1]);
                    }
                } else {
                    if (row < M && col < N) {
                        to[0] = sums[m][n][half * 2];
                    }
                    if (row < M && col + 1 < N) {
                        to[1] = sums[m][n][half * 2 + 1];
                    }
                }
            }
        }
    }
}

// First pass. Grid: one block for each tile of C (x), one for each chunk of K of each matrix of the batch (z).
// W is a workspace of SPLIT_K x batch x M x N sums: chunk c of matrix z has its own part, so the order of the
// additions in the second pass, and with it every bit of the result, is always the same.
extern "C" __global__ void __launch_bounds__(THREADS)
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
    Sum sums[MT][NT][4] = {};
    multiply_tiles(sums, ring, A, B, row0, col0, first, last, M, N, K);
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
