$head

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
constexpr int B_ROW_BYTES = $b_row * sizeof(T);
constexpr int A_BYTES = BM * A_ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + BN * BK * sizeof(T);

static_assert(STAGES >= 2, "a tile is copied while another is computed");

$swizzle
$b_swizzle
$copy_chunk

$async

$loader

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
