// A thin product is read from memory, b above all, and that takes every multiprocessor, with as much to read for each. So
// tiles are as wide as it takes to have one for each, whatever multiple of 16 that is: all run at once, and end together.
// Two more things held them up. All blocks wanted the same few rows of a at the same time, which lie in a few slices of L2:
// now they begin at different places of k, TOGETHER neighbours at the same one, and go round. And the parts of a tile met at
// a barrier, twice: now each part sends its sums to those that add them up, and waits for what it adds up only.
// Such a kernel is short: the grid comes while the one before it ends, and L2 fetches b's first tiles meanwhile.
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 48
#define TW_STAGES 2
#define TW_PARTS 2
#define TW_SHARERS 1
#define TW_TOGETHER 1
#define TW_AHEAD 1
#define TW_ONCE 1
#endif
#ifndef TW_GROUP
#define TW_GROUP 8
#endif
#ifndef TW_PIECES
#define TW_PIECES 0
#endif
constexpr int PARTS = TW_PARTS;      // of K
constexpr int SHARERS = TW_SHARERS;  // tiles, one beside the other: each brings some rows of a for all
constexpr int CLUSTER = PARTS * SHARERS;
constexpr int TOGETHER = TW_TOGETHER;  // clusters whose tiles are neighbours; 0: all begin at the beginning
constexpr int AHEAD = TW_AHEAD;  // tiles of k whose part of b L2 fetches while the grid before still runs
constexpr bool ONCE = TW_ONCE;   // b is more than L2 holds: its lines go first, and a's stay
constexpr bool PIECES = TW_PIECES;  // rows of the result are whole pieces of 16 bytes, and are stored so
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = TW_GROUP;  // rows of tiles, walked together
constexpr int CONSUMERS = BM / 64;  // warpgroups; the copying warp comes behind them
constexpr int THREADS = CONSUMERS * 128 + 32;
constexpr int B_BOXES = (BN + 63) / 64;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = B_BOXES * 64 * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CHUNKS = BN / 8;  // columns of sums of a warpgroup's instruction: four sums of each thread
constexpr int OWN_CHUNKS = CHUNKS / PARTS;  // that a part adds up
constexpr int SENT_BYTES = (PARTS - 1) * OWN_CHUNKS * CONSUMERS * 128 * 16;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + SENT_BYTES + 1024;
constexpr int A_ROWS = BM / SHARERS;  // that a block asks for
// A warp's finished rows lie in swizzled boxes where the tiles were, and are stored by 8 lanes a row, or by 4.
constexpr int LANES = OWN_CHUNKS > 4 ? 8 : 4;
constexpr int BOX_BYTES = 64 * 128;
constexpr int OUT_BOXES = (OWN_CHUNKS + 7) / 8;  // of a warpgroup
static_assert(CHUNKS % PARTS == 0 && BN % 16 == 0, "each part adds up as many columns");
static_assert(A_ROWS % 8 == 0, "blocks bring whole patterns of the swizzle");
static_assert(!PIECES || OWN_CHUNKS % 2 == 0, "two chunks are written at once");
static_assert(!PIECES || CONSUMERS * OUT_BOXES * BOX_BYTES <= STAGES * STAGE_BYTES, "results take the place of tiles");

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
    int k_tile = 0;  // where the block begins, of its part
    if (TOGETHER > 0) k_tile = place.column / TOGETHER * k_tiles / ((columns + TOGETHER - 1) / TOGETHER);

    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        stages.template begin<SHARERS * CONSUMERS>();
        if (PARTS > 1) {
            init_arrivals(&sums_there);
            expect_bytes(&sums_there, SENT_BYTES);
        }
    }
    if (threadIdx.x == CONSUMERS * 128) {
        prefetch_map(&b_map);
        #pragma unroll
        for (int t = 0; t < AHEAD; ++t)
            #pragma unroll
            for (int n = 0; n < BN; n += 64)
                if (t < k_tiles) prefetch_box(&b_map, first_column + n, (first_k + k_tile + t) * BK);
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
                const int k = (first_k + k_tile) * BK;
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
                if (++k_tile == k_tiles) k_tile = 0;
            }
        }
        __syncwarp();
        if (PARTS > 1 && SHARERS == 1) cluster_wait();
    } else {
        const int band = warpgroup;  // of the tile's rows
        const int thread = threadIdx.x % 128;
        if (CLUSTER > 1) cluster_wait();
        float sums[BN / 2] = {};
        Turn<STAGES> turn;
        int before = 0;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages.full[turn.stage], turn.phase);
            const unsigned tile = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(tile + band * 64 * 128, 0);
            const unsigned long long of_b = tile_descriptor(tile + A_BYTES, BK * 128);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 16) wgmma<true>(sums, moved(of_a, k * 2), moved(of_b, k * 128), true);
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
            for (int i = 0; i < OWN_CHUNKS; ++i) {
                const float* four = &sums[(p * OWN_CHUNKS + i) * 4];
                const int slot = (part - (part > p)) * OWN_CHUNKS + i;
                if (p == part)
                    for (int j = 0; j < 4; ++j) own[i * 4 + j] = four[j];
                else
                    send4_to_block(&sent[slot * CONSUMERS * 128 + threadIdx.x], &sums_there, p * SHARERS + sharer,
                                   make_float4(four[0], four[1], four[2], four[3]));
            }
        }
        if (PARTS > 1) wait_for(&sums_there, 0);
        if (PIECES) sync_warpgroups<CONSUMERS>(1);  // none reads tiles any more
        unsigned char* out = tiles + band * OUT_BOXES * BOX_BYTES;

        float values[8];  // of two chunks
        #pragma unroll
        for (int i = 0; i < OWN_CHUNKS; ++i) {
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            #pragma unroll
            for (int p = 0; p < PARTS; ++p) {  // in the order of the parts: the same bits every time
                float4 more = make_float4(own[i * 4], own[i * 4 + 1], own[i * 4 + 2], own[i * 4 + 3]);
                if (p != part) more = sent[((p - (p > part)) * OWN_CHUNKS + i) * CONSUMERS * 128 + threadIdx.x];
                sum.x += more.x;
                sum.y += more.y;
                sum.z += more.z;
                sum.w += more.w;
            }
            const int row = first_row + band * 64 + sum_row(threadIdx.x, 0);
            const int column = first_column + (part * OWN_CHUNKS + i) * 8 + sum_column(threadIdx.x, 0);
            if constexpr (PIECES) {
                *reinterpret_cast<float4*>(&values[i % 2 * 4]) = sum;
                if (i % 2) store_sums(out + i / 8 * BOX_BYTES, thread, i % 8 - 1, values);
            } else {
                store_inside(c, row, column, M, N, sum.x, sum.y);
                store_inside(c, row + 8, column, M, N, sum.z, sum.w);
            }
        }
        if constexpr (PIECES) {
            __syncwarp();  // a warp stores the rows that it has finished
            const int lane = threadIdx.x % 32;
            #pragma unroll
            for (int i = 0; i < 16 * LANES / 32; ++i) {  // of 4 lanes a row, the 8 that read together have rows 4 apart
                const int inside = LANES == 8 ? i * 4 + lane / 8 : i * 8 + lane / 8 + lane / 4 % 2 * 4;
                const int line = thread / 32 * 16 + inside;
                const int row = first_row + band * 64 + line;
                #pragma unroll
                for (int box = 0; box < OUT_BOXES; ++box) {
                    const int piece = box * 8 + lane % LANES;
                    const int column = first_column + (part * OWN_CHUNKS + piece) * 8;
                    const int at = box * BOX_BYTES + line * 128 + (piece % 8 ^ line % 8) * 16;
                    if (row < M && column < N && piece < OWN_CHUNKS)
                        *reinterpret_cast<uint4*>(c + (long long)row * N + column) = *reinterpret_cast<uint4*>(out + at);
                }
            }
        }
    }
    if (SHARERS > 1) {
        cluster_arrive_relaxed();  // nobody leaves while others arrive at its mbarriers or send to its stages
        cluster_wait();
    }
}
