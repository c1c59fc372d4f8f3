// Attention, forward: O = softmax(scale * Q * K^T) * V for every head; $type_words in and out, sums in FP32.
// Q, K, V and O are heads x N x D, row-major.
//
// A block keeps BM queries of one head and walks the keys in tiles of BN through a ring of STAGES buffers; each warp
// has its own rows of queries, so no warp waits for another's softmax. The running sums are rescaled when a larger
// score appears, so a row of scores is never kept (Milakov and Gimelshein 2018; Dao 2023).
//
// N is free; what lies beyond is read as zeros and masked. The pointers must be 16-byte aligned.

$includes

constexpr int BM = $bm;       // queries that a block keeps
constexpr int BN = $bn;        // keys of a tile
constexpr int D = $d;        // of a head
constexpr int WARPS = $warps;
constexpr int STAGES = $stages;    // buffers of the ring, each of a tile of K and one of V
constexpr bool CAUSAL = $causal;  // a query sees no later key

using T = $element;
using Sum = float;

constexpr int THREADS = WARPS * 32;
constexpr int WM = BM / WARPS;   // queries of a warp
constexpr int MT = WM / 16;
constexpr int NT = BN / 8;       // pieces of eight scores
constexpr int DT = D / 8;        // pieces of eight columns of O
constexpr int ROW_BYTES = D * sizeof(T);
constexpr int ROW_CHUNKS = ROW_BYTES / 16;
constexpr int Q_BYTES = BM * ROW_BYTES;
constexpr int TILE_BYTES = BN * ROW_BYTES;
constexpr int STAGE_BYTES = 2 * TILE_BYTES;
static_assert(BM % (WARPS * 16) == 0 && BN % 16 == 0 && D % 16 == 0, "whole pieces of 16 x 16");

#define MINUS_INFINITY __int_as_float(0xff800000)  // NVRTC has no INFINITY without a header

$swizzle

$async

// `rows` rows of a head into shared memory, from row0 on; rows from `end` on become zeros and are not read.
template <int ROWS>
__device__ __forceinline__ void copy_rows(unsigned to, const T* head, int row0, int end)
{
    #pragma unroll
    for (int i = threadIdx.x; i < ROWS * ROW_CHUNKS; i += THREADS) {
        const int row = i / ROW_CHUNKS;
        const int chunk = i % ROW_CHUNKS;
        const int size = row0 + row < end ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
                     :: "r"(to + row * ROW_BYTES + swizzled<ROW_BYTES>(row, chunk) * 16),
                        "l"(head + (size_t)(row0 + row) * D + chunk * (16 / (int)sizeof(T))), "r"(size));
    }
}

$ldmatrix

$ldmatrix_trans
$multiply

// scores = Q * K^T for a warp's queries and a tile of keys. K's rows are columns of K^T: as ldmatrix brings them.
__device__ __forceinline__ void score(float (&scores)[MT][NT][4], unsigned queries, unsigned keys, int warp_row)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int step = 0; step < D / 16; ++step) {
        unsigned a[MT][4];
        #pragma unroll
        for (int m = 0; m < MT; ++m) {
            const int row = warp_row + m * 16 + lane % 16;
            ldmatrix_x4(a[m][0], a[m][1], a[m][2], a[m][3],
                        queries + row * ROW_BYTES + swizzled<ROW_BYTES>(row, step * 2 + lane / 16) * 16);
        }
        #pragma unroll
        for (int n = 0; n < NT; n += 2) {
            unsigned b[2][2];
            const int row = n * 8 + lane / 16 * 8 + lane % 8;
            ldmatrix_x4(b[0][0], b[0][1], b[1][0], b[1][1],
                        keys + row * ROW_BYTES + swizzled<ROW_BYTES>(row, step * 2 + lane / 8 % 2) * 16);
            #pragma unroll
            for (int m = 0; m < MT; ++m) {
                multiply(scores[m][n], a[m], b[0]);
                multiply(scores[m][n + 1], a[m], b[1]);
            }
        }
    }
}

// Scores of keys that do not exist or that a query may not see.
__device__ __forceinline__ void mask(float (&scores)[MT][NT][4], int query0, int key0, int N)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        #pragma unroll
        for (int n = 0; n < NT; ++n) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int query = query0 + m * 16 + i / 2 * 8 + lane / 4;
                const int key = key0 + n * 8 + lane % 4 * 2 + i % 2;
                if (key >= N || (CAUSAL && key > query)) {
                    scores[m][n][i] = MINUS_INFINITY;
                }
            }
        }
    }
}

