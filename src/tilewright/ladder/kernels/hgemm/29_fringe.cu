// Where neither M nor N is a multiple of a tile, the last row and the last column of tiles are as dear as others, and may want
// a round of their own: 4097 x 4104 is 33 x 17 tiles. Here whole tiles come first; then those of the fringe, which cost what
// they have: a warpgroup without rows does not multiply, and the last column is EDGE wide, in copies, products and stores.
// Blocks that have no whole tile in the last round take QUICK of the fringe meanwhile.
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BN 128
#define TW_EDGE 64
#define TW_STAGES 2
#define TW_BLOCKS 3
#define TW_GROUP 8
#define TW_QUICK 2
#endif
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int BM = CONSUMERS * 64;
constexpr int BN = TW_BN;
constexpr int EDGE = TW_EDGE;  // columns of the last column of tiles, or a few more: a multiple of 64
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int BLOCKS = TW_BLOCKS;
constexpr int GROUP = TW_GROUP;
constexpr int QUICK = TW_QUICK;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int BOX_BYTES = 64 * 128;  // 64 rows of 64 elements
constexpr int STAGE_BYTES = A_BYTES + BN / 64 * BOX_BYTES;
constexpr int SLOTS = 2;  // boxes of a warpgroup's result that wait to be stored
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * BOX_BYTES + 1024;

// What a block does, one tile after the other.
struct Work {
    int rows;     // of whole tiles
    int columns;  // of whole tiles
    int edges;    // tiles in the last column, of which whole rows have one each
    int corners;  // tiles in the last row
    int step = 0;

    __device__ __forceinline__ Work(int M, int N) : rows(M / BM), columns(N / BN) {
        edges = N % BN ? rows : 0;
        corners = M % BM ? (N + BN - 1) / BN : 0;
    }
    // The block's next tile, {-1, -1} behind the last.
    __device__ __forceinline__ Place next() {
        const int whole = rows * columns;
        const int busy = whole % BLOCKS;  // blocks that have one in the last round
        const int rounds = whole / BLOCKS + ((int)blockIdx.x < busy);
        const int turn = step++;
        if (turn < rounds) return place_of<GROUP>(blockIdx.x + turn * BLOCKS, rows, columns);
        const int idle = busy ? BLOCKS - busy : 0;
        const int quick = (int)blockIdx.x >= busy && busy ? QUICK : 0;
        const int late = turn - rounds;
        int fringe = idle * QUICK + blockIdx.x + (late - quick) * BLOCKS;
        if (late < quick) fringe = blockIdx.x - busy + late * idle;
        if (fringe < corners) return {rows, fringe};
        if (fringe < corners + edges) return {fringe - corners, columns};
        return {-1, -1};
    }
};

template <int COLUMNS>
__device__ __forceinline__ void multiply(float (&sums)[BN / 2], const unsigned char* tiles, Stages<STAGES>& stages,
                                         Turn<STAGES>& turn, int part, int k_tiles) {
    int before = 0;
    #pragma unroll 1
    for (int t = 0; t < k_tiles; ++t) {
        wait_for(&stages.full[turn.stage], turn.phase);
        const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
        const unsigned long long of_a = tile_descriptor(from + part * 64 * 128, 0);
        const unsigned long long of_b = tile_descriptor(from + A_BYTES, BK * 128);
        wgmma_fence();
        #pragma unroll
        for (int k = 0; k < BK; k += 16)
            wgmma<true>(reinterpret_cast<float(&)[COLUMNS / 2]>(sums), moved(of_a, k * 2), moved(of_b, k * 128),
                        t > 0 || k > 0);
        wgmma_commit();
        if (t > 0) {
            wgmma_wait<1>();  // a group of products is all four warps': one thread tells of it
            if (threadIdx.x % 128 == 0) arrive(&stages.empty[before]);
        }
        before = turn.stage;
        turn.next();
    }
    wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) arrive(&stages.empty[before]);
}

// What a warpgroup without rows does: the other one's stages want its arrivals.
__device__ __forceinline__ void pass(Stages<STAGES>& stages, Turn<STAGES>& turn, int k_tiles) {
    #pragma unroll 1
    for (int t = 0; t < k_tiles; ++t) {
        wait_for(&stages.full[turn.stage], turn.phase);
        if (threadIdx.x % 128 == 0) arrive(&stages.empty[turn.stage]);
        turn.next();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
      const __grid_constant__ TensorMap c_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const int k_tiles = (K + BK - 1) / BK;
    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        prefetch_map(&b_map);
        stages.template begin<CONSUMERS>();
    }
    __syncthreads();
    wait_for_previous_grid();
    let_next_grid_come();
    Work work(M, N);

    if (warpgroup == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            for (Place place = work.next(); place.row >= 0; place = work.next()) {
                const int boxes = place.column == work.columns ? EDGE / 64 : BN / 64;
                #pragma unroll 1
                for (int t = 0; t < k_tiles; ++t) {
                    unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                    Arrivals* full = &stages.full[turn.stage];
                    wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                    expect_bytes(full, A_BYTES + boxes * BOX_BYTES);
                    copy_box(to, &a_map, t * BK, place.row * BM, full);
                    #pragma unroll
                    for (int i = 0; i < BN / 64; ++i)
                        if (i < boxes)
                            copy_box(to + A_BYTES + i * BOX_BYTES, &b_map, place.column * BN + i * 64, t * BK, full);
                    turn.next();
                }
            }
        }
    } else {
        more_registers<232>();
        const int part = warpgroup - 1;  // of the tile's rows
        const int thread = threadIdx.x % 128;
        unsigned char* boxes = tiles + STAGES * STAGE_BYTES + part * SLOTS * BOX_BYTES;
        Turn<STAGES> turn;
        Turn<SLOTS> out;
        for (Place place = work.next(); place.row >= 0; place = work.next()) {
            float sums[BN / 2];
            const int first_row = place.row * BM + part * 64;
            const bool is_edge = place.column == work.columns;
            if (first_row >= M) {
                pass(stages, turn, k_tiles);
                continue;
            }
            if (is_edge) multiply<EDGE>(sums, tiles, stages, turn, part, k_tiles);
            else multiply<BN>(sums, tiles, stages, turn, part, k_tiles);

            #pragma unroll
            for (int box = 0; box < BN / 64; ++box) {
                if (is_edge && box >= EDGE / 64) break;
                unsigned char* slot = boxes + out.stage * BOX_BYTES;
                if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                sync_warpgroups(1 + part);
                #pragma unroll
                for (int i = 0; i < 32; i += 8) store_sums(slot, thread, i / 4, &sums[box * 32 + i]);
                publish_to_copies();
                sync_warpgroups(1 + part);
                if (thread == 0) {
                    store_box(&c_map, place.column * BN + box * 64, first_row, slot);
                    commit_stores();
                }
                out.next();
            }
        }
        if (thread == 0) wait_for_stores();
    }
}
