// Arrays of middling length: eight blocks that run at the same time read each other's sums from shared memory,
// instead of writing them to memory, drawing a ticket and reading them again. For long ones, eight blocks are too few.
#include "block.cuh"
#include "cluster.cuh"
#include "dependent.cuh"
#include "elements.cuh"
#include "line.cuh"
#include "streams.cuh"
#include "sums.cuh"

#ifndef THREADS
#define THREADS 128
#define LOADS 4   // packs of a thread that are under way together
#endif
constexpr int CLUSTER = 8;  // blocks: as many as any card takes

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
reduce(const TW_T* __restrict__ x, TW_T* __restrict__ y, long long N, long long stride_x) {
    wait_for_previous_grid();
    __shared__ float block_sums[THREADS / 32], of_block;
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    float sums[LOADS] = {};
    if (stride_x == 1) {
        const Line line = line_of(x, N);
        const TW_T* packs = x + line.head;
        long long first = (long long)blockIdx.x * (THREADS * LOADS) + threadIdx.x;
        #pragma unroll 1
        for (; first + (LOADS - 1) * THREADS < line.packs; first += (long long)CLUSTER * (THREADS * LOADS)) {
            Pack read[LOADS];
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) read[i] = load_pack_once(packs + (first + i * THREADS) * TW_PACK);
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) sums[i] += sum_of(read[i]);
        }
        if (first < line.packs) {  // fewer than LOADS are left: behind the end the last one is read again, as zeros
            Pack read[LOADS];
            #pragma unroll
            for (int i = 0; i < LOADS; ++i)
                read[i] = load_pack_once(packs + min(first + i * THREADS, line.packs - 1) * TW_PACK);
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) sums[i] += sum_of(only_if(first + i * THREADS < line.packs, read[i]));
        }
        if (thread < line.loose) sums[0] += to_float(x[loose_at(line, thread)]);
    } else {
        #pragma unroll 1
        for (long long i = thread; i < N; i += (long long)CLUSTER * THREADS) sums[0] += to_float(x[i * stride_x]);
    }
    float sum = sums[0];
    #pragma unroll
    for (int i = 1; i < LOADS; ++i) sum += sums[i];
    sum = block_sum(sum, block_sums);
    if (threadIdx.x == THREADS - 1) of_block = sum;  // all threads have it; the last warp is none of the readers
    cluster_arrive();
    cluster_wait();
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        const int lane = threadIdx.x;
        sum = warp_sum(lane < CLUSTER ? load_of_block(&of_block, lane) : 0.0f);
        if (lane == 0) from_float(*y, sum);
    }
    cluster_arrive();  // nobody ends while its sum may still be read
    cluster_wait();
}
