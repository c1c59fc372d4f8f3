// Sixteen bytes of elements: the widest access of one thread, and a quarter of the instructions of 4-byte ones.
#pragma once

#include "element.cuh"

constexpr int VEC = 16 / sizeof(TW_T);  // elements of a pack

struct alignas(16) Pack {
    TW_T items[VEC];
};

__device__ __forceinline__ bool is_pack_aligned(const void* pointer) { return (size_t)pointer % sizeof(Pack) == 0; }

__device__ __forceinline__ Pack load_pack(const TW_T* from) { return *reinterpret_cast<const Pack*>(from); }

__device__ __forceinline__ void store_pack(TW_T* to, const Pack& pack) { *reinterpret_cast<Pack*>(to) = pack; }

// For what a launch reads once and never writes: by the read-only path, without a place in L1.
__device__ __forceinline__ Pack load_pack_once(const TW_T* from)
{
    union {
        uint4 words;
        Pack pack;
    } both = {};
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(both.words.x), "=r"(both.words.y), "=r"(both.words.z), "=r"(both.words.w)
        : "l"(from));
    return both.pack;
}

// For what nobody reads soon: the first to leave L2, so that it drives nothing out.
__device__ __forceinline__ void store_pack_once(TW_T* to, const Pack& pack)
{
    __stcs(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(&pack));
}

__device__ __forceinline__ void to_floats(float (&values)[VEC], const Pack& pack)
{
    #pragma unroll
    for (int j = 0; j < VEC; ++j) {
        values[j] = to_float(pack.items[j]);
    }
}

// Two 16-bit elements come from one conversion.
__device__ __forceinline__ void round_two(float* to, float a, float b) { to[0] = a, to[1] = b; }
__device__ __forceinline__ void round_two(__half* to, float a, float b)
{
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(a, b);
}
__device__ __forceinline__ void round_two(__nv_bfloat16* to, float a, float b)
{
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(a, b);
}

__device__ __forceinline__ Pack from_floats(const float (&values)[VEC])
{
    Pack pack;
    #pragma unroll
    for (int j = 0; j < VEC; j += 2) {
        round_two(&pack.items[j], values[j], values[j + 1]);
    }
    return pack;
}
