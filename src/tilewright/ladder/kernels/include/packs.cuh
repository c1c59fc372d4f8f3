// Sixteen bytes of elements at once: the widest access that a thread can make is one instruction for 4 floats or 8 halves.
#pragma once

#include "elements.cuh"

#define TW_PACK (16 / TW_T_BYTES)

struct alignas(16) Pack {
    TW_T at[TW_PACK];
};

__device__ __forceinline__ Pack load_pack(const TW_T* from) { return *reinterpret_cast<const Pack*>(from); }
__device__ __forceinline__ void store_pack(TW_T* to, const Pack& pack) { *reinterpret_cast<Pack*>(to) = pack; }

// Whether a pointer may be read in packs: a view of a tensor may begin anywhere.
__device__ __forceinline__ bool is_pack_aligned(const void* pointer) {
    return (reinterpret_cast<unsigned long long>(pointer) & 15) == 0;
}

// The first `count` elements, fewer than a pack has: the end of an array.
__device__ __forceinline__ void get_some(Pack& pack, const TW_T* from, int count) {
    #pragma unroll
    for (int j = 0; j < TW_PACK - 1; ++j)
        if (j < count) pack.at[j] = from[j];
}
__device__ __forceinline__ void put_some(TW_T* to, const Pack& pack, int count) {
    #pragma unroll
    for (int j = 0; j < TW_PACK - 1; ++j)
        if (j < count) to[j] = pack.at[j];
}
