// Figures a row ahead, and each power found once. A warp finds the powers of its next row while it writes those of this one,
// pack by pack, in the same registers: the chunk in shared memory is read for its largest element, and once more for the
// powers, and is free for the row after the next while this row's results are still on their way.
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

__device__ __forceinline__ float largest_in(const Row& rows, int stage) {
    Words packs[PACKS];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) packs[i] = rows.read(stage, i, MINUS_INFINITY);
    return warp_max(largest_of(packs));
}

// Pack i of a row in shared memory: its powers, and their sum on top.
__device__ __forceinline__ void find_powers(float (&powers)[TW_PACK], float& sum, const Row& rows, int stage, int i,
                                            const Exp& exp) {
    float values[TW_PACK];
    unpack(values, rows.read(stage, i, MINUS_INFINITY));
    #pragma unroll
    for (int j = 0; j < TW_PACK; ++j) {
        powers[j] = exp.of(values[j]);
        sum += powers[j];
    }
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

__device__ __forceinline__ void write(TW_T* to, const Row& rows, int i, const float (&powers)[TW_PACK], float scale) {
    float values[TW_PACK];
    #pragma unroll
    for (int j = 0; j < TW_PACK; ++j) values[j] = scale * powers[j];
    if (rows.has(i)) store_words_once(to + column_of<32>(i, threadIdx.x % 32), packed(values));
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

    float powers[PACKS][TW_PACK], largest = MINUS_INFINITY, sum = 0.0f;  // the warp's largest element, and to it the rest
    if (row < R) {
        wait_for(&rows.arrivals[0], 0);
        largest = largest_in(rows, 0);
        const Exp exp(largest);
        #pragma unroll
        for (int i = 0; i < PACKS; ++i) find_powers(powers[i], sum, rows, 0, i, exp);
        boards.tell(0, {largest, warp_sum(sum)});
        __syncwarp();
        if (lane == 0) rows.fill(0, row + STAGES * clusters);  // all lanes have read it
    }
    int stage = 0, phase = 0, count = 0;
    for (; row + clusters < R; row += clusters, ++count) {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
        wait_for(&rows.arrivals[stage], phase);
        const float next = largest_in(rows, stage);
        const Exp exp(next);
        const RowState state = heard(count);
        const float scale = Exp::between(largest, state.largest) / state.sum;
        sum = 0.0f;
        #pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            write(y + row * C + begin, rows, i, powers[i], scale);
            find_powers(powers[i], sum, rows, stage, i, exp);
        }
        largest = next;
        boards.tell(count + 1, {largest, warp_sum(sum)});
        __syncwarp();
        if (lane == 0) rows.fill(stage, row + (STAGES + 1) * clusters);
    }
    if (row >= R) return;
    const RowState state = heard(count);
    const float scale = Exp::between(largest, state.largest) / state.sum;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) write(y + row * C + begin, rows, i, powers[i], scale);
}
