// Packs that pass through: what is read once takes no place in L1, what is written leaves L2 first.
#pragma once

#include "packs.cuh"

// 0: what is written stays in L2 as anything else does. A launch whose last writes are still there when it ends has not
// waited for them: a share of a short one.
#ifndef TW_STREAM
#define TW_STREAM 1
#endif

// Only for memory that nobody writes during the launch: it takes the read-only path.
__device__ __forceinline__ Pack load_pack_once(const TW_T* from) {
    uint4 words;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
        : "l"(from));
    return *reinterpret_cast<const Pack*>(&words);
}

__device__ __forceinline__ void store_pack_once(TW_T* to, const Pack& pack) {
    const uint4& words = *reinterpret_cast<const uint4*>(&pack);
    if constexpr (TW_STREAM) __stcs(reinterpret_cast<uint4*>(to), words);
    // Of an assignment the compiler makes four stores of 4 bytes now and then.
    else
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y), "r"(words.z),
                     "r"(words.w)
                     : "memory");
}
