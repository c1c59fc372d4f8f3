// Sizes that no tile divides cost the main loop nothing, neither masks nor another path for all blocks where K is no
// multiple of a tile. Rows and columns beyond the edge are copies of the last ones: what comes of them is not stored. And
// what is left over of K is the first tile, not the last one: it is copied before the loop, with zeros behind it, and what
// the loop copies is whole.
#include <cuda_pipeline.h>

#include "arrivals.cuh"
#include "cluster.cuh"
#include "dependent.cuh"

#ifndef TW_BM
#define TW_BM 64
#define TW_BN 64
#define TW_TN 8
#define TW_BK 16
#define TW_STAGES 3
#define TW_PARTS 2
#endif

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = TW_BK;
constexpr int TM = 8;
constexpr int TN = TW_TN;
constexpr int WM = 4 * TM;
constexpr int WN = 8 * TN;
constexpr int PARTS = TW_PARTS;  // of K: 1, 2, 4 or 8
constexpr int STAGES = TW_STAGES;
// The step of a tile whose reads a warp arrives after. With two stages the next copies go to where it reads: the last.
constexpr int ARRIVAL = STAGES == 2 ? BK - 1 : BK - 4;
constexpr int BAND = 8;  // rows of tiles that are made column by column
constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int BLOCKS = 4096 / TN / THREADS;  // that an SM has registers for
constexpr int A_ROWS = THREADS / 16;         // that a pass copies, 16 elements each
constexpr int B_ROWS = THREADS / (BN / 4);
constexpr int A_STAGE = BK * (BM + 4);  // turned
constexpr int B_STAGE = BK * BN;
static_assert(TM % PARTS == 0, "every block adds up as many rows as the others");
static_assert(STAGES == 2 || STAGES == 3, "the copies are one tile ahead");
static_assert(BK == 16, "a pass copies whole rows of A, and no thread more than one piece of each");
static_assert(THREADS % (BN / 4) == 0, "a pass copies whole rows of B");

// The products of a tile's rows and columns, of which there are so many, and of `steps` tiles of K, added to the sums. The
// first has `first` terms, the others BK; there are `left` tiles of K from here to the end.
template <bool WHOLE>
__device__ __forceinline__ void add_products(float (&sums)[TM][TN], float* ring, Arrivals* landed, const float* a,
                                             const float* b, int ld_a, int ld_b, int rows, int columns, int first,
                                             int steps, int left) {
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int a_row = tid / 16;
    const int a_k = tid % 16;
    const int b_k = tid / (BN / 4);
    const int b_column = tid % (BN / 4) * 4;
    // Where K is a single tile, the loop copies once more what there is of it: nobody reads that.
    const int a_again = left > 1 ? 0 : min(0, first - 1 - a_k);
    const int b_again = left > 1 ? 0 : -b_k;
    const long long a_step = (long long)A_ROWS * ld_a;
    const long long b_step = (long long)B_ROWS * ld_b;
    a += (long long)(WHOLE ? a_row : min(a_row, rows - 1)) * ld_a + a_k;
    b += (long long)b_k * ld_b + (WHOLE ? b_column : min(b_column, columns - 4));
    // A warp copies 16 elements of two rows. In the upper 8, rows two apart change places: no bank is hit twice.
    float* const a_to = ring + a_k * (BM + 4) + (a_row ^ a_k / 8 * 2);
    float* const b_to = ring + STAGES * A_STAGE + b_k * BN + b_column;
    const float* const a_from = ring + warp / (BN / WN) * WM + (lane / 16 * 2 + lane % 2) * 4;
    const float* const b_from = ring + STAGES * A_STAGE + warp % (BN / WN) * WN + lane % 16 / 2 * 4;

    // `terms` of BK are there.
    auto copy_tile = [&](int terms, long long b_by, int stage) {
        const float* a_next = a;
        #pragma unroll
        for (int i = 0; i < BM; i += A_ROWS) {
            __pipeline_memcpy_async(&a_to[stage * A_STAGE + i], a_next, 4,
                                    terms == BK || a_k < terms ? 0 : 4);
            if (WHOLE || a_row + i + A_ROWS < rows) a_next += a_step;
        }
        const float* b_next = b;
        #pragma unroll
        for (int k = 0; k < BK; k += B_ROWS) {
            __pipeline_memcpy_async(&b_to[stage * B_STAGE + k * BN], b_next, 16,
                                    terms == BK || b_k + k < terms ? 0 : 16);
            b_next += b_by;
        }
    };

    auto arrive_when_landed = [&] {
        __pipeline_wait_prior(0);
        __syncwarp();  // lane 0 arrives for the warp's other lanes, too
        if (lane == 0) arrive(landed);
    };

    copy_tile(first, b_step, 0);
    __pipeline_commit();
    a += left > 1 ? first : a_again;
    b += (long long)(left > 1 ? first : b_again) * ld_b;
    const long long b_by = left > 1 ? b_step : 0;
    arrive_when_landed();
    int stage = 0;
    int phase = 0;
    #pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const int next_stage = stage + 1 == STAGES ? 0 : stage + 1;
        wait_for(landed, phase);
        copy_tile(BK, b_by, next_stage);
        __pipeline_commit();
        const bool more = step + 2 < left;
        a += more ? BK : 0;
        b += more ? BK * (long long)ld_b : 0;
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            const int swap = k / 8 % 2 * 2;  // the rows that changed places
            float a_part[TM];
            float b_part[TN];
            #pragma unroll
            for (int i = 0; i < TM; i += 4) {
                const float4 read =
                    *reinterpret_cast<const float4*>(&a_from[stage * A_STAGE + k * (BM + 4) + i * (WM / TM)]);
                a_part[i + (0 ^ swap)] = read.x;
                a_part[i + (1 ^ swap)] = read.y;
                a_part[i + (2 ^ swap)] = read.z;
                a_part[i + (3 ^ swap)] = read.w;
            }
            #pragma unroll
            for (int j = 0; j < TN; j += 4) {
                const float4 read =
                    *reinterpret_cast<const float4*>(&b_from[stage * B_STAGE + k * BN + j * (WN / TN)]);
                b_part[j + 0] = read.x;
                b_part[j + 1] = read.y;
                b_part[j + 2] = read.z;
                b_part[j + 3] = read.w;
            }
            if (k == ARRIVAL) arrive_when_landed();
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                #pragma unroll
                for (int step = 0; step < TM; ++step) {
                    const int i = j % 2 == 0 ? step : TM - 1 - step;
                    sums[i][j] = fmaf(a_part[i], b_part[j], sums[i][j]);
                }
            }
        }
        stage = next_stage;
        phase ^= 1;
    }
}

