// The product turned over: c's columns are the rows of an instruction, which come 64 at a time, and c's rows its columns,
// which come in eights. A batch of 160 rows is multiplied as 160 then, not as 192 or 256, and tiles are as high as it takes
// to share c out evenly: rows that are not there cost their products, and tensor maps longer than rows that are (96 rows
// in a box of 128: 14.8 us for 9.1 of 128 rows). b's tiles are the operand M-major, a's the other, K-major, as they lie.
// Sums leave by stmatrix, which turns them back. The rest is 28_even.
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 48
#define TW_BN 64
#define TW_STAGES 2
#define TW_PARTS 2
#define TW_SHARERS 1
#define TW_AHEAD 1
#define TW_ONCE 1
#endif
#ifndef TW_GROUP
#define TW_GROUP 8
#endif
constexpr int PARTS = TW_PARTS;      // of K
constexpr int SHARERS = TW_SHARERS;  // tiles, one beside the other: each brings some rows of a for all
constexpr int CLUSTER = PARTS * SHARERS;
constexpr int AHEAD = TW_AHEAD;  // tiles of k whose part of b L2 fetches while the grid before still runs
constexpr bool ONCE = TW_ONCE;   // b is more than L2 holds: its lines go first, and a's stay
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = TW_GROUP;     // rows of tiles, walked together
constexpr int CONSUMERS = BN / 64;  // warpgroups, of a box of b each; the copying warp comes behind them
constexpr int THREADS = CONSUMERS * 128 + 32;
constexpr int A_BYTES = BM * BK * 2;
constexpr int BOX_BYTES = 64 * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + CONSUMERS * BOX_BYTES;
constexpr int CHUNKS = BM / 8;  // rows of c of a warpgroup's instruction: four sums of each thread
constexpr int OWN_CHUNKS = (CHUNKS + PARTS - 1) / PARTS;  // that a part adds up; the last ones have fewer, or none
constexpr int SHARE = CONSUMERS * 128;                    // words of four sums of a chunk
constexpr int SENT_BYTES = (PARTS - 1) * OWN_CHUNKS * SHARE * 16;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + SENT_BYTES + 1024;
constexpr int A_ROWS = BM / SHARERS;  // that a block asks for
static_assert(BM % 16 == 0 && BM <= 256 && BN % 64 == 0, "what wgmma has");
static_assert(A_ROWS % 8 == 0, "blocks bring whole patterns of the swizzle");
static_assert(A_BYTES % 1024 == 0, "b's boxes begin where the pattern does");
static_assert(CONSUMERS * OWN_CHUNKS * 1024 <= STAGES * STAGE_BYTES, "results take the place of tiles");

