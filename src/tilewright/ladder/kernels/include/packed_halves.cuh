// Rows of 16-bit elements that begin anywhere, or whose elements lie apart, as packs of 16 bytes for what takes no others.
#pragma once

#include "elements.cuh"

// Eight elements of a row of so many, `step` apart, from `column` on; zeros behind its end. Neighbours are read as words, which
// are shifted by half a word where rows begin there.
__device__ __forceinline__ uint4 eight_of(const TW_T* row, long long step, int column, int columns) {
    const TW_T* from = row + column * step;
    const bool is_between = step == 1 && column > 0 && column + 8 < columns;  // neighbours may be read, and thrown away
    unsigned words[4];
    if (is_between) {
        const unsigned long long address = reinterpret_cast<unsigned long long>(from);
        const unsigned* whole = reinterpret_cast<const unsigned*>(address & ~3ull);
        const unsigned shift = address & 2 ? 16 : 0;
        unsigned read[5];
        #pragma unroll
        for (int w = 0; w < 4; ++w) read[w] = __ldg(whole + w);
        read[4] = shift ? __ldg(whole + 4) : 0;
        #pragma unroll
        for (int w = 0; w < 4; ++w) words[w] = __funnelshift_r(read[w], read[w + 1], shift);
    } else {
        const unsigned short* bits = reinterpret_cast<const unsigned short*>(from);
        #pragma unroll
        for (int w = 0; w < 4; ++w) {
            const unsigned low = column + w * 2 < columns ? bits[w * 2 * step] : 0;
            const unsigned high = column + w * 2 + 1 < columns ? bits[(w * 2 + 1) * step] : 0;
            words[w] = low | high << 16;
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}
