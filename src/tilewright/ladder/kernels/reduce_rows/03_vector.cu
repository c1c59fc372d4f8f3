// A load brings 16 bytes, and a thread asks for LOADS of them before it adds the first. A row is shared by as many
// threads as that leaves work for: some lanes of a warp where rows are short, a block where they are long.
//
// Rows may begin anywhere: what lies before the first multiple of 16 bytes, and behind the last pack, comes element by
// element, behind the packs or (AHEAD) before them, so that a block waits once.
#include "block.cuh"
#include "dependent.cuh"
#include "elements.cuh"
#include "line.cuh"
#include "share.cuh"
#include "streams.cuh"
#include "sums.cuh"

#ifndef WORKERS
#define WORKERS 32  // threads of a row: a power of two
#define ROWS 4      // rows of a block; several only if a row is one warp's, or less
#define LOADS 4     // packs of a thread that are under way together
#define AHEAD 0     // 1: loose elements are asked for first
#endif
constexpr int THREADS = WORKERS * ROWS;
static_assert(ROWS == 1 || WORKERS <= 32, "a row is one block's, or within one warp");
static_assert(THREADS % 32 == 0, "whole warps");
constexpr int LOOSE = AHEAD ? (2 * TW_PACK + WORKERS - 1) / WORKERS : 0;  // of a thread, at most, that come first
#ifndef ROOM
#define ROOM (LOADS <= 4 ? 1536 : 1024)  // threads of an SM: the compiler keeps to the registers that so many have
#endif

extern "C" __global__ void __launch_bounds__(THREADS, ROOM / THREADS)
reduce_rows(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    wait_for_previous_grid();
    __shared__ float block_sums[THREADS / 32];
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / WORKERS;
    const int worker = threadIdx.x % WORKERS;
    x += min(row, R - 1LL) * ld_x;  // all lanes take part in shuffles
    const Line line = line_of(x, C);
    const int count = static_cast<int>(line.packs);
    const TW_T* packs = x + line.head;
    Bits<1> loose[LOOSE + 1] = {};
    #pragma unroll
    for (int i = 0; i < LOOSE; ++i)
        if (worker + i * WORKERS < line.loose) loose[i] = load_bits<1>(x + loose_at(line, worker + i * WORKERS));
    float sums[LOADS] = {};
    int first = worker;
    #pragma unroll 1
    for (; first < count - (LOADS - 1) * WORKERS; first += WORKERS * LOADS) {
        Pack read[LOADS];
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) read[i] = load_pack_once(packs + (long long)(first + i * WORKERS) * TW_PACK);
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) sums[i] += sum_of(read[i]);
    }
    if (first < count) {  // fewer than LOADS are left: behind the end the last one is read again, as zeros
        Pack read[LOADS];
        #pragma unroll
        for (int i = 0; i < LOADS; ++i)
            read[i] = load_pack_once(packs + (long long)min(first + i * WORKERS, count - 1) * TW_PACK);
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) sums[i] += sum_of(only_if(first + i * WORKERS < count, read[i]));
    }
    if constexpr (AHEAD) {
        #pragma unroll
        for (int i = 0; i < LOOSE; ++i) {
            float value[1];
            unpack(value, loose[i]);
            sums[0] += value[0];
        }
    } else {
        for (int i = worker; i < line.loose; i += WORKERS) sums[0] += to_float(x[loose_at(line, i)]);
    }
    float sum = sums[0];
    #pragma unroll
    for (int i = 1; i < LOADS; ++i) sum += sums[i];
    if constexpr (WORKERS <= 32) sum = group_sum<WORKERS>(sum);
    else sum = block_sum(sum, block_sums);
    if (worker == 0 && row < R) from_float(y[row], sum);
}
