// A thread copies a pack of 16 bytes: an index, a division and an address serve 4 or 8 elements.
#include "divide.cuh"
#include "packs.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
embedding(const long long* __restrict__ indices, const TW_T* __restrict__ weight, TW_T* __restrict__ y, long long N,
          long long V, int C, long long ld_w) {
    const bool packed = C % TW_PACK == 0 && ld_w % TW_PACK == 0 && is_pack_aligned(weight) && is_pack_aligned(y);
    const int step = packed ? TW_PACK : 1, steps = C / step;  // elements of a thread, threads of a row
    // As many threads as packs; where elements go one by one, each thread comes round again.
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < N * steps;
         at += (long long)gridDim.x * THREADS) {
        const auto [place, part] = divide(at, steps);
        const long long row = indices[place];
        if (row < 0 || row >= V) __trap();
        const TW_T* from = weight + row * ld_w + part * step;
        if (packed) store_pack(y + at * TW_PACK, load_pack(from));
        else y[at] = *from;
    }
}
