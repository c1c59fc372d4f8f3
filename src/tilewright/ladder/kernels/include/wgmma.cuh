// wgmma of sm_90a: a warpgroup (four warps, the first a multiple of four) multiplies tiles of shared memory; the sums
// stay in its registers. PTX ISA, "Asynchronous warpgroup-level matrix instructions".
#pragma once

#include "arrivals.cuh"
#include "mma.cuh"
#include "roles.cuh"
#include "words.cuh"

// A tile in rows of 128 bytes with the 128-byte swizzle, as tensor maps write it, at a multiple of 1024 bytes: eight rows
// are a pattern of 1024. "Matrix Descriptor Format": addresses and offsets in units of 16 bytes, bits 62 and 63 the
// swizzle. `next_bytes` lie between neighbouring 64 columns of a tile whose rows are k (N-major); a tile whose rows are
// m or n (K-major) is one pattern wide, and has none.
__device__ __forceinline__ unsigned long long tile_descriptor(unsigned address, int next_bytes) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(next_bytes >> 4) << 16 |
           (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}
// The same tile, so many bytes on: 32 are 16 elements of k in a K-major tile, 16 rows of 128 in an N-major one.
__device__ __forceinline__ unsigned long long moved(unsigned long long descriptor, int bytes) {
    return descriptor + (bytes >> 4);
}

// Before the first product, and wherever registers of sums were touched since the last one.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The products since the last commit become a group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most so many groups are left on their way: what the others read is free, and what they wrote is there.
template <int LEFT>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Behind the last wait, where sums go on in registers: the compiler does not know that the wait is about them, and would
// compute with them before it.
template <int COUNT>
__device__ __forceinline__ void hold(float (&sums)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// Row and column in a warpgroup's tile of its sum i.
__device__ __forceinline__ int sum_row(int thread, int i) {
    return thread % 128 / 32 * 16 + thread % 32 / 4 + (i & 2) * 4;
}
__device__ __forceinline__ int sum_column(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + (i & 1); }

// Operands of an instruction: the sums first, eight at a time.
#define TW_8_NAMES "%0, %1, %2, %3, %4, %5, %6, %7"
#define TW_16_NAMES TW_8_NAMES ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TW_24_NAMES TW_16_NAMES ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TW_32_NAMES TW_24_NAMES ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TW_40_NAMES TW_32_NAMES ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TW_48_NAMES TW_40_NAMES ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TW_56_NAMES TW_48_NAMES ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TW_64_NAMES TW_56_NAMES ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TW_72_NAMES TW_64_NAMES ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TW_76_NAMES TW_72_NAMES ", %72, %73, %74, %75"
#define TW_80_NAMES TW_72_NAMES ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TW_88_NAMES TW_80_NAMES ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TW_96_NAMES TW_88_NAMES ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TW_104_NAMES TW_96_NAMES ", %96, %97, %98, %99, %100, %101, %102, %103"
#define TW_108_NAMES TW_104_NAMES ", %104, %105, %106, %107"
#define TW_112_NAMES TW_104_NAMES ", %104, %105, %106, %107, %108, %109, %110, %111"
#define TW_120_NAMES TW_112_NAMES ", %112, %113, %114, %115, %116, %117, %118, %119"
#define TW_128_NAMES TW_120_NAMES ", %120, %121, %122, %123, %124, %125, %126, %127"
#define TW_SUMS(d, i)                                                                                                \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),      \
        "+f"(d[i + 7])
#define TW_8_SUMS(d) TW_SUMS(d, 0)
#define TW_16_SUMS(d) TW_8_SUMS(d), TW_SUMS(d, 8)
#define TW_24_SUMS(d) TW_16_SUMS(d), TW_SUMS(d, 16)
#define TW_32_SUMS(d) TW_24_SUMS(d), TW_SUMS(d, 24)
#define TW_40_SUMS(d) TW_32_SUMS(d), TW_SUMS(d, 32)
#define TW_48_SUMS(d) TW_40_SUMS(d), TW_SUMS(d, 40)
#define TW_56_SUMS(d) TW_48_SUMS(d), TW_SUMS(d, 48)
#define TW_64_SUMS(d) TW_56_SUMS(d), TW_SUMS(d, 56)
#define TW_72_SUMS(d) TW_64_SUMS(d), TW_SUMS(d, 64)
#define TW_76_SUMS(d) TW_72_SUMS(d), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define TW_80_SUMS(d) TW_72_SUMS(d), TW_SUMS(d, 72)
#define TW_88_SUMS(d) TW_80_SUMS(d), TW_SUMS(d, 80)
#define TW_96_SUMS(d) TW_88_SUMS(d), TW_SUMS(d, 88)
#define TW_104_SUMS(d) TW_96_SUMS(d), TW_SUMS(d, 96)
#define TW_108_SUMS(d) TW_104_SUMS(d), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define TW_112_SUMS(d) TW_104_SUMS(d), TW_SUMS(d, 104)
#define TW_120_SUMS(d) TW_112_SUMS(d), TW_SUMS(d, 112)
#define TW_128_SUMS(d) TW_120_SUMS(d), TW_SUMS(d, 120)

// sums = a b + (accumulate ? sums : 0), where a is 64 x 16, K-major or M-major, and b 16 x COLUMNS, N-major or K-major.
// The last five operands are those of the names A to A_MAJOR.
#define TW_WGMMA(ELEMENT, NAME, COLUMNS, COUNT, A, B, ACCUMULATE, MAJOR, A_MAJOR)                                     \
    template <bool B_IS_N_MAJOR, bool A_IS_M_MAJOR>                                                                  \
    __device__ __forceinline__ void wgmma_of(float (&sums)[COUNT], unsigned long long a, unsigned long long b,       \
                                             bool accumulate, ELEMENT) {                                             \
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #ACCUMULATE ", 0;\n"                                 \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." NAME "." NAME " {" TW_##COUNT##_NAMES   \
                     "}, %" #A ", %" #B ", adds, 1, 1, %" #A_MAJOR ", %" #MAJOR ";\n}"                               \
                     : TW_##COUNT##_SUMS(sums)                                                                       \
                     : "l"(a), "l"(b), "r"((int)accumulate), "n"((int)B_IS_N_MAJOR), "n"((int)A_IS_M_MAJOR)          \
                     : "memory");                                                                                    \
    }
