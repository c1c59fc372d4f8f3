$saved

// First pass. Grid: rows (x), parts of a row (y). W holds a state for each part of each row.
extern "C" __global__ void __launch_bounds__(THREADS)
$name(const T* __restrict__ X, float* __restrict__ W, int R, int C)
{
    if (C % VEC || (size_t)X % sizeof(Vector)) {
        __trap();
    }
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / WORKERS;
    if (row >= R) {
        return;
    }
    Vector values[LOADS];
    const State state = state_of(values, X + row * C, begin_of(blockIdx.y, C), begin_of(blockIdx.y + 1, C));
    if (threadIdx.x % WORKERS == 0) {
        write_state(W + (blockIdx.y * (long long)R + row) * STATE_FLOATS, state);
    }
}

// The parts' states, merged in their order: the same bits every time.
__device__ __forceinline__ State state_of_parts(const float* W, long long row, int R)
{
    State state = nothing();
    for (int part = 0; part < SPLIT; ++part) {
        state = merge(state, read_state(W + (part * (long long)R + row) * STATE_FLOATS));
    }
    return state;
}

$second
