// Quotient and rest of an index that may pass 2**32: the 64-bit division takes about five times as long as the 32-bit one,
// and is taken only there.
#pragma once

struct Divided {
    long long quotient;
    int rest;
};

__device__ __forceinline__ Divided divide(long long index, int by) {
    if (index >> 32) return {index / by, static_cast<int>(index % by)};
    const unsigned low = static_cast<unsigned>(index), quotient = low / by;
    return {quotient, static_cast<int>(low - quotient * by)};
}
