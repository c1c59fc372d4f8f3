// A round of tiles in which most blocks have none costs as much as a full one. Here the tiles beyond whole rounds, and one
// round of those, are shared out by steps of k: each block gets as many of them, from one to two tiles' worth, and a block's
// share begins and ends inside a tile. The rest are taken whole. A share is never less than a tile, so a tile has two parts
// at the most: the block that has its end begins with it, the one that has its beginning comes to it later. Whoever is later
// finds the other's sums in memory, adds them to its own, and stores the tile: nobody waits, and the sum of two numbers is
// the same whoever adds. Tiles of which one warpgroup has rows and nobody else, as the last ones of 4097 rows, take half as
// long, and count half in the shares. All this holds of clusters, whose two blocks share a tile of b, as of blocks.
#include "cluster.cuh"
#include "dependent.cuh"
#include "last.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BN 128
#define TW_STAGES 2
#define TW_BLOCKS 3
#define TW_GROUP 8
#define TW_CLUSTER 1
#endif
constexpr int CLUSTER = TW_CLUSTER;  // blocks: 1 or 2
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int BM = CONSUMERS * 64;
constexpr int ROWS = CLUSTER * BM;  // of a cluster's tile
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int BLOCKS = TW_BLOCKS;
constexpr int GROUP = TW_GROUP;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int BOX_BYTES = 64 * 128;  // 64 rows of 64 elements
constexpr int STAGE_BYTES = A_BYTES + BN / 64 * BOX_BYTES;
constexpr int SLOTS = 2;  // boxes of a warpgroup's result that wait to be stored
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + CONSUMERS * SLOTS * BOX_BYTES + 1024;
constexpr int PART = 64 * BN;  // sums of a warpgroup
constexpr int PARTIALS = BLOCKS * CONSUMERS * 2 * PART;  // of both parts of each tile that is divided
constexpr int TICKETS = BLOCKS * CONSUMERS;
// A block brings so many boxes of b's tile for all: whole ones where they can be shared out, else its rows of each.
constexpr bool HAS_WHOLE_BOXES = BN % (64 * CLUSTER) == 0;
constexpr int B_BOXES = HAS_WHOLE_BOXES ? BN / 64 / CLUSTER : BN / 64;
constexpr int B_BOX_ROWS = HAS_WHOLE_BOXES ? BK : BK / CLUSTER;
static_assert(BLOCKS % CLUSTER == 0, "every block has a cluster");

// So many steps of k of a tile. border: between the shares of two clusters, if the tile has one, else -1.
struct Segment {
    Place place;
    int first_k;
    int k_tiles;
    int border;
    bool is_end;  // of the tile, where it has a border
};

// What a cluster does, one after the other.
struct Work {
    int rows, columns, k_tiles;  // rows of tiles without the light ones
    int shared_tiles;            // of those; the light ones are all shared out, behind them
    int all_shared;
    int at, end;  // of the cluster's share, in steps of k
    int whole;    // the next tile that is taken whole

    // Of the shares' places, counted in halves of a step, which step that is: those of light tiles are one half each.
    __device__ __forceinline__ int step_of(long long place) const {
        const long long heavy = 2ll * shared_tiles * k_tiles;
        return (int)(place < heavy ? place / 2 : heavy / 2 + (place - heavy));
    }
    __device__ __forceinline__ Work(int M, int N, int K) {
        const int clusters = gridDim.x / CLUSTER;
        const int cluster = blockIdx.x / CLUSTER;
        rows = (M + ROWS - 1) / ROWS;
        columns = (N + BN - 1) / BN;
        k_tiles = (K + BK - 1) / BK;
        const int last_rows = M - (rows - 1) * ROWS;
        const bool has_light = last_rows <= 64 && (rows - 1) * columns >= clusters;
        rows -= has_light;
        const int tiles = rows * columns;
        shared_tiles = tiles % clusters || has_light ? tiles % clusters + clusters : 0;
        all_shared = shared_tiles + (has_light ? columns : 0);
        const long long halves = (long long)(shared_tiles + all_shared) * k_tiles;
        at = step_of(halves * cluster / clusters);
        end = step_of(halves * (cluster + 1) / clusters);
        whole = shared_tiles + cluster;
    }
    __device__ __forceinline__ bool next(Segment& to) {
        int tile = whole;
        to.first_k = 0;
        to.k_tiles = k_tiles;
        to.border = -1;
        to.is_end = false;
        if (at < end) {
            tile = at / k_tiles;
            to.first_k = at % k_tiles;
            to.k_tiles = min(k_tiles - to.first_k, end - at);
            to.is_end = to.first_k > 0;
            if (to.k_tiles < k_tiles) to.border = blockIdx.x / CLUSTER + !to.is_end;
            at += to.k_tiles;
            if (tile >= shared_tiles) {
                to.place = {rows, tile - shared_tiles};
                return true;
            }
        } else {
            whole += gridDim.x / CLUSTER;
        }
        to.place = place_of<GROUP>(tile, rows, columns);
        return tile < rows * columns;
    }
};