extern "C" __cluster_dims__(1, 1, PARTS) __global__ void __launch_bounds__(THREADS, BLOCKS)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    wait_for_previous_grid();
    extern __shared__ __align__(128) unsigned char tile_ring[];
    __shared__ Arrivals landed;  // the warps' copies of a tile
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int patch_row = warp / (BN / WN) * WM + (lane / 16 * 2 + lane % 2) * 4;
    const int patch_column = warp % (BN / WN) * WN + lane % 16 / 2 * 4;
    // Blocks that run at the same time make tiles that lie together: more of what they read is still in the L2 cache.
    const int place = blockIdx.y * gridDim.x + blockIdx.x;
    const int band = place / (BAND * gridDim.x);
    const int band_rows = min(BAND, (int)gridDim.y - band * BAND);
    const int in_band = place % (BAND * gridDim.x);
    const int first_row = (band * BAND + in_band % band_rows) * BM;
    const int first_column = in_band / band_rows * BN;
    // A part is whole tiles; the last ones may have fewer, or none. The first tile of all is what is left over.
    const int tiles = (K + BK - 1) / BK;
    const int part_tiles = (tiles + PARTS - 1) / PARTS;
    const int begin = min(tiles, (int)blockIdx.z * part_tiles);
    const int steps = min(tiles, begin + part_tiles) - begin;
    const int over = K - (tiles - 1) * BK;
    const int first_k = begin == 0 ? 0 : over + (begin - 1) * BK;
    const int first = steps == 0 ? 0 : begin == 0 ? over : BK;
    a += (long long)first_row * ld_a + first_k;
    b += (long long)first_k * ld_b + first_column;

    if (tid == 0) expect_arrivals<THREADS / 32>(&landed);
    __syncthreads();

    float sums[TM][TN] = {};
    float* const ring = reinterpret_cast<float*>(tile_ring);
    if (first_row + BM <= M && first_column + BN <= N) {
        add_products<true>(sums, ring, &landed, a, b, ld_a, ld_b, BM, BN, first, steps, tiles - begin);
    } else {
        add_products<false>(sums, ring, &landed, a, b, ld_a, ld_b, M - first_row, N - first_column, first, steps,
                            tiles - begin);
    }

    const float one = K > 0 ? 1.0f : 0.0f;  // unknown to the compiler, as in 07_operand_reuse
    auto store = [&](int i, int j, float4 four) {
        const int row = first_row + patch_row + i / 4 * (4 * WM / TM) + i % 4;
        const int column = first_column + patch_column + j * (WN / TN);
        if (row < M && column < N) *reinterpret_cast<float4*>(&c[(long long)row * N + column]) = four;
    };
    auto four_sums = [&](int i, int j) {
        return make_float4(one * sums[i][j], one * sums[i][j + 1], one * sums[i][j + 2], one * sums[i][j + 3]);
    };
    if (PARTS == 1) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; j += 4) store(i, j, four_sums(i, j));
        }
        return;
    }
    // The ring is done with: it holds the block's sums, quads of a thread THREADS apart, so that a warp's lie together.
    __syncthreads();
    float4* quads = reinterpret_cast<float4*>(tile_ring) + tid;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; j += 4) quads[(i * TN + j) / 4 * THREADS] = four_sums(i, j);
    }
    cluster_arrive();
    cluster_wait();
    constexpr int OWN = TM / PARTS;  // rows of a patch
    float4 totals[OWN][TN / 4];
    #pragma unroll
    for (int i = 0; i < OWN; ++i) {
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            const float4* const of_part = &quads[((blockIdx.z * OWN + i) * (TN / 4) + j) * THREADS];
            float4 total = load4_of_block(of_part, 0);
            #pragma unroll
            for (int part = 1; part < PARTS; ++part) {
                const float4 more = load4_of_block(of_part, part);
                total = make_float4(total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w);
            }
            totals[i][j] = total;
        }
    }
    cluster_arrive();  // before the stores: it would wait for them
    #pragma unroll
    for (int i = 0; i < OWN; ++i) {
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) store(blockIdx.z * OWN + i, 4 * j, totals[i][j]);
    }
    cluster_wait();  // nobody reads this block's memory any more when it ends
}
