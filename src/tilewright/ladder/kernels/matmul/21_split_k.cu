// Few rows: the product is read from memory, the weights above all. Tiles are as wide as gives each multiprocessor one, and
// where even that leaves too few, the blocks of a cluster share a tile's k: each sends its sums to those that add them up,
// who finish them. Blocks whose tiles lie side by side may bring rows of a for each other. Operands lie along k or across
// it, as for the ring of persistent blocks; rows of results may be odd.
#include "batches.cuh"
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
#define TW_COME 1
#define TW_AHEAD 1
#define TW_ONCE 1
#define TW_PAIRS 0
#define TW_PIECES 0
#endif
#ifndef TW_A_ALONG_M
#define TW_A_ALONG_M 0  // neighbours in memory are neighbours along m, not along k
#define TW_B_ALONG_K 0  // along k, not along n
#define TW_BIAS 0
#define TW_C 0
#define TW_ACTIVATION 0
#endif
#include "epilogue.cuh"

constexpr int PARTS = TW_PARTS;        // of K
constexpr int SHARERS = TW_SHARERS;    // tiles, one beside the other: each brings some of a's rows for all
constexpr int CLUSTER = PARTS * SHARERS;
constexpr bool COME = TW_COME;   // the next grid's blocks may come while these work
constexpr int AHEAD = TW_AHEAD;  // tiles of k whose part of b L2 fetches while the grid before still runs
constexpr bool ONCE = TW_ONCE;   // b is more than L2 holds: its lines go first, and a's stay
constexpr bool PAIRS = TW_PAIRS;    // N is even: biases come two at once, and nothing waits for them before they are added
constexpr bool PIECES = TW_PIECES;  // rows of the result are whole pieces of 16 bytes, and are stored so
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;
constexpr int WIDE = 64;  // elements of a box's rows, 128 bytes: the width of the swizzle
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 8;
constexpr int CONSUMERS = BM / 64;  // warpgroups; the copying warp comes behind them
constexpr int THREADS = CONSUMERS * 128 + 32;
constexpr int BOX_BYTES = 64 * 128;
constexpr int A_BOX_ROWS = (TW_A_ALONG_M ? BK : BM) / SHARERS;
constexpr int A_BOXES = TW_A_ALONG_M ? BM / WIDE : 1;
constexpr int B_BOX_ROWS = TW_B_ALONG_K ? BN : BK;
constexpr int B_BOXES = TW_B_ALONG_K ? 1 : (BN + WIDE - 1) / WIDE;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = B_BOXES * B_BOX_ROWS * 128;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CHUNKS = BN / 8;  // columns of sums of a warpgroup's instruction: four sums of each thread
constexpr int OWN_CHUNKS = CHUNKS / PARTS;  // that a part adds up
constexpr int SENT_BYTES = (PARTS - 1) * OWN_CHUNKS * CONSUMERS * 128 * 16;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + SENT_BYTES + 1024;
// A warp's finished rows lie in swizzled boxes where the tiles were, and are stored by 8 lanes a row, or by 4.
constexpr int LANES = PIECES && OWN_CHUNKS == 4 ? 4 : 8;
constexpr int OUT_BYTES = (OWN_CHUNKS + 7) / 8 * BOX_BYTES;  // of a warpgroup
static_assert(CHUNKS % PARTS == 0 && BN % 16 == 0, "each part adds up as many columns");
static_assert(A_BOX_ROWS % 8 == 0, "blocks bring whole patterns of the swizzle");
static_assert(!PIECES || OWN_CHUNKS % 2 == 0, "two chunks are one matrix of 16 columns");
static_assert(!PIECES || CONSUMERS * OUT_BYTES <= STAGES * STAGE_BYTES, "results take the place of tiles");

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
matmul(const TW_T* __restrict__ a, const TW_T* __restrict__ b, const TW_T* __restrict__ bias,
       const TW_T* __restrict__ c, TW_T* __restrict__ y, int B, int M, int N, int K, long long batch_a, long long ld_a,
       long long step_a, long long batch_b, long long ld_b, long long step_b, long long batch_c, long long ld_c,
       long long step_c, int activation, float alpha, float beta, const __grid_constant__ TensorMap a_map,
       const __grid_constant__ TensorMap b_map) {
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
    const int rows = (M + BM - 1) / BM;
    const int columns = (N + COLUMNS - 1) / COLUMNS;
    const int tile = blockIdx.x / CLUSTER;
    const int batch = tile / (rows * columns);
    const int b_batch = batch_b == 0 ? 0 : batch;  // one matrix may stand for all of a batch
    const Place place = place_of<GROUP>(tile - batch * rows * columns, rows, columns);
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
            expect_bytes(&sums_there, SENT_BYTES);
        }
    }
    if (threadIdx.x == CONSUMERS * 128) {
        prefetch_map(&b_map);
        #pragma unroll
        for (int t = 0; t < AHEAD; ++t)
            #pragma unroll
            for (int i = 0; i < B_BOXES; ++i) {
                const int k = (first_k + t) * BK;
                const int column = first_column + i * WIDE;
                prefetch_box(&b_map, TW_B_ALONG_K ? k : column, TW_B_ALONG_K ? column : k, b_batch);
            }
    }
    __syncthreads();
    if (CLUSTER > 1) cluster_arrive_relaxed();  // its mbarriers are there
    wait_for_previous_grid();
    if (COME) let_next_grid_come();

    if (warpgroup == CONSUMERS) {
        if (SHARERS > 1) cluster_wait();  // so are the others'
        if (threadIdx.x == CONSUMERS * 128) {
            const int a_batch = batch_a == 0 ? 0 : batch;
            Turn<STAGES> turn;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                Arrivals* full = &stages.full[turn.stage];
                const int k = (first_k + t) * BK;
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);  // nobody reads a fresh stage: this passes at once
                expect_bytes(full, STAGE_BYTES);  // its own, and what the others send
                #pragma unroll
                for (int i = 0; i < A_BOXES; ++i) {
                    const int row = first_row + i * WIDE;
                    const int inner = TW_A_ALONG_M ? row : k;
                    const int outer = (TW_A_ALONG_M ? k : row) + sharer * A_BOX_ROWS;
                    unsigned char* there = to + i * BOX_BYTES + sharer * A_BOX_ROWS * 128;
                    if (SHARERS > 1)
                        copy_box_to_blocks(there, &a_map, inner, outer, a_batch, full,
                                           ((1 << SHARERS) - 1) << part * SHARERS);
                    else
                        copy_box(there, &a_map, inner, outer, a_batch, full);
                }
                #pragma unroll
                for (int i = 0; i < B_BOXES; ++i) {
                    const int column = first_column + i * WIDE;
                    const int inner = TW_B_ALONG_K ? k : column;
                    const int outer = TW_B_ALONG_K ? column : k;
                    unsigned char* there = to + A_BYTES + i * BOX_BYTES;
                    if (ONCE) copy_box_once(there, &b_map, inner, outer, b_batch, full);
                    else copy_box(there, &b_map, inner, outer, b_batch, full);
                }
                turn.next();
            }
        }
        __syncwarp();
        if (PARTS > 1 && SHARERS == 1) cluster_wait();
    } else {
        const int band = warpgroup;  // of the tile's rows
        const int thread = threadIdx.x % 128;
        if (CLUSTER > 1) cluster_wait();
        unsigned biases[OWN_CHUNKS] = {};  // on their way before the sums are there
        #pragma unroll
        for (int i = 0; TW_BIAS && i < OWN_CHUNKS; ++i) {
            const int column = first_column + (part * OWN_CHUNKS + i) * 8 + sum_column(threadIdx.x, 0);
            biases[i] = two_of<PAIRS>(bias + column, 1, N - column);
            asm volatile("" : "+r"(biases[i]));  // here, not where they are added
        }
        float sums[BN / 2] = {};
        Turn<STAGES> turn;
        int before = 0;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages.full[turn.stage], turn.phase);
            const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(from + band * BOX_BYTES, 0);
            const unsigned long long of_b = tile_descriptor(from + A_BYTES, TW_B_ALONG_K ? 0 : BOX_BYTES);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 16)  // 16 of k: as many elements of a row, or as many rows
                wgmma<!TW_B_ALONG_K, TW_A_ALONG_M>(sums, moved(of_a, TW_A_ALONG_M ? k * 128 : k * 2),
                                                   moved(of_b, TW_B_ALONG_K ? k * 2 : k * 128), true);
            wgmma_commit();
            if (t > 0) {
                wgmma_wait<1>();  // a group of products is all four warps': one thread a block tells that it was read
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
        unsigned char* out = tiles + band * OUT_BYTES;

        const int row = first_row + band * 64 + sum_row(threadIdx.x, 0);
        const Added added = {c + batch * batch_c, ld_c, step_c};
        y += (long long)batch * M * N;
        float values[8];
        #pragma unroll
        for (int i = 0; i < OWN_CHUNKS; ++i) {
            float four[4] = {own[i * 4], own[i * 4 + 1], own[i * 4 + 2], own[i * 4 + 3]};
            #pragma unroll
            for (int p = 0; p < PARTS - 1; ++p) {  // in the order of the parts: the same sums each time
                const float4 more = sent[(p * OWN_CHUNKS + i) * CONSUMERS * 128 + threadIdx.x];
                four[0] += more.x;
                four[1] += more.y;
                four[2] += more.z;
                four[3] += more.w;
            }
            const int column = first_column + (part * OWN_CHUNKS + i) * 8 + sum_column(threadIdx.x, 0);
            float* two = &values[PIECES ? i % 2 * 4 : 0];
            finish_two(two, four, alpha, beta, added.at(row, column, M, N), biases[i]);
            finish_two(two + 2, four + 2, alpha, beta, added.at(row + 8, column, M, N), biases[i]);
            if constexpr (!PIECES) {
                store_inside(y, row, column, M, N, two[0], two[1]);
                store_inside(y, row + 8, column, M, N, two[2], two[3]);
            } else if (i % 2) {
                store_sums(out + i / 8 * BOX_BYTES, thread, i % 8 - 1, values);
            }
        }
        if constexpr (PIECES) {
            __syncwarp();  // a warp stores the rows that it has finished
            const int lane = threadIdx.x % 32;
            #pragma unroll
            for (int i = 0; i < 16 * LANES / 32; ++i) {  // of 4 lanes a row, the 8 that read together have rows 4 apart
                const int inside = LANES == 8 ? i * 4 + lane / 8 : i * 8 + lane / 8 + lane / 4 % 2 * 4;
                const int line = thread / 32 * 16 + inside;
                const int piece = lane % LANES;
                const int to_row = first_row + band * 64 + line;
                #pragma unroll
                for (int box = 0; box < (OWN_CHUNKS + 7) / 8; ++box) {
                    const int column = first_column + (part * OWN_CHUNKS + box * 8 + piece) * 8;
                    const int at = box * BOX_BYTES + line * 128 + (piece ^ line % 8) * 16;
                    const uint4 eight = *reinterpret_cast<const uint4*>(out + at);
                    if (box * 8 + piece < OWN_CHUNKS && to_row < M && column < N)
                        *reinterpret_cast<uint4*>(y + (long long)to_row * N + column) = eight;
                }
            }
        }
    }
    if (SHARERS > 1) {
        cluster_arrive_relaxed();  // nobody leaves while others arrive at its mbarriers or send to its stages
        cluster_wait();
    }
}
