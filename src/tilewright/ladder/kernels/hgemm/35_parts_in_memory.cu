// Few results of much k: where all blocks of a cluster share a tile's k, and all tiles have one, most multiprocessors still wait,
// and those that work are held up by what one can bring in. So a tile has several clusters. In each, as before, a block adds up
// its columns of what the others send; then these sums meet those of the tile's other clusters in memory, which is L2. Whoever
// draws the last ticket has them all, and adds them in the order of the clusters: nobody waits, and the bits are the same every
// time. A warpgroup draws for itself: what is left to add is shared out among as many as a tile has.
#include "cluster.cuh"
#include "dependent.cuh"
#include "last.cuh"
#include "stages.cuh"
#include "wgmma.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 32
#define TW_STAGES 2
#define TW_PARTS 2
#define TW_SPLITS 2
#endif
#ifndef TW_BESIDE
#define TW_BESIDE 0
#endif
constexpr int PARTS = TW_PARTS;    // of a cluster's k: its blocks
constexpr int SPLITS = TW_SPLITS;  // of K: clusters
constexpr bool BESIDE = TW_BESIDE;  // clusters of the same k come one behind the other, not those of the same tile
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
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
static_assert(CHUNKS % PARTS == 0 && BN % 16 == 0, "each part adds up as many columns");

