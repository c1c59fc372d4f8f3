// COUNT sums side by side, in one instruction.
template <int COUNT>
__device__ __forceinline__ void store_vector(Sum* to, const Sum* values)
{
    if constexpr (COUNT == 4) {
        *reinterpret_cast<${accumulator}4*>(to) = make_${accumulator}4(values[0], values[1], values[2], values[3]);
    } else if constexpr (COUNT == 2) {
        *reinterpret_cast<${accumulator}2*>(to) = make_${accumulator}2(values[0], values[1]);
    } else {
        to[0] = values[0];
    }
}

