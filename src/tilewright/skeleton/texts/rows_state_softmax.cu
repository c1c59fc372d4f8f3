#define MINUS_INFINITY __int_as_float(0xff800000)  // NVRTC has no INFINITY without a header

// What is known of the columns read so far: their largest, and the sum of exp(x - largest).
struct State {
    float largest;
    float sum;
};

__device__ __forceinline__ State nothing()
{
    return {MINUS_INFINITY, 0.0f};
}

// A row may begin with -inf (masked scores): the difference of two of them is no number.
__device__ __forceinline__ float finite(float largest)
{
    return largest == MINUS_INFINITY ? 0.0f : largest;
}

__device__ __forceinline__ void add(State& state, const float (&items)[VEC])
{
    float largest = state.largest;
    #pragma unroll
    for (int i = 0; i < VEC; ++i) {
        largest = fmaxf(largest, items[i]);
    }
    const float base = finite(largest);
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < VEC; ++i) {
        sum += __expf(items[i] - base);
    }
    state.sum = state.sum * __expf(state.largest - base) + sum;
    state.largest = largest;
}

__device__ __forceinline__ State merge(const State& a, const State& b)
{
    const float largest = fmaxf(a.largest, b.largest);
    const float base = finite(largest);
    return {largest, a.sum * __expf(a.largest - base) + b.sum * __expf(b.largest - base)};
}

__device__ __forceinline__ State shuffled(const State& a, int distance)
{
    return {__shfl_xor_sync(0xffffffff, a.largest, distance), __shfl_xor_sync(0xffffffff, a.sum, distance)};
}
