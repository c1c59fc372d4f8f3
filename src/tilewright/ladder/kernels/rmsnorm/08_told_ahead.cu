// What the warps of a row find is sent a row ahead: the next row's figures are under way while this one is written, and
// nobody waits for them. Each warp streams its own chunk of the rows through shared memory, waits for no other warp's,
// and reads it twice there: for its squares, and a row later for the results. The weights stay in registers: a thread's
// columns are the same in every row.
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

__shared__ RowBoards<CLUSTER, WARPS, 1> boards;  // of a warp: the sum of its squares

__device__ __forceinline__ void tell(const Row& rows, int stage, int count) {
    float squares = 0.0f, values[TW_PACK];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, rows.read(stage, i, 0.0f));
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) squares += values[j] * values[j];
    }
    boards.tell(count, {warp_sum(squares)});
}

__device__ __forceinline__ float heard(int count, int C, float epsilon) {
    const float(&board)[PARTS][1] = boards.heard(count);
    float squares = 0.0f;
    #pragma unroll
    for (int i = 0; i < PARTS; i += 32) {
        const int part = i + threadIdx.x % 32;
        if (part < PARTS) squares += board[part][0];
    }
    return rsqrtf(warp_sum(squares) / C + epsilon);
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS, RESIDENT)
rmsnorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, TW_T* __restrict__ y, int R, int C, long long ld_x,
        float epsilon) {
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
    Words weights[PACKS];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i)
        weights[i] = rows.has(i) ? load_words(weight + begin + column_of<32>(i, lane)) : repeated(0.0f);
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
        const float scale = heard(count, C, epsilon);
        keep_packed(weights);
        TW_T* to = y + row * C + begin;
        #pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            float values[TW_PACK], factors[TW_PACK];
            unpack(values, rows.read(stage, i, 0.0f));
            unpack(factors, weights[i]);
            #pragma unroll
            for (int j = 0; j < TW_PACK; ++j) values[j] *= scale * factors[j];
            if (rows.has(i)) store_words_once(to + column_of<32>(i, lane), packed(values));
        }
        __syncwarp();
        if (lane == 0) rows.fill(stage, row + STAGES * clusters);  // all lanes have read it
        if (++stage == STAGES) stage = 0;
    }
}
