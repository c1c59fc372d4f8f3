// What the warps of a row find is sent a row ahead: the next row's figures are under way while this one is written, and
// nobody waits for them. Each warp streams its own chunk of the rows through shared memory, waits for no other warp's,
// and reads it twice there: for its mean and the squares around it, and a row later for the results. Weights and biases
// stay in registers: a thread's columns are the same in every row.
//
// A row of up to CLUSTER * WORKERS * PACKS * 16 bytes fits, in whole packs of 16 bytes.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "behind.cuh"
#include "dependent.cuh"
#include "warp.cuh"

#ifndef CLUSTER
#define CLUSTER 2    // blocks of a row
#define WORKERS 128  // threads of a block
#define PACKS 2      // packs of a thread, of each row
#define STAGES 4     // rows of a block in shared memory
#define RESIDENT 1   // blocks of an SM
#define CLUSTERS 2   // of the launch, at most
#endif
#ifndef WHOLE
#define WHOLE 0  // C, where a row fills all packs
#endif
constexpr int WARPS = WORKERS / 32, PARTS = CLUSTER * WARPS;
using Row = Chunks<STAGES, PACKS, (WHOLE > 0)>;
constexpr bool IS_PIVOTED = TW_T_BYTES == 2;     // sums and squares around an element come of one reading
constexpr bool ARE_KEPT_PACKED = PACKS > 4;      // weights and biases, where their floats take too many registers

__shared__ RowBoards<CLUSTER, WARPS, 2> boards;  // of a warp: the sum of its elements, the squares around their mean

// Of a chunk: squares around its mean, from sums around one of its elements. That is at most sqrt(elements) deviations
// from the mean: what cancels, of a few thousand elements, leaves a 16-bit result enough.
__device__ __forceinline__ void tell_at_once(const Row& rows, int stage, int count, float rate) {
    float sum = 0.0f, squares = 0.0f, values[TW_PACK], pivot = 0.0f;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, rows.read(stage, i, 0.0f));
        if (i == 0) pivot = __shfl_sync(ALL_LANES, values[0], 0);
        if (!rows.has(i)) continue;
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const float apart = values[j] - pivot;
            sum += apart;
            squares += apart * apart;
        }
    }
    sum = warp_sum(sum);
    squares = fmaxf(warp_sum(squares) - sum * sum * rate, 0.0f);
    boards.tell(count, {sum + pivot * rows.columns, squares});
}

__device__ __forceinline__ void tell(const Row& rows, int stage, int count, float rate) {
    if constexpr (IS_PIVOTED) return tell_at_once(rows, stage, count, rate);
    Words packs[PACKS];
    float sum = 0.0f, squares = 0.0f, values[TW_PACK];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        packs[i] = rows.read(stage, i, 0.0f);
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) sum += values[j];
    }
    keep_packed(packs);
    sum = warp_sum(sum);
    const float mean = sum * rate;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        if (!rows.has(i)) continue;
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) squares += (values[j] - mean) * (values[j] - mean);
    }
    boards.tell(count, {sum, warp_sum(squares)});
}

struct Normal {
    float mean, scale;
};

// Chan's formula, over the warps of the cluster.
__device__ __forceinline__ Normal heard(int count, int C, float epsilon) {
    constexpr int OF_A_LANE = (PARTS + 31) / 32;
    const float(&board)[PARTS][2] = boards.heard(count);
    float sums[OF_A_LANE], squares = 0.0f, sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < OF_A_LANE; ++i) {
        const int part = i * 32 + threadIdx.x % 32;
        sums[i] = part < PARTS ? board[part][0] : 0.0f;
        sum += sums[i];
    }
    const float mean = warp_sum(sum) / C;
    #pragma unroll
    for (int i = 0; i < OF_A_LANE; ++i) {
        const int part = i * 32 + threadIdx.x % 32, elements = min(C - part * Row::LENGTH, Row::LENGTH);
        if (part >= PARTS || elements <= 0) continue;
        const float apart = __fdividef(sums[i], elements) - mean;
        squares += board[part][1] + apart * apart * elements;
    }
    return {mean, rsqrtf(warp_sum(squares) / C + epsilon)};
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS, RESIDENT)
layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, const TW_T* __restrict__ bias,
          TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    wait_for_previous_grid();
    if (WHOLE ? C != PARTS * Row::LENGTH : C > PARTS * Row::LENGTH) __trap();
    extern __shared__ uint4 memory[];
    __shared__ Arrivals arrivals[WARPS][STAGES];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int begin = (cluster_rank() * WARPS + warp) * Row::LENGTH, columns = max(0, min(Row::LENGTH, C - begin));
    const Row rows = {reinterpret_cast<TW_T*>(memory) + warp * STAGES * Row::LENGTH, arrivals[warp], x + begin, ld_x,
                      columns, R};
    const long long clusters = gridDim.x / CLUSTER;
    long long row = blockIdx.x / CLUSTER;
    if (lane == 0) rows.begin(row, clusters);
    Words weights[PACKS], biases[PACKS];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        weights[i] = biases[i] = repeated(0.0f);
        if (!rows.has(i)) continue;
        weights[i] = load_words(weight + begin + column_of<32>(i, lane));
        biases[i] = load_words(bias + begin + column_of<32>(i, lane));
    }
    const float rate = 1.0f / max(columns, 1);
    boards.open();

    if (row < R) {
        wait_for(&rows.arrivals[0], 0);
        tell(rows, 0, 0, rate);
    }
    int stage = 0, ahead = 0, phase = 0;
    for (int count = 0; row < R; row += clusters, ++count) {
        if (++ahead == STAGES) {
            ahead = 0;
            phase ^= 1;
        }
        if (row + clusters < R) {
            wait_for(&rows.arrivals[ahead], phase);
            tell(rows, ahead, count + 1, rate);
        }
        const Normal normal = heard(count, C, epsilon);
        if constexpr (ARE_KEPT_PACKED) {
            keep_packed(weights);
            keep_packed(biases);
        }
        const float shift = -normal.mean * normal.scale;
        TW_T* to = y + row * C + begin;
        #pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            float values[TW_PACK], scales[TW_PACK], shifts[TW_PACK];
            unpack(values, rows.read(stage, i, 0.0f));
            unpack(scales, weights[i]);
            unpack(shifts, biases[i]);
            #pragma unroll
            for (int j = 0; j < TW_PACK; ++j) {
                const float value = IS_PIVOTED ? values[j] * normal.scale + shift : (values[j] - normal.mean) * normal.scale;
                values[j] = value * scales[j] + shifts[j];
            }
            if (rows.has(i)) store_words_once(to + column_of<32>(i, lane), packed(values));
        }
        __syncwarp();
        if (lane == 0) rows.fill(stage, row + STAGES * clusters);  // all lanes have read it
        if (++stage == STAGES) stage = 0;
    }
}
