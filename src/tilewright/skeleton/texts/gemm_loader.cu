// The load phase. A thread copies the same chunk of every A_STEP-th row of A's tile, and of every B_STEP-th row of B's.
struct Loader {
    static constexpr int A_CHUNKS = BK / CHUNK;  // of a row
    static constexpr int B_CHUNKS = BN / CHUNK;
    static constexpr int A_STEP = THREADS / A_CHUNKS;
    static constexpr int B_STEP = THREADS / B_CHUNKS;
    static_assert(THREADS % A_CHUNKS == 0 && THREADS % B_CHUNKS == 0, "a thread stays in its column of chunks");

    const T* a;        // this thread's first chunk of the tile that is copied next
    const T* b;
    int a_rows_left;   // rows of A from this thread's first one
    int b_cols_left;   // columns of B from this thread's first one
    int k_left;        // depth from the next tile's first column on
    int tiles_left;
    int K;
    int N;

    // Of the tile of C at (row0, col0), from tile k_tile in K on.
    __device__ __forceinline__ Loader(const T* A, const T* B, int row0, int col0, int k_tile, int tiles, int M, int N,
                                      int K)
        : tiles_left(tiles), K(K), N(N)
    {
        const int a_row = row0 + threadIdx.x / A_CHUNKS;
        const int b_col = col0 + threadIdx.x % B_CHUNKS * CHUNK;
        a = A + (size_t)a_row * K + k_tile * BK + threadIdx.x % A_CHUNKS * CHUNK;
        b = B + (size_t)(k_tile * BK + threadIdx.x / B_CHUNKS) * N + b_col;
        a_rows_left = M - a_row;
        b_cols_left = N - b_col;
        k_left = K - k_tile * BK;
    }

    // The next tile into a stage of the ring. Behind the last tile nothing is copied.
    __device__ __forceinline__ void copy(unsigned stage)
    {
        const int a_row = threadIdx.x / A_CHUNKS;
        const int a_chunk = threadIdx.x % A_CHUNKS;
        #pragma unroll
        for (int i = 0; i < BM; i += A_STEP) {
            const int row = a_row + i;
            const int left = i < a_rows_left ? k_left - a_chunk * CHUNK : 0;
            copy_chunk<VEC_A>(stage + row * A_ROW_BYTES + swizzled<A_ROW_BYTES>(row, a_chunk) * 16, a + (size_t)i * K,
                              left, tiles_left > 0 && (BM % A_STEP == 0 || row < BM));
        }
        const int b_row = threadIdx.x / B_CHUNKS;
        const int b_chunk = threadIdx.x % B_CHUNKS;
        #pragma unroll
        for (int i = 0; i < BK; i += B_STEP) {
            const int row = b_row + i;
            const int left = row < k_left ? b_cols_left : 0;
            copy_chunk<VEC_B>(stage + A_BYTES + row * B_ROW_BYTES + $b_swizzled(row, b_chunk) * 16,
                              b + (size_t)i * N, left, tiles_left > 0 && (BK % B_STEP == 0 || row < BK));
        }
        a += BK;
        b += (size_t)BK * N;
        k_left -= BK;
        --tiles_left;
    }
};
