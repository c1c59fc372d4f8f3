// 16 bytes of a row into shared memory, VEC elements at a time. Only count_left elements of it exist (0 or less: none);
// the rest become zeros, and nothing is read beyond: a copy of size 0 only writes zeros.
template <int VEC>
__device__ __forceinline__ void copy_chunk(unsigned to, const T* from, int count_left, bool is_wanted)
{
    if constexpr (VEC == 1) {
        // No asynchronous copy is this narrow: the elements pass through registers.
        if (is_wanted) {
            T values[CHUNK];
            #pragma unroll
            for (int i = 0; i < CHUNK; ++i) {
                values[i] = i < count_left ? from[i] : T(0.0f);
            }
            const unsigned* words = reinterpret_cast<const unsigned*>(values);
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n"
                         :: "r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
        }
    } else {
        constexpr int BYTES = VEC * sizeof(T);
        #pragma unroll
        for (int i = 0; i < CHUNK; i += VEC) {
            const int size = i < count_left ? BYTES : 0;
            // A predicate and no branch: the copies can then be scheduled between the matrix instructions.
            if constexpr (BYTES == 16) {
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0;\n"
                             "@p cp.async.cg.shared.global [%0], [%1], 16, %2; }\n"
                             :: "r"(to), "l"(from), "r"(size), "r"((int)is_wanted));
            } else {
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0;\n"
                             "@p cp.async.ca.shared.global [%0], [%1], %4, %2; }\n"
                             :: "r"(to + i * (int)sizeof(T)), "l"(from + i), "r"(size), "r"((int)is_wanted),
                                "n"(BYTES));
            }
        }
    }
}
