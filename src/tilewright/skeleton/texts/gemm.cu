// $title
// C[z] = A[z] * B[z] for z < batch; A is M x K, B is K x N, C is M x N, all row-major.
//
// One block makes a BM x BN tile of C with WARPS_M x WARPS_N warps. The K-loop walks tiles of BK columns of A and
// BK rows of B through a ring of STAGES buffers in shared memory, filled by asynchronous copies.
//
// Shared rows are cut into chunks of 16 bytes, and a chunk is kept at (chunk XOR row): eight rows that ldmatrix reads
// together then lie in eight different groups of banks, without padding.
//
// M, N and K are free. Rows of A are read VEC_A elements at a time, rows of B VEC_B, rows of C are written VEC_C at a
// time: K must be a multiple of VEC_A, N of VEC_B and VEC_C, and the pointers as well aligned. 1 fits everything.

$includes

constexpr int BM = $bm;        // rows of C that a block makes
constexpr int BN = $bn;        // columns
constexpr int BK = $bk;         // depth of a tile
constexpr int WARPS_M = $warps_m;
constexpr int WARPS_N = $warps_n;
constexpr int STAGES = $stages;     // buffers of the ring: STAGES - 1 tiles are on their way
constexpr int SPLIT_K = $split_k;    // blocks that share the K-loop of one tile
constexpr int GROUP_M = $group_m;    // row blocks that are walked together, so that they meet in L2
constexpr int VEC_A = $vec_a;
constexpr int VEC_B = $vec_b;
constexpr int VEC_C = $vec_c;

using T = $element;
using Sum = $accumulator;
using Out = $output;

constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int WM = BM / WARPS_M;           // rows that a warp makes
constexpr int WN = BN / WARPS_N;
$shape_constants
constexpr int CHUNK = 16 / sizeof(T);      // elements in 16 bytes
constexpr int A_ROW_BYTES = BK * sizeof(T);
constexpr int B_ROW_BYTES = BN * sizeof(T);
constexpr int A_BYTES = BM * A_ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + BK * B_ROW_BYTES;

static_assert(STAGES >= 2, "a tile is copied while another is computed");

$swizzle
$b_swizzle
$copy_chunk

$async

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

    __device__ __forceinline__ Loader(const T* A, const T* B, int row0, int col0, int k_tile, int k_tile_end, int M,
                                      int N, int K)
        : K(K), N(N)
    {
        const int a_row = row0 + threadIdx.x / A_CHUNKS;
        const int b_col = col0 + threadIdx.x % B_CHUNKS * CHUNK;
        a = A + (size_t)a_row * K + k_tile * BK + threadIdx.x % A_CHUNKS * CHUNK;
        b = B + (size_t)(k_tile * BK + threadIdx.x / B_CHUNKS) * N + b_col;
        a_rows_left = M - a_row;
        b_cols_left = N - b_col;
        k_left = K - k_tile * BK;
        tiles_left = k_tile_end - k_tile;
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
            copy_chunk<VEC_B>(stage + A_BYTES + row * B_ROW_BYTES + $b_swizzled(row, b_chunk) * 16, b + (size_t)i * N,
                              left, tiles_left > 0 && (BK % B_STEP == 0 || row < BK));
        }
        a += BK;
        b += (size_t)BK * N;
        k_left -= BK;
        --tiles_left;
    }
};

$compute

// Tile number `tile` of C: GROUP_M row blocks are walked column by column before the next ones begin.
__device__ __forceinline__ void place_of(int tile, int M, int N, int& row0, int& col0)
{
    const int rows = (M + BM - 1) / BM;
    const int columns = (N + BN - 1) / BN;
    const int group = tile / (GROUP_M * columns);
    const int first = group * GROUP_M;
    const int height = min(rows - first, GROUP_M);
    const int inside = tile - group * GROUP_M * columns;
    row0 = (first + inside % height) * BM;
    col0 = inside / height * BN;
}

$kernel
