// Few tiles leave most multiprocessors idle, however fast each is. Here the blocks of a cluster make one tile together: each
// takes a part of K, leaves its sums in its own shared memory, and then adds up its share of the rows from all of them, in
// the order of the parts: the same bits every time, and no byte of the sums passes through L2. Where the operands have to
// come from memory anyway, that is what reads them with all multiprocessors.
#include "cluster.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 64
#define TW_STAGES 2
#define TW_PARTS 2
#endif
constexpr int PARTS = TW_PARTS;  // of K: the blocks of a cluster
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 8;
constexpr int CONSUMERS = BM / 64;  // warpgroups
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = BN * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SUMS_ROW = BN + 8;  // eight rows of a store lie in different banks
constexpr int RING_BYTES = STAGES * STAGE_BYTES;
constexpr int SUMS_BYTES = BM * SUMS_ROW * 4;
constexpr int SHARED_BYTES = (RING_BYTES > SUMS_BYTES ? RING_BYTES : SUMS_BYTES) + 1024;
static_assert(BM % PARTS == 0, "each block adds up as many rows");

extern "C" __cluster_dims__(PARTS, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    float* sums_tile = reinterpret_cast<float*>(tiles);  // [BM][SUMS_ROW], once the ring is done with
    const int warpgroup = warpgroup_of_block();
    const int rank = cluster_rank();
    const Place place = place_of<GROUP>(blockIdx.x / PARTS, (M + BM - 1) / BM, (N + BN - 1) / BN);
    const int first_row = place.row * BM;
    const int first_column = place.column * BN;
    const int all = (K + BK - 1) / BK;
    const int first_k = all * rank / PARTS;  // parts differ by one tile of k at the most; one may have none
    const int k_tiles = all * (rank + 1) / PARTS - first_k;

    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        prefetch_map(&b_map);
        stages.template begin<CONSUMERS>();
    }
    __syncthreads();
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == 0) {
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                unsigned char* tile = tiles + turn.stage * STAGE_BYTES;
                Arrivals* full = &stages.full[turn.stage];
                const int k = (first_k + t) * BK;
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);  // nobody reads a fresh stage: this passes at once
                expect_bytes(full, STAGE_BYTES);
                copy_box(tile, &a_map, k, first_row, full);
                #pragma unroll
                for (int n = 0; n < BN; n += 64) copy_box(tile + A_BYTES + n * 128, &b_map, first_column + n, k, full);
                turn.next();
            }
        }
        __syncwarp();  // the whole warp comes to the cluster's barrier
    } else {
        const int part = warpgroup - 1;  // of the tile's rows
        float sums[BN / 2] = {};
        Turn<STAGES> turn;
        int before = 0;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages.full[turn.stage], turn.phase);
            const unsigned tile = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(tile + part * 64 * 128, 0);
            const unsigned long long of_b = tile_descriptor(tile + A_BYTES, BK * 128);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 16) wgmma<true>(sums, moved(of_a, k * 2), moved(of_b, k * 128), true);
            wgmma_commit();
            if (t > 0) {
                wgmma_wait<1>();  // a group of products is all four warps': one thread tells that their reads are over
                if (threadIdx.x % 128 == 0) arrive(&stages.empty[before]);
            }
            before = turn.stage;
            turn.next();
        }
        wgmma_wait<0>();
        sync_warpgroups<CONSUMERS>(1);  // nobody reads the ring any more, and nothing is on its way there

        #pragma unroll
        for (int i = 0; i < BN / 2; i += 2) {
            const int row = part * 64 + sum_row(threadIdx.x, i);
            const float2 pair = make_float2(sums[i], sums[i + 1]);
            *reinterpret_cast<float2*>(&sums_tile[row * SUMS_ROW + sum_column(threadIdx.x, i)]) = pair;
        }
    }
    cluster_arrive();  // all sums are there
    cluster_wait();

    constexpr int FOURS = BN / 4;
    for (int i = threadIdx.x; i < BM / PARTS * FOURS; i += THREADS) {
        const int row = i / FOURS * PARTS + rank;  // by turns: where there are few, each block has some
        if (first_row + row >= M) break;
        const int column = i % FOURS * 4;
        const float4* from = reinterpret_cast<const float4*>(&sums_tile[row * SUMS_ROW + column]);
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        #pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            const float4 other = load4_of_block(from, p);
            sum.x += other.x;
            sum.y += other.y;
            sum.z += other.z;
            sum.w += other.w;
        }
        store_inside(c, first_row + row, first_column + column, M, N, sum.x, sum.y);
        store_inside(c, first_row + row, first_column + column + 2, M, N, sum.z, sum.w);
    }
    cluster_arrive();  // nobody leaves while others read its sums
    cluster_wait();
}
