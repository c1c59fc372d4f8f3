// Blocks that stay: while a row is computed, bulk copies bring the next ones into shared memory. Loads never wait for a
// sum or a barrier, however few blocks fit. Long rows are a cluster's, each block with its part. Weights and biases
// stay in registers: a thread's columns are the same in every row.
//
// A row meets one barrier: every warp finds the mean of its own share and the squares around it, posts both, and all
// merge what all posted by Chan's formula.
//
// A row of up to CLUSTER * WORKERS * PACKS * 16 bytes fits.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "dependent.cuh"
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

__shared__ Boards<CLUSTER, WARPS, 3 * GROUP> boards;

struct Normal {
    float mean, scale;
};

// Of the rows, from a warp's share of each: so many elements, their mean, and the squares around it.
__device__ __forceinline__ void merge(Normal (&rows)[GROUP], const float (&figures)[3 * GROUP], int count, int C,
                                      float epsilon) {
    post(boards, count, figures);
    #pragma unroll
    for (int g = 0; g < GROUP; ++g) {
        float sum = 0.0f, square = 0.0f;
        for (int part = threadIdx.x % 32; part < CLUSTER * WARPS; part += 32)
            sum += boards.at[count % 2][part][3 * g] * boards.at[count % 2][part][3 * g + 1];
        const float mean = warp_sum(sum) / C;
        for (int part = threadIdx.x % 32; part < CLUSTER * WARPS; part += 32) {
            const float elements = boards.at[count % 2][part][3 * g];
            const float apart = elements > 0.0f ? boards.at[count % 2][part][3 * g + 1] - mean : 0.0f;
            square += boards.at[count % 2][part][3 * g + 2] + apart * apart * elements;
        }
        rows[g] = {mean, rsqrtf(warp_sum(square) / C + epsilon)};
    }
}

struct Share {
    float mean, squares;
};

// Of a warp's share of a row, whose elements are 1 / rate.
__device__ __forceinline__ Share found(const Words (&packs)[PACKS], int columns, float rate) {
    float sum = 0.0f, squares = 0.0f, values[TW_PACK];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) sum += values[j];
    }
    const float mean = warp_sum(sum) * rate;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        if (column_of<WORKERS>(i, threadIdx.x) >= columns) continue;
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) squares += (values[j] - mean) * (values[j] - mean);
    }
    return {mean, warp_sum(squares)};
}

// x, weight, bias and y at the block's columns.
__device__ __forceinline__ void make_rows(const TW_T* x, const TW_T* weight, const TW_T* bias, TW_T* y, long long group,
                                          int R, int C, long long ld_x, float epsilon, int columns) {
    extern __shared__ uint4 memory[];
    __shared__ Arrivals arrivals[STAGES];
    const Ring<STAGES, GROUP, PART> ring = {reinterpret_cast<TW_T*>(memory), arrivals, x, ld_x, columns, R};
    const int groups = gridDim.x / CLUSTER, worker = threadIdx.x;
    if (worker == 0) ring.begin(group, groups);
    Words weights[PACKS], biases[PACKS];
    int owned = 0;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int column = column_of<WORKERS>(i, worker);
        weights[i] = biases[i] = repeated(0.0f);
        if (column >= columns) continue;
        weights[i] = load_words(weight + column);
        biases[i] = load_words(bias + column);
        owned += TW_PACK;
    }
    const float share = warp_sum(owned), rate = 1.0f / fmaxf(share, 1.0f);
    open(boards);

    int stage = 0, phase = 0, count = 0;
    for (; group * GROUP < R; group += groups) {
        Words packs[GROUP][PACKS];
        float figures[3 * GROUP];
        Normal rows[GROUP];
        wait_for(&arrivals[stage], phase);
        #pragma unroll
        for (int g = 0; g < GROUP; ++g) {
            ring.read<WORKERS>(packs[g], stage, group, g, worker, 0.0f);
            const Share own = found(packs[g], columns, rate);
            figures[3 * g] = share;
            figures[3 * g + 1] = own.mean;
            figures[3 * g + 2] = own.squares;
            keep_packed(packs[g]);
        }
        merge(rows, figures, count, C, epsilon);
        if (worker == 0) ring.fill(stage, group + (long long)STAGES * groups);  // behind the barrier: all have read it
        #pragma unroll
        for (int g = 0; g < GROUP; ++g) {
            const long long row = group * GROUP + g;
            if (row >= R) break;
            keep_packed(weights);
            keep_packed(biases);
            #pragma unroll
            for (int i = 0; i < PACKS; ++i) {
                float values[TW_PACK], scales[TW_PACK], shifts[TW_PACK];
                unpack(values, packs[g][i]);
                unpack(scales, weights[i]);
                unpack(shifts, biases[i]);
                #pragma unroll
                for (int j = 0; j < TW_PACK; ++j)
                    values[j] = (values[j] - rows[g].mean) * rows[g].scale * scales[j] + shifts[j];
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
__device__ __forceinline__ void make_rows_by_elements(const TW_T* x, const TW_T* weight, const TW_T* bias, TW_T* y,
                                                      long long group, int R, int C, long long ld_x, float epsilon,
                                                      int columns) {
    open(boards);
    const int owned = columns > (int)threadIdx.x ? (columns - (int)threadIdx.x - 1) / WORKERS + 1 : 0;
    const float share = warp_sum(owned), rate = 1.0f / fmaxf(share, 1.0f);
    for (int count = 0; group * GROUP < R; group += gridDim.x / CLUSTER, ++count) {
        float figures[3 * GROUP];
        Normal rows[GROUP];
        const TW_T* from = x + group * GROUP * ld_x;
        const int members = min((long long)GROUP, R - group * GROUP);
        for (int g = 0; g < GROUP; ++g) {
            float sum = 0.0f, squares = 0.0f;
            for (int column = threadIdx.x; column < columns && g < members; column += WORKERS)
                sum += to_float(from[g * ld_x + column]);
            const float mean = warp_sum(sum) * rate;
            for (int column = threadIdx.x; column < columns && g < members; column += WORKERS) {
                const float left = to_float(from[g * ld_x + column]) - mean;
                squares += left * left;
            }
            figures[3 * g] = share;
            figures[3 * g + 1] = mean;
            figures[3 * g + 2] = warp_sum(squares);
        }
        merge(rows, figures, count, C, epsilon);
        for (int g = 0; g < members; ++g)
            for (int column = threadIdx.x; column < columns; column += WORKERS) {
                const float value = (to_float(from[g * ld_x + column]) - rows[g].mean) * rows[g].scale;
                from_float(y[(group * GROUP + g) * C + column],
                           value * to_float(weight[column]) + to_float(bias[column]));
            }
    }
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS, RESIDENT)
layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, const TW_T* __restrict__ bias,
          TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    wait_for_previous_grid();
    if (C > CLUSTER * PART) __trap();
    const long long group = blockIdx.x / CLUSTER;
    const int begin = cluster_rank() * PART;
    const int columns = max(0, min(PART, C - begin));  // the last blocks may have none, but are waited for
    const bool packed = C % TW_PACK == 0 && ld_x % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y) &&
                        is_pack_aligned(weight) && is_pack_aligned(bias);
    if (packed) make_rows(x + begin, weight + begin, bias + begin, y + begin, group, R, C, ld_x, epsilon, columns);
    else make_rows_by_elements(x + begin, weight + begin, bias + begin, y + begin, group, R, C, ld_x, epsilon, columns);
}
