// wgmma of signed bytes, sums in int32: one instruction takes 32 elements of k, and both operands K-major, for it has no
// bits to say otherwise: b is given by its columns (a layer's weights by output, [N, K]), as a is by its rows.
// PTX ISA, "wgmma.mma_async". Sums wrap around.
#pragma once

#include "mma_s8.cuh"

#include "wgmma.cuh"

// Behind the last wait, where sums go on in registers: see wgmma.cuh.
template <int COUNT>
__device__ __forceinline__ void hold(int (&sums)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}

// The operands of an instruction: its names are those of wgmma.cuh.
#define TW_INTS(d, i)                                                                                                \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]),      \
        "+r"(d[i + 7])
#define TW_8_INTS(d) TW_INTS(d, 0)
#define TW_16_INTS(d) TW_8_INTS(d), TW_INTS(d, 8)
#define TW_24_INTS(d) TW_16_INTS(d), TW_INTS(d, 16)
#define TW_32_INTS(d) TW_24_INTS(d), TW_INTS(d, 24)
#define TW_40_INTS(d) TW_32_INTS(d), TW_INTS(d, 32)
#define TW_48_INTS(d) TW_40_INTS(d), TW_INTS(d, 40)
#define TW_56_INTS(d) TW_48_INTS(d), TW_INTS(d, 48)
#define TW_64_INTS(d) TW_56_INTS(d), TW_INTS(d, 56)
#define TW_72_INTS(d) TW_64_INTS(d), TW_INTS(d, 64)
#define TW_80_INTS(d) TW_72_INTS(d), TW_INTS(d, 72)
#define TW_88_INTS(d) TW_80_INTS(d), TW_INTS(d, 80)
#define TW_96_INTS(d) TW_88_INTS(d), TW_INTS(d, 88)
#define TW_104_INTS(d) TW_96_INTS(d), TW_INTS(d, 96)
#define TW_112_INTS(d) TW_104_INTS(d), TW_INTS(d, 104)
#define TW_120_INTS(d) TW_112_INTS(d), TW_INTS(d, 112)
#define TW_128_INTS(d) TW_120_INTS(d), TW_INTS(d, 120)

// sums = a b + (accumulate ? sums : 0), where a is 64 x 32 and b 32 x COLUMNS, of tiles in rows of 128 bytes along k.
#define TW_WGMMA_S8(COLUMNS, COUNT, A, B, ACCUMULATE)                                                                \
    __device__ __forceinline__ void wgmma_s8(int (&sums)[COUNT], unsigned long long a, unsigned long long b,         \
                                             bool accumulate) {                                                      \
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #ACCUMULATE ", 0;\n"                                 \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k32.s32.s8.s8 {" TW_##COUNT##_NAMES "}, %" #A     \
                     ", %" #B ", adds;\n}"                                                                           \
                     : TW_##COUNT##_INTS(sums)                                                                       \
                     : "l"(a), "l"(b), "r"((int)accumulate)                                                          \
                     : "memory");                                                                                    \
    }
TW_WGMMA_S8(16, 8, 8, 9, 10)
TW_WGMMA_S8(32, 16, 16, 17, 18)
TW_WGMMA_S8(48, 24, 24, 25, 26)
TW_WGMMA_S8(64, 32, 32, 33, 34)
TW_WGMMA_S8(80, 40, 40, 41, 42)
TW_WGMMA_S8(96, 48, 48, 49, 50)
TW_WGMMA_S8(112, 56, 56, 57, 58)
TW_WGMMA_S8(128, 64, 64, 65, 66)
TW_WGMMA_S8(144, 72, 72, 73, 74)
TW_WGMMA_S8(160, 80, 80, 81, 82)
TW_WGMMA_S8(176, 88, 88, 89, 90)
TW_WGMMA_S8(192, 96, 96, 97, 98)
TW_WGMMA_S8(208, 104, 104, 105, 106)
TW_WGMMA_S8(224, 112, 112, 113, 114)
TW_WGMMA_S8(240, 120, 120, 121, 122)
TW_WGMMA_S8(256, 128, 128, 129, 130)

// 32 columns of a warpgroup's sums, from sum `first` on, into a box of 64 rows of 32 with the 128-byte swizzle. A lane has
// two neighbours of a row, and half a warp stores at a time: four rows, of which two would meet in the same banks. So odd
// rows take the columns in another order.
__device__ __forceinline__ void store_ints(unsigned char* box, int thread, const int* sums) {
    const int row = sum_row(thread, 0);
    const bool is_odd = row % 2;
    #pragma unroll
    for (int q = 0; q < 4; ++q) {  // eight columns
        const int chunk = (is_odd ? q ^ 2 : q) * 2 + thread % 4 / 2;  // of four
        unsigned char* to = box + row * 128 + (chunk ^ row % 8) * 16 + thread % 2 * 8;
        #pragma unroll
        for (int half = 0; half < 4; half += 2) {  // the other one is eight rows below
            const int* even = &sums[q * 4 + half];
            const int* odd = &sums[(q ^ 2) * 4 + half];
            *reinterpret_cast<int2*>(to + half * 4 * 128) =
                make_int2(is_odd ? odd[0] : even[0], is_odd ? odd[1] : even[1]);
        }
    }
}
