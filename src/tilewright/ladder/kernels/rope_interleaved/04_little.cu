// Little data, or heads that do not lie in packs: what takes the time is how long one thread works. The block says which
// token it is, and the thread's two indices which head and which pair: nothing is divided, the four loads of a pair do not
// wait for one another, and there are as many threads as pairs.
#include "dependent.cuh"
#include "elements.cuh"

// blockDim.x threads turn a head's pairs, blockDim.y heads at once; blockIdx.x is the token.
extern "C" __global__ void
rope(const TW_T* __restrict__ x, const float* __restrict__ cosines, const float* __restrict__ sines,
     TW_T* __restrict__ y, int tokens, int H, int D, long long ld_x) {
    wait_for_previous_grid();
    const int pairs = D / 2;  // of a head
    const int head = blockIdx.y * blockDim.y + threadIdx.y;
    if (head >= H) return;
    // Of the token: all that is added to these is less than 2**31.
    const int token = blockIdx.x;
    x += token * ld_x;
    y += (long long)token * (H * D);
    cosines += (long long)token * pairs;
    sines += (long long)token * pairs;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        const int at = head * D + 2 * i;
        const float a = to_float(x[at]), b = to_float(x[at + 1]);
        const float cosine = cosines[i], sine = sines[i];
        from_float(y[at], a * cosine - b * sine);
        from_float(y[at + 1], b * cosine + a * sine);
    }
}