// Chunks of which a part adds up the sums.
__device__ __forceinline__ int chunks_of(int part) { return max(0, min(OWN_CHUNKS, CHUNKS - part * OWN_CHUNKS)); }

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    __shared__ Arrivals sums_there;
    unsigned char* tiles = aligned_for_swizzle(shared);
    float4* sent = reinterpret_cast<float4*>(tiles + STAGES * STAGE_BYTES);  // [PARTS - 1][OWN_CHUNKS][thread]
    const int warpgroup = warpgroup_of_block();
    const int rank = CLUSTER > 1 ? cluster_rank() : 0;
    const int part = rank / SHARERS;
    const int sharer = rank % SHARERS;
    constexpr int COLUMNS = SHARERS * BN;  // of a cluster's tiles
    const int columns = (N + COLUMNS - 1) / COLUMNS;
    const Place place = place_of<GROUP>(blockIdx.x / CLUSTER, (M + BM - 1) / BM, columns);
    const int first_row = place.row * BM;
    const int first_column = place.column * COLUMNS + sharer * BN;
    const int all = (K + BK - 1) / BK;
    const int first_k = all * part / PARTS;  // parts differ by one tile of k at the most; one may have none
    const int k_tiles = all * (part + 1) / PARTS - first_k;

    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        stages.template begin<SHARERS * CONSUMERS>();
        if (PARTS > 1) {
            init_arrivals(&sums_there);
            expect_bytes(&sums_there, (PARTS - 1) * chunks_of(part) * SHARE * 16);
        }
    }
    if (threadIdx.x == CONSUMERS * 128) {
        prefetch_map(&b_map);
        #pragma unroll
        for (int t = 0; t < AHEAD; ++t)
            #pragma unroll
            for (int n = 0; n < BN; n += 64)
                if (t < k_tiles) prefetch_box(&b_map, first_column + n, (first_k + t) * BK);
    }
    __syncthreads();
    if (CLUSTER > 1) cluster_arrive_relaxed();  // its mbarriers are there: no more has to be known
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == CONSUMERS) {
        if (SHARERS > 1) cluster_wait();  // so are the others'
        if (threadIdx.x == CONSUMERS * 128) {
            Turn<STAGES> turn;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                unsigned char* tile = tiles + turn.stage * STAGE_BYTES;
                Arrivals* full = &stages.full[turn.stage];
                const int k = (first_k + t) * BK;
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                expect_bytes(full, STAGE_BYTES);  // its own, and what the others send
                if (SHARERS > 1)
                    copy_box_to_blocks(tile + sharer * A_ROWS * 128, &a_map, k, first_row + sharer * A_ROWS, full,
                                       ((1 << SHARERS) - 1) << part * SHARERS);
                else
                    copy_box(tile, &a_map, k, first_row, full);
                #pragma unroll
                for (int n = 0; n < BN; n += 64) {
                    if (ONCE) copy_box_once(tile + A_BYTES + n * 128, &b_map, first_column + n, k, full);
                    else copy_box(tile + A_BYTES + n * 128, &b_map, first_column + n, k, full);
                }
                turn.next();
            }
        }
        __syncwarp();
        if (PARTS > 1 && SHARERS == 1) cluster_wait();
    } else {
        const int thread = threadIdx.x % 128;
        if (CLUSTER > 1) cluster_wait();
        float sums[BM / 2] = {};
        Turn<STAGES> turn;
        int before = 0;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages.full[turn.stage], turn.phase);
            const unsigned tile = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(tile, 0);
            const unsigned long long of_b = tile_descriptor(tile + A_BYTES + warpgroup * BOX_BYTES, 0);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 16) wgmma<false, true>(sums, moved(of_b, k * 128), moved(of_a, k * 2), true);
            wgmma_commit();
            if (t > 0) {
                wgmma_wait<1>();  // a group of products is all four warps': one thread a block tells of it
                if (SHARERS == 1 && thread == 0) arrive(&stages.empty[before]);
                if (SHARERS > 1 && thread < SHARERS) arrive_in_block(&stages.empty[before], part * SHARERS + thread);
            }
            before = turn.stage;
            turn.next();
        }
        wgmma_wait<0>();
        hold(sums);

        float own[OWN_CHUNKS * 4];
        #pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            #pragma unroll
            for (int i = 0; i < OWN_CHUNKS && p * OWN_CHUNKS + i < CHUNKS; ++i) {
                const float* four = &sums[(p * OWN_CHUNKS + i) * 4];
                const int slot = (part - (part > p)) * OWN_CHUNKS + i;
                if (p == part)
                    for (int j = 0; j < 4; ++j) own[i * 4 + j] = four[j];
                else
                    send4_to_block(&sent[slot * SHARE + threadIdx.x], &sums_there, p * SHARERS + sharer,
                                   make_float4(four[0], four[1], four[2], four[3]));
            }
        }
        if (PARTS > 1) wait_for(&sums_there, 0);
        sync_warpgroups<CONSUMERS>(1);  // none reads tiles any more
        unsigned char* out = tiles + warpgroup * OWN_CHUNKS * 1024;  // rows of c, 64 columns each, swizzled
        #pragma unroll
        for (int i = 0; i < OWN_CHUNKS; ++i) {
            if (PARTS > 1 && i >= chunks_of(part)) break;
            float4 sum;
            #pragma unroll
            for (int p = 0; p < PARTS; ++p) {  // in the order of the parts: the same bits every time
                float4 more = make_float4(own[i * 4], own[i * 4 + 1], own[i * 4 + 2], own[i * 4 + 3]);
                if (p != part) more = sent[((p - (p > part)) * OWN_CHUNKS + i) * SHARE + threadIdx.x];
                sum = p == 0 ? more : make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
            }
            store_turned(out + i * 1024, thread, sum);
        }
        sync_warpgroups(2 + warpgroup);  // a row's columns come from four warps
        const int first = first_row + part * OWN_CHUNKS * 8;  // row of c
        const int column = first_column + warpgroup * 64 + thread % 8 * 8;
        #pragma unroll
        for (int i = 0; i < (OWN_CHUNKS + 1) / 2; ++i) {
            const int line = i * 16 + thread / 8;
            if (line < OWN_CHUNKS * 8 && part * OWN_CHUNKS * 8 + line < BM && first + line < M && column < N)
                *reinterpret_cast<uint4*>(c + (long long)(first + line) * N + column) =
                    *reinterpret_cast<uint4*>(out + line * 128 + (thread % 8 ^ line % 8) * 16);
        }
    }
    if (SHARERS > 1) {
        cluster_arrive_relaxed();  // nobody leaves while others arrive at its mbarriers or send to its stages
        cluster_wait();
    }
}