// A stage is free, here and where its half of b's tile comes from. By all threads of a warpgroup.
__device__ __forceinline__ void release(Arrivals* empty) {
    if (CLUSTER == 1 && threadIdx.x % 128 == 0) arrive(empty);
    if (CLUSTER > 1 && threadIdx.x % 128 < CLUSTER) arrive_in_block(empty, threadIdx.x % 128);
}

// What a warpgroup without rows does: the others' stages want its arrivals.
__device__ __forceinline__ void pass(Stages<STAGES>& stages, Turn<STAGES>& turn, int k_tiles) {
    #pragma unroll 1
    for (int t = 0; t < k_tiles; ++t) {
        wait_for(&stages.full[turn.stage], turn.phase);
        release(&stages.empty[turn.stage]);
        turn.next();
    }
}

// Whether the other part's sums are there already.
__device__ __forceinline__ bool is_second(const unsigned* ticket) {
    unsigned drawn;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(drawn) : "l"(ticket) : "memory");
    return drawn != 0;
}

// Half of a tile's sums is the warpgroup's, the other half another block's: true for who comes second, and has them all.
__device__ __forceinline__ bool meet(float (&sums)[BN / 2], const Segment& work, int rank, int part, float* partial,
                                     unsigned* tickets, int* answers) {
    const int thread = threadIdx.x % 128;
    const int pair = (work.border * CLUSTER + rank) * CONSUMERS + part;
    float4* of_parts = reinterpret_cast<float4*>(partial) + pair * 2 * (PART / 4);  // [part][sums / 4][thread]
    if (thread == 0) answers[part] = is_second(tickets + pair);
    sync_warpgroups(1 + part);
    if (!answers[part]) {
        #pragma unroll
        for (int i = 0; i < BN / 8; ++i)
            of_parts[work.is_end * (PART / 4) + i * 128 + thread] =
                make_float4(sums[i * 4], sums[i * 4 + 1], sums[i * 4 + 2], sums[i * 4 + 3]);
    }
    sync_warpgroups(1 + part);
    if (thread == 0) answers[part] = draws_last(tickets + pair, 2);
    sync_warpgroups(1 + part);
    if (!answers[part]) return false;
    #pragma unroll
    for (int i = 0; i < BN / 8; ++i) {
        const float4 other = __ldcg(&of_parts[!work.is_end * (PART / 4) + i * 128 + thread]);  // past L1: written elsewhere
        sums[i * 4] += other.x;
        sums[i * 4 + 1] += other.y;
        sums[i * 4 + 2] += other.z;
        sums[i * 4 + 3] += other.w;
    }
    return true;
}

