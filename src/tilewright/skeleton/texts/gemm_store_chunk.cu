// 16 bytes of a row of C, VEC_C elements at a time.
__device__ __forceinline__ void store_chunk(uint4 values, Out* C, int row, int col, int M, int N)
{
    static_assert(sizeof(Out) == 2, "eight elements");
    constexpr int COUNT = 8;
    constexpr int BYTES = VEC_C * sizeof(Out);
    if (row >= M) {
        return;
    }
    Out* to = C + (size_t)row * N + col;
    const unsigned words[4] = {values.x, values.y, values.z, values.w};
    #pragma unroll
    for (int i = 0; i < COUNT; i += VEC_C) {
        if (col + i < N) {
            if constexpr (BYTES == 16) {
                *reinterpret_cast<uint4*>(to) = values;
            } else if constexpr (BYTES == 8) {
                *reinterpret_cast<uint2*>(to + i) = make_uint2(words[i / 2], words[i / 2 + 1]);
            } else if constexpr (BYTES == 4) {
                *reinterpret_cast<unsigned*>(to + i) = words[i / 2];
            } else {
                to[i] = reinterpret_cast<const Out*>(words)[i];
            }
        }
    }
}