#define TW_WGMMAS(...)                   \
    TW_WGMMA(__half, "f16", __VA_ARGS__) \
    TW_WGMMA(__nv_bfloat16, "bf16", __VA_ARGS__)
TW_WGMMAS(16, 8, 8, 9, 10, 11, 12)
TW_WGMMAS(32, 16, 16, 17, 18, 19, 20)
TW_WGMMAS(48, 24, 24, 25, 26, 27, 28)
TW_WGMMAS(64, 32, 32, 33, 34, 35, 36)
TW_WGMMAS(80, 40, 40, 41, 42, 43, 44)
TW_WGMMAS(96, 48, 48, 49, 50, 51, 52)
TW_WGMMAS(112, 56, 56, 57, 58, 59, 60)
TW_WGMMAS(128, 64, 64, 65, 66, 67, 68)
TW_WGMMAS(144, 72, 72, 73, 74, 75, 76)
TW_WGMMAS(152, 76, 76, 77, 78, 79, 80)
TW_WGMMAS(160, 80, 80, 81, 82, 83, 84)
TW_WGMMAS(176, 88, 88, 89, 90, 91, 92)
TW_WGMMAS(192, 96, 96, 97, 98, 99, 100)
TW_WGMMAS(208, 104, 104, 105, 106, 107, 108)
TW_WGMMAS(216, 108, 108, 109, 110, 111, 112)
TW_WGMMAS(224, 112, 112, 113, 114, 115, 116)
TW_WGMMAS(240, 120, 120, 121, 122, 123, 124)
TW_WGMMAS(256, 128, 128, 129, 130, 131, 132)

template <bool B_IS_N_MAJOR, bool A_IS_M_MAJOR = false, int COUNT>
__device__ __forceinline__ void wgmma(float (&sums)[COUNT], unsigned long long a, unsigned long long b,
                                      bool accumulate) {
    wgmma_of<B_IS_N_MAJOR, A_IS_M_MAJOR>(sums, a, b, accumulate, TW_T());
}

// Only so many warpgroups meet. Barrier 0 is __syncthreads()'s.
template <int WARPGROUPS = 1>
__device__ __forceinline__ void sync_warpgroups(int barrier) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(WARPGROUPS * 128) : "memory");
}
// One that comes to such a barrier, and goes on.
template <int WARPGROUPS>
__device__ __forceinline__ void arrive_at_barrier(int barrier) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(WARPGROUPS * 128) : "memory");
}

// Eight sums of each thread, as elements: 16 columns of a box of 64 rows by 64 columns with the 128-byte swizzle, or by 32
// with that of 64 bytes, from chunk `chunk` (of 8 columns) on. Lane l gives the address of row l % 8 of matrix l / 8: upper
// and lower rows by turns.
template <int ROW_BYTES = 128>
__device__ __forceinline__ void store_sums(unsigned char* box, int thread, int chunk, const float* sums) {
    const int lane = thread % 32;
    const int row = thread / 32 * 16 + lane % 16;
    const int place = (chunk + lane / 16) ^ row / (128 / ROW_BYTES) % (ROW_BYTES / 16);
    const unsigned to = shared_address(box + row * ROW_BYTES + place * 16);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(pack_word(&sums[0], TW_T())), "r"(pack_word(&sums[2], TW_T())), "r"(pack_word(&sums[4], TW_T())),
                 "r"(pack_word(&sums[6], TW_T()))
                 : "memory");
}

// Four sums of each thread, as elements, of a product whose rows are columns of c: eight rows of c in a box of 64 columns
// with the 128-byte swizzle. A warp has 16 of the columns; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_turned(unsigned char* box, int thread, const float4& sums) {
    const int lane = thread % 32;
    const int row = lane % 8;
    const int place = (thread / 32 * 2 + lane / 8 % 2) ^ row;
    const unsigned to = shared_address(box + row * 128 + place * 16);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to),
                 "r"(pack_word(&sums.x, TW_T())), "r"(pack_word(&sums.z, TW_T()))
                 : "memory");
}
