constexpr int STATE_FLOATS = 1;  // of a state in memory

__device__ __forceinline__ void write_state(float* to, const State& state)
{
    to[0] = state.sum;
}

__device__ __forceinline__ State read_state(const float* from)
{
    return {from[0]};
}
