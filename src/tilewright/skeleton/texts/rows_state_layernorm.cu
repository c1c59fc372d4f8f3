// What is known of the columns read so far. Means and squared deviations from them are merged as Chan, Golub and
// LeVeque do: a difference of large sums would lose the variance.
struct State {
    float count;
    float mean;
    float squares;  // sum of (x - mean)^2
};

__device__ __forceinline__ State nothing()
{
    return {0.0f, 0.0f, 0.0f};
}

__device__ __forceinline__ State merge(const State& a, const State& b)
{
    const float count = a.count + b.count;
    const float difference = b.mean - a.mean;
    const float share = count > 0.0f ? b.count / count : 0.0f;
    return {count, a.mean + difference * share, a.squares + b.squares + difference * difference * a.count * share};
}

__device__ __forceinline__ void add(State& state, const float (&items)[VEC])
{
    float mean = items[0];
    #pragma unroll
    for (int i = 1; i < VEC; ++i) {
        mean += items[i];
    }
    mean *= 1.0f / VEC;
    float squares = 0.0f;
    #pragma unroll
    for (int i = 0; i < VEC; ++i) {
        squares += (items[i] - mean) * (items[i] - mean);
    }
    state = merge(state, {float(VEC), mean, squares});
}

__device__ __forceinline__ State shuffled(const State& a, int distance)
{
    return {__shfl_xor_sync(0xffffffff, a.count, distance), __shfl_xor_sync(0xffffffff, a.mean, distance),
            __shfl_xor_sync(0xffffffff, a.squares, distance)};
}
