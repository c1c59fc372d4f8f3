constexpr int STATE_FLOATS = 3;  // of a state in memory

__device__ __forceinline__ void write_state(float* to, const State& state)
{
    to[0] = state.count;
    to[1] = state.mean;
    to[2] = state.squares;
}

__device__ __forceinline__ State read_state(const float* from)
{
    return {from[0], from[1], from[2]};
}
