// One thread an element: row indices[i] of the table becomes row i of the result.
//
// An index that names no row stops the kernel, as PyTorch's assertion does: nothing is read from where no table is.
#include "divide.cuh"
#include "elements.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
embedding(const long long* __restrict__ indices, const TW_T* __restrict__ weight, TW_T* __restrict__ y, long long N,
          long long V, int C, long long ld_w) {
    const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (at >= N * C) return;
    const auto [place, column] = divide(at, C);
    const long long row = indices[place];
    if (row < 0 || row >= V) __trap();
    y[at] = weight[row * ld_w + column];
}
