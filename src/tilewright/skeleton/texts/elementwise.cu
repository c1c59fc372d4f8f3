// $title
// Y[i] = combine($combine_list) for i < n.
//
// A thread makes LOADS vectors a round: all are loaded before the first is used. The grid strides over what is left, so
// that any number of blocks covers every vector once; the last n % VEC elements are made one by one.
// The pointers must be aligned to a vector. VEC = 1 fits everything.

$includes

constexpr int THREADS = $threads;
constexpr int LOADS = $loads;     // vectors that a thread has under way
constexpr int VEC = $vec;       // elements of a vector

using T = $element;

struct alignas(VEC * sizeof(T)) Vector {
    T items[VEC];
};

// What is made of one element of each input: put yours here.
__device__ __forceinline__ float combine($combine_parameters)
{
    return $expression;
}

extern "C" __global__ void __launch_bounds__(THREADS)
$name($kernel_parameters
    T* __restrict__ Y, long long n)
{
    if (($addresses(size_t)Y) % sizeof(Vector)) {
        __trap();
    }
    const long long vectors = n / VEC;
    const long long stride = (long long)gridDim.x * THREADS * LOADS;
    #pragma unroll 1
    for (long long base = (long long)blockIdx.x * THREADS * LOADS + threadIdx.x; base < vectors; base += stride) {
$declare
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const long long at = base + (long long)i * THREADS;
            if (at < vectors) {
$load
            }
        }
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const long long at = base + (long long)i * THREADS;
            if (at < vectors) {
                Vector results;
                #pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    results.items[j] = static_cast<T>(combine($vector_items));
                }
                reinterpret_cast<Vector*>(Y)[at] = results;
            }
        }
    }
    const long long left = vectors * VEC + (long long)blockIdx.x * THREADS + threadIdx.x;
    if (left < n) {
        Y[left] = static_cast<T>(combine($scalar_items));
    }
}
