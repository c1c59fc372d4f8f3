// What is known of the columns read so far.
struct State {
    float sum;
};

__device__ __forceinline__ State nothing()
{
    return {0.0f};
}

__device__ __forceinline__ void add(State& state, const float (&items)[VEC])
{
    float sum = items[0];
    #pragma unroll
    for (int i = 1; i < VEC; ++i) {
        sum += items[i];
    }
    state.sum += sum;
}

__device__ __forceinline__ State merge(const State& a, const State& b)
{
    return {a.sum + b.sum};
}

__device__ __forceinline__ State shuffled(const State& a, int distance)
{
    return {__shfl_xor_sync(0xffffffff, a.sum, distance)};
}
