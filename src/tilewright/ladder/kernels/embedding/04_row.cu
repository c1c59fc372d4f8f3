// Little data: a block's threads are columns and rows, so that nothing is divided, and a thread copies one element or one
// pack: an index, a row, a store. Whether rows lie in packs is known when it is built.
#include "dependent.cuh"
#include "packs.cuh"

#ifndef STEP
#define STEP 1  // elements of a thread: 1 or TW_PACK
#endif

// blockDim.x threads copy a row, blockDim.y rows at once.
extern "C" __global__ void
embedding(const long long* __restrict__ indices, const TW_T* __restrict__ weight, TW_T* __restrict__ y, long long N,
          long long V, int C, long long ld_w) {
    wait_for_previous_grid();
    const int place = blockIdx.x * blockDim.y + threadIdx.y;
    const int column = (blockIdx.y * blockDim.x + threadIdx.x) * STEP;
    if (place >= N || column >= C) return;
    const long long row = indices[place];
    if (static_cast<unsigned long long>(row) >= V) __trap();
    const TW_T* from = weight + row * ld_w + column;
    TW_T* to = y + (long long)place * C + column;
    if constexpr (STEP == 1) *to = *from;
    else store_pack(to, load_pack(from));
}
