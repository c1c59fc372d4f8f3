// What the threads of a warp can tell each other: one row of `out` [ROWS][64] for each operation, in [64] int.
#include "ptx_wrappers.cuh"

extern "C" __global__ void __launch_bounds__(64) warp_operations(const int *__restrict__ in, int *__restrict__ out) {
    const unsigned all = 0xFFFFFFFFu;
    const int thread = threadIdx.x, lane = thread % 32;
    const int x = in[thread];
    int row = 0;
    auto put = [&](int value) { out[row++ * 64 + thread] = value; };

    put(__shfl_sync(all, x, 5));
    put(__shfl_sync(all, x, lane * 3 % 32));
    put(__shfl_up_sync(all, x, 3));
    put(__shfl_down_sync(all, x, 3));
    put(__shfl_xor_sync(all, x, 9));
    put(__shfl_down_sync(all, x, 2, 8));
    put(__shfl_sync(all, x, 2, 16));
    put(__all_sync(all, x > -100));
    put(__all_sync(all, x > 0));
    put(__any_sync(all, x > 1000));
    put(__any_sync(all, x > 0));
    put((int)__ballot_sync(all, x & 1));
    put((int)__match_any_sync(all, x & 3));
    int same;
    put((int)__match_all_sync(all, x & 1024, &same));
    put(same);
    put(__match_all_sync(all, x, &same) == 0);
    put(__reduce_add_sync(all, x));
    put(__reduce_min_sync(all, x));
    put(__reduce_max_sync(all, x));
    put((int)__reduce_and_sync(all, (unsigned)x));
    put((int)__reduce_or_sync(all, (unsigned)x & 0xFF));
    put((int)__reduce_xor_sync(all, (unsigned)x));
    put((int)__reduce_max_sync(all, (unsigned)x));
    // A tree of shuffles.
    int sum = x;
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(all, sum, distance);
    put(sum);
    int uniform;
    asm volatile("{\n\t.reg .pred p, q;\n\tsetp.gt.s32 q, %1, 0;\n\tvote.sync.uni.pred p, q, -1;\n\tselp.s32 %0, 1, 0, p;\n\t}"
                 : "=r"(uniform)
                 : "r"(x));
    put(uniform);
    // Half a warp, in a branch. How threads converge is not promised, but each is active where it is.
    int half = 0;
    if (lane < 16) half = (int)((__activemask() >> lane) & 1) + 2 * __reduce_add_sync(0xFFFFu, lane);
    put(half);
#if ELECT
    // Which lane is elected is not said; that there is one, that all hear of it, and that it is active, is.
    unsigned leader, elected;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync %0|p, 0xFFFFFFFF;\n\tselp.u32 %1, 1, 0, p;\n\t}"
                 : "=r"(leader), "=r"(elected));
    put(__popc(__ballot_sync(all, elected)));
    put(__ballot_sync(all, elected) == 1u << leader);
#endif
}