// partial: [tile, part, warpgroup][split][OWN_CHUNKS][128] of four sums. tickets: one for each of the first; 0, and 0 again at
// the end.
extern "C" __cluster_dims__(PARTS, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, float* partial, unsigned* tickets,
      int M, int N, int K, int ld_a, int ld_b, const __grid_constant__ TensorMap a_map,
      const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    __shared__ Arrivals sums_there;
    __shared__ int is_last[CONSUMERS];
    unsigned char* tiles = aligned_for_swizzle(shared);
    float4* sent = reinterpret_cast<float4*>(tiles + STAGES * STAGE_BYTES);  // [PARTS - 1][OWN_CHUNKS][thread]
    const int warpgroup = warpgroup_of_block();
    const int part = PARTS > 1 ? cluster_rank() : 0;
    const int rows = (M + BM - 1) / BM;
    const int tiles_in_all = rows * ((N + BN - 1) / BN);
    const int cluster = blockIdx.x / PARTS;
    const int split = BESIDE ? cluster / tiles_in_all : cluster % SPLITS;
    const int tile = BESIDE ? cluster % tiles_in_all : cluster / SPLITS;
    const int first_row = tile % rows * BM;
    const int first_column = tile / rows * BN;
    const long long all = (K + BK - 1) / BK;
    constexpr int SHARES = SPLITS * PARTS;  // they differ by one tile of k at the most; one may have none
    const int share = split * PARTS + part;
    const int first_k = (int)(all * share / SHARES);
    const int k_tiles = (int)(all * (share + 1) / SHARES) - first_k;

    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        stages.template begin<CONSUMERS>();
        if (PARTS > 1) {
            init_arrivals(&sums_there);
            expect_bytes(&sums_there, SENT_BYTES);
        }
    }
    if (threadIdx.x == CONSUMERS * 128) prefetch_map(&b_map);
    __syncthreads();
    if (PARTS > 1) cluster_arrive();  // its mbarriers are there
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == CONSUMERS) {
        if (threadIdx.x == CONSUMERS * 128) {
            Turn<STAGES> turn;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                Arrivals* full = &stages.full[turn.stage];
                const int k = (first_k + t) * BK;
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                expect_bytes(full, STAGE_BYTES);
                copy_box(to, &a_map, k, first_row, full);
                #pragma unroll
                for (int n = 0; n < BN; n += 64) copy_box(to + A_BYTES + n * 128, &b_map, first_column + n, k, full);
                turn.next();
            }
        }
        __syncwarp();
        if (PARTS > 1) cluster_wait();
        return;
    }

    const int band = warpgroup;  // of the tile's rows
    const int thread = threadIdx.x % 128;
    if (PARTS > 1) cluster_wait();
    float sums[BN / 2] = {};
    Turn<STAGES> turn;
    int before = 0;
    #pragma unroll 1
    for (int t = 0; t < k_tiles; ++t) {
        wait_for(&stages.full[turn.stage], turn.phase);
        const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
        const unsigned long long of_a = tile_descriptor(from + band * 64 * 128, 0);
        const unsigned long long of_b = tile_descriptor(from + A_BYTES, BK * 128);
        wgmma_fence();
        #pragma unroll
        for (int k = 0; k < BK; k += 16) wgmma<true>(sums, moved(of_a, k * 2), moved(of_b, k * 128), true);
        wgmma_commit();
        if (t > 0) {
            wgmma_wait<1>();  // a group of products is all four warps': one thread a block tells of it
            if (thread == 0) arrive(&stages.empty[before]);
        }
        before = turn.stage;
        turn.next();
    }
    wgmma_wait<0>();
    hold(sums);

    float4 own[OWN_CHUNKS];
    #pragma unroll
    for (int p = 0; p < PARTS; ++p) {
        #pragma unroll
        for (int i = 0; i < OWN_CHUNKS; ++i) {
            const float* sum = &sums[(p * OWN_CHUNKS + i) * 4];
            const float4 four = make_float4(sum[0], sum[1], sum[2], sum[3]);
            const int slot = (part - (part > p)) * OWN_CHUNKS + i;
            if (p == part) own[i] = four;
            else send4_to_block(&sent[slot * CONSUMERS * 128 + threadIdx.x], &sums_there, p, four);
        }
    }
    if (PARTS > 1) wait_for(&sums_there, 0);
    #pragma unroll
    for (int i = 0; i < OWN_CHUNKS; ++i) {
        #pragma unroll
        for (int p = 0; p < PARTS - 1; ++p) {  // its own, then the others' in the order of the parts
            const float4 more = sent[(p * OWN_CHUNKS + i) * CONSUMERS * 128 + threadIdx.x];
            own[i] = make_float4(own[i].x + more.x, own[i].y + more.y, own[i].z + more.z, own[i].w + more.w);
        }
    }

    if (SPLITS > 1) {
        const int place = (tile * PARTS + part) * CONSUMERS + band;
        float4* of_splits = reinterpret_cast<float4*>(partial) + (long long)place * SPLITS * OWN_CHUNKS * 128 + thread;
        #pragma unroll
        for (int i = 0; i < OWN_CHUNKS; ++i) of_splits[(split * OWN_CHUNKS + i) * 128] = own[i];
        sync_warpgroups(1 + band);
        if (thread == 0) is_last[band] = draws_last(tickets + place, SPLITS);
        sync_warpgroups(1 + band);
        if (!is_last[band]) return;
        #pragma unroll
        for (int i = 0; i < OWN_CHUNKS; ++i) own[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        #pragma unroll
        for (int s = 0; s < SPLITS; ++s)
            #pragma unroll
            for (int i = 0; i < OWN_CHUNKS; ++i) {
                const float4 more = __ldcg(&of_splits[(s * OWN_CHUNKS + i) * 128]);  // past L1: written elsewhere
                own[i] = make_float4(own[i].x + more.x, own[i].y + more.y, own[i].z + more.z, own[i].w + more.w);
            }
    }
    #pragma unroll
    for (int i = 0; i < OWN_CHUNKS; ++i) {
        const int row = first_row + band * 64 + sum_row(threadIdx.x, 0);
        const int column = first_column + (part * OWN_CHUNKS + i) * 8 + sum_column(threadIdx.x, 0);
        store_inside(c, row, column, M, N, own[i].x, own[i].y);
        store_inside(c, row + 8, column, M, N, own[i].z, own[i].w);
    }
}