// The largest, or the sum, over the four lanes that hold a row.
__device__ __forceinline__ float largest_of_row(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ __forceinline__ float sum_of_row(float x)
{
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// Scores become exp(scale * (score - largest so far)), and what was summed before is rescaled to that. Every row has
// seen a key by then (the first tile holds key 0), so `largest` is a number.
__device__ __forceinline__ void soften(float (&scores)[MT][NT][4], float (&out)[MT][DT][4], float (&largest)[MT][2],
                                       float (&sum)[MT][2], float scale_log2)
{
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            float now = largest[m][half];
            #pragma unroll
            for (int n = 0; n < NT; ++n) {
                now = fmaxf(now, fmaxf(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
            }
            now = largest_of_row(now);
            const float rescale = exp2f((largest[m][half] - now) * scale_log2);
            largest[m][half] = now;
            float part = 0.0f;  // of this lane's columns; the lanes' parts are added at the end
            #pragma unroll
            for (int n = 0; n < NT; ++n) {
                #pragma unroll
                for (int i = half * 2; i < half * 2 + 2; ++i) {
                    scores[m][n][i] = exp2f((scores[m][n][i] - now) * scale_log2);
                    part += scores[m][n][i];
                }
            }
            sum[m][half] = sum[m][half] * rescale + part;
            #pragma unroll
            for (int d = 0; d < DT; ++d) {
                out[m][d][half * 2] *= rescale;
                out[m][d][half * 2 + 1] *= rescale;
            }
        }
    }
}

__device__ __forceinline__ unsigned packed(float low, float high)
{
    const $pair pair = $to_pair(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}

// out += P * V. The lanes hold the sums of one product just as the next one wants its operand.
__device__ __forceinline__ void weigh(float (&out)[MT][DT][4], const float (&p)[MT][NT][4], unsigned values)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int step = 0; step < NT / 2; ++step) {
        unsigned a[MT][4];
        #pragma unroll
        for (int m = 0; m < MT; ++m) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float* pair = p[m][step * 2 + i / 2] + i % 2 * 2;
                a[m][i] = packed(pair[0], pair[1]);
            }
        }
        #pragma unroll
        for (int d = 0; d < DT; d += 2) {
            unsigned b[2][2];
            const int row = step * 16 + lane % 16;
            ldmatrix_x4_trans(b[0][0], b[0][1], b[1][0], b[1][1],
                              values + row * ROW_BYTES + swizzled<ROW_BYTES>(row, d + lane / 16) * 16);
            #pragma unroll
            for (int m = 0; m < MT; ++m) {
                multiply(out[m][d], a[m], b[0]);
                multiply(out[m][d + 1], a[m], b[1]);
            }
        }
    }
}

// The warp's rows leave through the shared rows of its own queries, in chunks of 16 bytes; each is written once.
__device__ __forceinline__ void store(float (&out)[MT][DT][4], float (&sum)[MT][2], unsigned char* queries, T* head,
                                      int warp_row, int row0, int N)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float share = 1.0f / sum_of_row(sum[m][half]);
            const int row = warp_row + m * 16 + half * 8 + lane / 4;
            #pragma unroll
            for (int d = 0; d < DT; ++d) {
                unsigned char* at = queries + row * ROW_BYTES + swizzled<ROW_BYTES>(row, d) * 16 + lane % 4 * 4;
                *reinterpret_cast<unsigned*>(at)
                    = packed(out[m][d][half * 2] * share, out[m][d][half * 2 + 1] * share);
            }
        }
    }
    __syncwarp();
    #pragma unroll
    for (int i = lane; i < WM * ROW_CHUNKS; i += 32) {
        const int row = warp_row + i / ROW_CHUNKS;
        const int chunk = i % ROW_CHUNKS;
        if (row0 + row < N) {
            *reinterpret_cast<uint4*>(head + (size_t)(row0 + row) * D + chunk * (16 / (int)sizeof(T)))
                = *reinterpret_cast<const uint4*>(queries + row * ROW_BYTES + swizzled<ROW_BYTES>(row, chunk) * 16);
        }
    }
}

// Grid: tiles of queries (x), heads of all batches (y). The last tiles come first: a causal mask makes them longest.
// The bound of one block keeps ptxas from spilling for the sake of more.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
$name(const T* __restrict__ Q, const T* __restrict__ K, const T* __restrict__ V, T* __restrict__ O, int N,
      float scale)
{
    extern __shared__ __align__(128) unsigned char smem[];
    if (((size_t)Q | (size_t)K | (size_t)V | (size_t)O) % 16) {
        __trap();
    }
    const size_t head = (size_t)blockIdx.y * N * D;
    const int row0 = (gridDim.x - 1 - blockIdx.x) * BM;
    const int warp_row = threadIdx.x / 32 * WM;
    const int keys = CAUSAL ? min(N, row0 + BM) : N;
    const int tiles = (keys + BN - 1) / BN;
    const unsigned queries = static_cast<unsigned>(__cvta_generic_to_shared(smem));
    const unsigned ring = queries + Q_BYTES;
    const float scale_log2 = scale * 1.44269504f;

    float out[MT][DT][4] = {};
    float sum[MT][2] = {};
    float largest[MT][2];
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        largest[m][0] = largest[m][1] = MINUS_INFINITY;
    }
    copy_rows<BM>(queries, Q + head, row0, N);  // belongs to the first group
    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < tiles) {
            copy_rows<BN>(ring + s * STAGE_BYTES, K + head, s * BN, N);
            copy_rows<BN>(ring + s * STAGE_BYTES + TILE_BYTES, V + head, s * BN, N);
        }
        commit_copies();
    }
    #pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        if constexpr (STAGES > 1) {
            wait_copies<STAGES - 2>();
        }
        __syncthreads();  // this tile is there, and the stage that is written next is no longer read
        const int ahead = tile + STAGES - 1;
        if (ahead < tiles) {
            const unsigned stage = ring + ahead % STAGES * STAGE_BYTES;
            copy_rows<BN>(stage, K + head, ahead * BN, N);
            copy_rows<BN>(stage + TILE_BYTES, V + head, ahead * BN, N);
        }
        commit_copies();
        if constexpr (STAGES == 1) {
            wait_copies<0>();
            __syncthreads();
        }
        const unsigned stage = ring + tile % STAGES * STAGE_BYTES;
        float scores[MT][NT][4] = {};
        score(scores, queries, stage, warp_row);
        const int key0 = tile * BN;
        if (key0 + BN > N || (CAUSAL && key0 + BN > row0 + warp_row)) {
            mask(scores, row0 + warp_row, key0, N);
        }
        soften(scores, out, largest, sum, scale_log2);
        weigh(out, scores, stage + TILE_BYTES);
    }
    wait_copies<0>();
    __syncwarp();  // the warp has read its queries for the last time
    store(out, sum, smem, O + head, warp_row, row0, N);
}
