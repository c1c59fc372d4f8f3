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
