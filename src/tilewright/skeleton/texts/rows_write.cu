
__device__ __forceinline__ void write(const Vector (&values)[LOADS], const State& state, Out* row, long long column,
                                      long long end$extra_parameters)
{
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const long long at = column + (long long)i * WORKERS * VEC;
        if (at < end) {
            Vector results;
            #pragma unroll
            for (int j = 0; j < VEC; ++j) {
                const float x = static_cast<float>(values[i].items[j]);
                const float y = $result;
                results.items[j] = static_cast<T>(y);
            }
            *reinterpret_cast<Vector*>(row + at) = results;
        }
    }
}

// Columns begin .. end - 1 of a row's result, each once; `first` is its first round.
__device__ __forceinline__ void write_row(Vector (&first)[LOADS], const State& state, const T* from, Out* to,
                                          long long begin, long long end$extra_own_line)
{
    const long long column = begin + threadIdx.x % WORKERS * VEC;
    write(first, state, to, column, end$extra_arguments);
    #pragma unroll 1
    for (long long at = column + ROUND; at < end; at += ROUND) {
        Vector values[LOADS];
        load(values, from, at, end);
        write(values, state, to, at, end$extra_arguments);
    }
}
