// Vectors of middling length: eight blocks that run at the same time read each other's sums from shared memory,
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
#define LOADS 2   // packs of each vector that a thread has under way together
#endif
constexpr int CLUSTER = 8;  // blocks: as many as any card takes

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(THREADS, 1)
dot(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ y, long long N, long long stride_a,
    long long stride_b) {
    wait_for_previous_grid();
    __shared__ float block_sums[THREADS / 32], of_block;
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    float sums[LOADS] = {};
    if (stride_a == 1 && stride_b == 1 && begin_alike(a, b)) {
        const Line line = line_of(a, N);
        const TW_T *packs_a = a + line.head, *packs_b = b + line.head;
        long long first = (long long)blockIdx.x * (THREADS * LOADS) + threadIdx.x;
        #pragma unroll 1
        for (; first + (LOADS - 1) * THREADS < line.packs; first += (long long)CLUSTER * (THREADS * LOADS)) {
            Pack read_a[LOADS], read_b[LOADS];
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                read_a[i] = load_pack_once(packs_a + (first + i * THREADS) * TW_PACK);
                read_b[i] = load_pack_once(packs_b + (first + i * THREADS) * TW_PACK);
            }
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) sums[i] += dot_of(read_a[i], read_b[i]);
        }
        if (first < line.packs) {  // fewer than LOADS are left: behind the end the last one is read again, as zeros
            Pack read_a[LOADS], read_b[LOADS];
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const long long pack = min(first + i * THREADS, line.packs - 1);
                read_a[i] = load_pack_once(packs_a + pack * TW_PACK);
                read_b[i] = load_pack_once(packs_b + pack * TW_PACK);
            }
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const bool is_there = first + i * THREADS < line.packs;
                sums[i] += dot_of(only_if(is_there, read_a[i]), only_if(is_there, read_b[i]));
            }
        }
        if (thread < line.loose) {
            const long long i = loose_at(line, thread);
            sums[0] = fmaf(to_float(a[i]), to_float(b[i]), sums[0]);
        }
    } else {
        #pragma unroll 1
        for (long long i = thread; i < N; i += (long long)CLUSTER * THREADS)
            sums[0] = fmaf(to_float(a[i * stride_a]), to_float(b[i * stride_b]), sums[0]);
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
