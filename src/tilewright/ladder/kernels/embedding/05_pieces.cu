// Rows that packs of 16 bytes do not fit: a thread has several accesses of one row, each as wide as all rows allow, and
// all of them are under way before the first is stored. Which thread has what, the compiler knows: nothing is divided,
// and there is no loop. As many threads share a row as lie in a warp: a block has several rows.
//
// A table of one row is not asked which of its rows is meant: whatever index is right says the same.
#include "dependent.cuh"
#include "share.cuh"

#ifndef LANES
#define LANES 16                 // threads of a row, or of a part of it
#define PIECES 2                 // accesses of a thread
#define WIDTH (16 / TW_T_BYTES)  // elements of an access, where the arrays allow it
#define ROWS 8                   // of a block
#define ALONE 0                  // 1: the table has one row
#endif

// Where no row is named, nothing is read.
template <int ACROSS, int OWNED>
__device__ __forceinline__ void copy_part(const TW_T* from, TW_T* to, int left, bool is_there) {
    Bits<ACROSS> share[OWNED];
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        share[i] = {};
        if (is_there && i * LANES * ACROSS < left) share[i] = load_bits<ACROSS>(from + i * LANES * ACROSS);
    }
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        if (i * LANES * ACROSS < left) store_bits(to + i * LANES * ACROSS, share[i]);
}

extern "C" __global__ void __launch_bounds__(LANES * ROWS)
embedding(const long long* __restrict__ indices, const TW_T* __restrict__ weight, TW_T* __restrict__ y, long long N,
          long long V, int C, long long ld_w) {
    wait_for_previous_grid();
    const long long place = (long long)blockIdx.x * ROWS + threadIdx.x / LANES;
    if (place >= N) return;
    const long long index = __ldg(indices + place);
    const bool is_wide = C % WIDTH == 0 && ld_w % WIDTH == 0 && is_aligned_for<WIDTH>(weight) && is_aligned_for<WIDTH>(y);
    const bool is_row = static_cast<unsigned long long>(index) < V;
    const int part = blockIdx.y * (LANES * PIECES * WIDTH), lane = threadIdx.x % LANES;
    weight += (ALONE ? 0 : index * ld_w) + part;
    y += place * C + part;
    const int left = C - part;
    if (WIDTH == 1 || is_wide)
        copy_part<WIDTH, PIECES>(weight + lane * WIDTH, y + lane * WIDTH, left - lane * WIDTH, ALONE || is_row);
    else copy_part<1, PIECES * WIDTH>(weight + lane, y + lane, left - lane, ALONE || is_row);
    if (!is_row) __trap();  // told behind the work, which is not there then
}
