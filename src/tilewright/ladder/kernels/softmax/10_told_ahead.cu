// What the warps of a row find is sent a row ahead: the next row's figures are under way while this one is written, and
// nobody waits for them. Each warp streams its own chunk of the rows through shared memory, waits for no other warp's,
// and reads it twice there: for its maximum and the sum to it, and a row later for the results, whose powers are found
// again.
//
// A row of up to CLUSTER * WORKERS * PACKS * 16 bytes fits, in whole packs of 16 bytes.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "behind.cuh"
#include "dependent.cuh"
#include "exponential.cuh"
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
using Exp = Powers<TW_T_BYTES == 2>;

__shared__ RowBoards<CLUSTER, WARPS, 2> boards;  // of a warp: its largest element, the sum of exp(x - largest)

__device__ __forceinline__ void tell(const Row& rows, int stage, int count) {
    Words packs[PACKS];
    float largest = MINUS_INFINITY, sum = 0.0f, values[TW_PACK];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        packs[i] = rows.read(stage, i, MINUS_INFINITY);
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) largest = fmaxf(largest, values[j]);
    }
    keep_packed(packs);
    largest = warp_max(largest);
    const Exp exp(largest);
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) sum += exp.of(values[j]);
    }
    boards.tell(count, {largest, warp_sum(sum)});
}

struct RowState {
    float largest, sum;
};

__device__ __forceinline__ RowState heard(int count) {
    constexpr int OF_A_LANE = (PARTS + 31) / 32;
    const float(&board)[PARTS][2] = boards.heard(count);
    float maxima[OF_A_LANE], largest = MINUS_INFINITY, sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < OF_A_LANE; ++i) {
        const int part = i * 32 + threadIdx.x % 32;
        maxima[i] = part < PARTS ? board[part][0] : MINUS_INFINITY;
        largest = fmaxf(largest, maxima[i]);
    }
    largest = warp_max(largest);
    #pragma unroll
    for (int i = 0; i < OF_A_LANE; ++i) {
        const int part = i * 32 + threadIdx.x % 32;
        if (part < PARTS) sum += board[part][1] * Exp::between(maxima[i], largest);
    }
    return {largest, warp_sum(sum)};
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS, RESIDENT)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
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
    boards.open();

    if (row < R) {
        wait_for(&rows.arrivals[0], 0);
        tell(rows, 0, 0);
    }
    int stage = 0, ahead = 0, phase = 0;
    for (int count = 0; row < R; row += clusters, ++count) {
        if (++ahead == STAGES) {
            ahead = 0;
            phase ^= 1;
        }
        if (row + clusters < R) {
            wait_for(&rows.arrivals[ahead], phase);
            tell(rows, ahead, count + 1);
        }
        const RowState state = heard(count);
        const float scale = 1.0f / state.sum;
        const Exp exp(state.largest);
        TW_T* to = y + row * C + begin;
        #pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            float values[TW_PACK];
            unpack(values, rows.read(stage, i, MINUS_INFINITY));
            #pragma unroll
            for (int j = 0; j < TW_PACK; ++j) values[j] = scale * exp.of(values[j]);
            if (rows.has(i)) store_words_once(to + column_of<32>(i, lane), packed(values));
        }
        __syncwarp();
        if (lane == 0) rows.fill(stage, row + STAGES * clusters);  // all lanes have read it
        if (++stage == STAGES) stage = 0;
    }
}