// partial, tickets: see PARTIALS and TICKETS. The tickets are 0, and 0 again at the end.
extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, float* partial, unsigned* tickets,
      int M, int N, int K, int ld_a, int ld_b, const __grid_constant__ TensorMap a_map,
      const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    __shared__ int answers[CONSUMERS];
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const int rank = CLUSTER > 1 ? cluster_rank() : 0;
    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        prefetch_map(&b_map);
        stages.template begin<CLUSTER * CONSUMERS>();
    }
    if (CLUSTER > 1) {
        cluster_arrive();  // the other block's mbarriers are there, too
        cluster_wait();
    } else {
        __syncthreads();
    }
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            Work work(M, N, K);
            Segment now;
            while (work.next(now)) {
                const int first_row = now.place.row * ROWS + rank * BM;
                const int first_column = now.place.column * BN + HAS_WHOLE_BOXES * rank * B_BOXES * 64;
                const int first_k = !HAS_WHOLE_BOXES * rank * B_BOX_ROWS;
                #pragma unroll 1
                for (int t = now.first_k; t < now.first_k + now.k_tiles; ++t) {
                    unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                    Arrivals* full = &stages.full[turn.stage];
                    wait_for(&stages.empty[turn.stage], turn.phase ^ 1);
                    expect_bytes(full, STAGE_BYTES);  // its own, and what the other block sends
                    copy_box(to, &a_map, t * BK, first_row, full);
                    to += A_BYTES + rank * (HAS_WHOLE_BOXES ? B_BOXES * BOX_BYTES : B_BOX_ROWS * 128);
                    #pragma unroll
                    for (int i = 0; i < B_BOXES; ++i) {
                        const int column = first_column + i * 64;
                        const int k = t * BK + first_k;
                        if (CLUSTER > 1) copy_box_to_blocks(to + i * BOX_BYTES, &b_map, column, k, full, 3);
                        else copy_box(to + i * BOX_BYTES, &b_map, column, k, full);
                    }
                    turn.next();
                }
            }
        }
        __syncwarp();  // the whole warp comes to the cluster's barrier
    } else {
        more_registers<232>();
        const int part = warpgroup - 1;  // of the tile's rows
        const int thread = threadIdx.x % 128;
        unsigned char* boxes = tiles + STAGES * STAGE_BYTES + part * SLOTS * BOX_BYTES;
        Turn<STAGES> turn;
        Turn<SLOTS> out;
        Work work(M, N, K);
        Segment now;
        while (work.next(now)) {
            const int first_row = now.place.row * ROWS + rank * BM + part * 64;
            if (first_row >= M) {
                pass(stages, turn, now.k_tiles);
                continue;
            }
            float sums[BN / 2];
            int before = 0;
            #pragma unroll 1
            for (int t = 0; t < now.k_tiles; ++t) {
                wait_for(&stages.full[turn.stage], turn.phase);
                const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
                const unsigned long long of_a = tile_descriptor(from + part * 64 * 128, 0);
                const unsigned long long of_b = tile_descriptor(from + A_BYTES, BK * 128);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < BK; k += 16)
                    wgmma<true>(sums, moved(of_a, k * 2), moved(of_b, k * 128), t > 0 || k > 0);
                wgmma_commit();
                if (t > 0) {
                    wgmma_wait<1>();  // a group of products is all four warps': one thread tells of it
                    release(&stages.empty[before]);
                }
                before = turn.stage;
                turn.next();
            }
            wgmma_wait<0>();
            release(&stages.empty[before]);
            hold(sums);
            if (now.border >= 0 && !meet(sums, now, rank, part, partial, tickets, answers)) continue;

            #pragma unroll
            for (int box = 0; box < BN / 64; ++box) {
                unsigned char* slot = boxes + out.stage * BOX_BYTES;
                if (thread == 0) wait_until_read<SLOTS - 1>();  // what lay there last has been stored
                sync_warpgroups(1 + part);
                #pragma unroll
                for (int i = 0; i < 32; i += 8) store_sums(slot, thread, i / 4, &sums[box * 32 + i]);
                publish_to_copies();
                sync_warpgroups(1 + part);
                if (thread == 0) {
                    store_box(&c_map, now.place.column * BN + box * 64, first_row, slot);
                    commit_stores();
                }
                out.next();
            }
        }
        if (thread == 0) wait_for_stores();
    }    if (CLUSTER > 1) {
        cluster_arrive();  // nobody leaves while the other may still arrive at its mbarriers, or send to its stages
        cluster_wait();
    }
}
