// Blocks that stay: while a row is computed, bulk copies bring the next ones into shared memory. Loads never wait for
// an exponential or a barrier, however few blocks fit. Long rows are a cluster's, each block with its part.
//
// A row meets one barrier. Every warp finds the maximum of its own share and the sum to it, and posts both; all merge
// what all posted. Threads hold their powers, and scale them.
//
// A row of up to CLUSTER * WORKERS * PACKS * 16 bytes fits.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "dependent.cuh"
#include "exponential.cuh"
#include "ring.cuh"
#include "warp.cuh"

#ifndef CLUSTER
#define CLUSTER 2    // blocks of a row
#define WORKERS 128  // threads of a block
#define PACKS 2      // packs of a thread, of each row
#define GROUP 2      // rows that a block computes at once
#define STAGES 2     // groups of a block under way
#define RESIDENT 1   // blocks of an SM
#define CLUSTERS 2   // of the launch, at most
#endif
constexpr int WARPS = WORKERS / 32;
constexpr int PART = WORKERS * PACKS * (16 / TW_T_BYTES);  // elements of a block

using Exp = Powers<TW_T_BYTES == 2>;

__shared__ Boards<CLUSTER, WARPS, 2 * GROUP> boards;

struct RowState {
    float largest, sum;
};

// Of a thread: the maximum of what it holds, and the sum to it.
__device__ __forceinline__ RowState state_of(const Words (&packs)[PACKS], float (&powers)[PACKS][TW_PACK]) {
    RowState own = {largest_of(packs), 0.0f};
    float values[TW_PACK];
    const Exp exp(own.largest);
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const float power = exp.of(values[j]);
            own.sum += power;
            powers[i][j] = power;
        }
    }
    return own;
}

// Of the rows, from a thread's own: the warps' states meet on the boards.
__device__ __forceinline__ void merge(RowState (&rows)[GROUP], int count) {
    float figures[2 * GROUP];
    #pragma unroll
    for (int g = 0; g < GROUP; ++g) {
        figures[2 * g] = warp_max(rows[g].largest);
        figures[2 * g + 1] = warp_sum(rows[g].sum * Exp::between(rows[g].largest, figures[2 * g]));
    }
    post(boards, count, figures);
    #pragma unroll
    for (int g = 0; g < GROUP; ++g) {
        RowState row = {MINUS_INFINITY, 0.0f};
        for (int part = threadIdx.x % 32; part < CLUSTER * WARPS; part += 32)
            row.largest = fmaxf(row.largest, boards.at[count % 2][part][2 * g]);
        row.largest = warp_max(row.largest);
        for (int part = threadIdx.x % 32; part < CLUSTER * WARPS; part += 32) {
            const float(&state)[2 * GROUP] = boards.at[count % 2][part];
            row.sum += state[2 * g + 1] * Exp::between(state[2 * g], row.largest);
        }
        rows[g] = {row.largest, warp_sum(row.sum)};
    }
}

// x and y at the block's columns.
__device__ __forceinline__ void make_rows(const TW_T* x, TW_T* y, long long group, int R, int C, long long ld_x,
                                          int columns) {
    extern __shared__ uint4 memory[];
    __shared__ Arrivals arrivals[STAGES];
    const Ring<STAGES, GROUP, PART> ring = {reinterpret_cast<TW_T*>(memory), arrivals, x, ld_x, columns, R};
    const int groups = gridDim.x / CLUSTER, worker = threadIdx.x;
    if (worker == 0) ring.begin(group, groups);
    open(boards);

    int stage = 0, phase = 0, count = 0;
    for (; group * GROUP < R; group += groups) {
        Words packs[GROUP][PACKS];
        float powers[GROUP][PACKS][TW_PACK], own[GROUP];
        RowState rows[GROUP];
        wait_for(&arrivals[stage], phase);
        #pragma unroll
        for (int g = 0; g < GROUP; ++g) {
            ring.read<WORKERS>(packs[g], stage, group, g, worker, MINUS_INFINITY);
            rows[g] = state_of(packs[g], powers[g]);
            own[g] = rows[g].largest;
            keep_packed(packs[g]);
        }
        merge(rows, count);
        if (worker == 0) ring.fill(stage, group + (long long)STAGES * groups);  // behind the barrier: all have read it
        #pragma unroll
        for (int g = 0; g < GROUP; ++g) {
            const long long row = group * GROUP + g;
            if (row >= R) break;
            // Powers are to the thread's own maximum: exp(x - row) = exp(x - thread) * exp(thread - row).
            const float scale = Exp::between(own[g], rows[g].largest) / rows[g].sum;
            #pragma unroll
            for (int i = 0; i < PACKS; ++i) {
                float values[TW_PACK];
                #pragma unroll
                for (int j = 0; j < TW_PACK; ++j) values[j] = scale * powers[g][i][j];
                const int column = column_of<WORKERS>(i, worker);
                if (column < columns) store_words_once(y + row * C + column, packed(values));
            }
        }
        ++count;
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
}

// Rows that do not lie in packs, element by element: what is read again comes from the caches.
__device__ __forceinline__ void make_rows_by_elements(const TW_T* x, TW_T* y, long long group, int R, int C,
                                                      long long ld_x, int columns) {
    open(boards);
    for (int count = 0; group * GROUP < R; group += gridDim.x / CLUSTER, ++count) {
        RowState rows[GROUP];
        const TW_T* from = x + group * GROUP * ld_x;
        const int members = min((long long)GROUP, R - group * GROUP);
        for (int g = 0; g < GROUP; ++g) {
            rows[g] = {MINUS_INFINITY, 0.0f};
            if (g >= members) continue;
            for (int column = threadIdx.x; column < columns; column += WORKERS)
                rows[g].largest = fmaxf(rows[g].largest, to_float(from[g * ld_x + column]));
            const Exp exp(rows[g].largest);
            for (int column = threadIdx.x; column < columns; column += WORKERS)
                rows[g].sum += exp.of(to_float(from[g * ld_x + column]));
        }
        merge(rows, count);
        for (int g = 0; g < members; ++g) {
            const Exp exp(rows[g].largest);
            for (int column = threadIdx.x; column < columns; column += WORKERS)
                from_float(y[(group * GROUP + g) * C + column], exp.of(to_float(from[g * ld_x + column])) / rows[g].sum);
        }
    }
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS, RESIDENT)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    wait_for_previous_grid();
    if (C > CLUSTER * PART) __trap();
    const long long group = blockIdx.x / CLUSTER;
    const int begin = cluster_rank() * PART;
    const int columns = max(0, min(PART, C - begin));  // the last blocks may have none, but are waited for
    const bool packed = C % TW_PACK == 0 && ld_x % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y);
    if (packed) make_rows(x + begin, y + begin, group, R, C, ld_x, columns);
    else make_rows_by_elements(x + begin, y + begin, group, R, C, ld_x, columns);
}
