// A pack as registers hold it: four words. Of a struct of 16-bit elements the compiler makes a register each.
#pragma once

#include "streams.cuh"

struct Words {
    unsigned at[4];
};

__device__ __forceinline__ Words load_words(const TW_T* from) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    return {words.x, words.y, words.z, words.w};
}

// What is read once takes no place in L1. Only for memory that nobody writes during the launch: the read-only path.
__device__ __forceinline__ Words load_words_once(const TW_T* from) {
    Words words;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3])
        : "l"(from));
    return words;
}

// The same, and its line in L2 is the first to go: what is written may stay there instead.
__device__ __forceinline__ Words load_words_gone(const TW_T* from) {
    Words words;
    asm("{\n"
        ".reg .b64 first;\n"
        "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
        "ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], first;\n"
        "}\n"
        : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3])
        : "l"(from));
    return words;
}

// To global memory. An assignment of a uint4 is four of its parts to the compiler, and now and then it does not put them
// together again: each of the four stores then writes 4 bytes of every 16.
__device__ __forceinline__ void store_words(TW_T* to, const Words& words) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.at[0]), "r"(words.at[1]),
                 "r"(words.at[2]), "r"(words.at[3])
                 : "memory");
}

// What is written leaves L2 first: nobody reads it soon.
__device__ __forceinline__ void store_words_once(TW_T* to, const Words& words) {
    if constexpr (!TW_STREAM) return store_words(to, words);
    __stcs(reinterpret_cast<uint4*>(to), make_uint4(words.at[0], words.at[1], words.at[2], words.at[3]));
}

__device__ __forceinline__ void unpack_word(float* to, unsigned word, float) { to[0] = __uint_as_float(word); }
__device__ __forceinline__ void unpack_word(float* to, unsigned word, __half) {
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&word));
    to[0] = both.x;
    to[1] = both.y;
}
// A bfloat16 is the upper half of its float.
__device__ __forceinline__ void unpack_word(float* to, unsigned word, __nv_bfloat16) {
    to[0] = __uint_as_float(word << 16);
    to[1] = __uint_as_float(word & 0xffff0000u);
}

__device__ __forceinline__ unsigned pack_word(const float* from, float) { return __float_as_uint(from[0]); }
__device__ __forceinline__ unsigned pack_word(const float* from, __half) {
    const __half2 both = __floats2half2_rn(from[0], from[1]);
    return *reinterpret_cast<const unsigned*>(&both);
}
__device__ __forceinline__ unsigned pack_word(const float* from, __nv_bfloat16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(from[0], from[1]);
    return *reinterpret_cast<const unsigned*>(&both);
}

__device__ __forceinline__ void unpack(float (&values)[TW_PACK], const Words& words) {
    #pragma unroll
    for (int w = 0; w < 4; ++w) unpack_word(&values[w * TW_PACK / 4], words.at[w], TW_T());
}

__device__ __forceinline__ Words packed(const float (&values)[TW_PACK]) {
    Words words;
    #pragma unroll
    for (int w = 0; w < 4; ++w) words.at[w] = pack_word(&values[w * TW_PACK / 4], TW_T());
    return words;
}

// Of two words, the larger elements. A number is larger than a NaN: where those matter, something else has to carry them.
__device__ __forceinline__ unsigned larger(unsigned a, unsigned b, float) {
    return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
__device__ __forceinline__ unsigned larger(unsigned a, unsigned b, __half) {
    unsigned result;
    asm("max.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}
__device__ __forceinline__ unsigned larger(unsigned a, unsigned b, __nv_bfloat16) {
    unsigned result;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

// The largest element of packs: two of 16 bits are compared at a time.
template <int OWNED>
__device__ __forceinline__ float largest_of(const Words (&packs)[OWNED]) {
    Words most = packs[0];
    #pragma unroll
    for (int i = 1; i < OWNED; ++i)
        #pragma unroll
        for (int w = 0; w < 4; ++w) most.at[w] = larger(most.at[w], packs[i].at[w], TW_T());
    float values[TW_PACK];
    unpack(values, most);
    float largest = values[0];
    #pragma unroll
    for (int j = 1; j < TW_PACK; ++j) largest = fmaxf(largest, values[j]);
    return largest;
}

// A pack of the same value throughout.
__device__ __forceinline__ Words repeated(float value) {
    float values[TW_PACK];
    #pragma unroll
    for (int j = 0; j < TW_PACK; ++j) values[j] = value;
    return packed(values);
}

// The compiler would keep the floats that it makes of 16-bit elements for their next use, in twice the registers. It is
// told that the words may have changed, and unpacks them anew.
template <int OWNED>
__device__ __forceinline__ void keep_packed(Words (&words)[OWNED]) {
    if constexpr (TW_T_BYTES < 4) {
        #pragma unroll
        for (int i = 0; i < OWNED; ++i)
            asm volatile("" : "+r"(words[i].at[0]), "+r"(words[i].at[1]), "+r"(words[i].at[2]), "+r"(words[i].at[3]));
    }
}
