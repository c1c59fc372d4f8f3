// A thread's share of a row: SHARERS neighbouring threads take turns, each access ACROSS elements wide, and all loads
// are under way before the first is used. Rows that lie in no packs are held in the same way, by narrower accesses.
#pragma once

#include "elements.cuh"
#include "words.cuh"

// ACROSS elements as they lie in memory: 2 to 16 bytes.
template <int ACROSS>
struct Bits {
    unsigned at[(ACROSS * TW_T_BYTES + 3) / 4];
};

template <int ACROSS>
__device__ __forceinline__ Bits<ACROSS> load_bits(const TW_T* from) {
    Bits<ACROSS> bits;
    if constexpr (ACROSS * TW_T_BYTES == 16) {
        const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
        bits.at[0] = words.x;
        bits.at[1] = words.y;
        bits.at[2] = words.z;
        bits.at[3] = words.w;
    } else if constexpr (ACROSS * TW_T_BYTES == 8) {
        const uint2 words = __ldg(reinterpret_cast<const uint2*>(from));
        bits.at[0] = words.x;
        bits.at[1] = words.y;
    } else if constexpr (ACROSS * TW_T_BYTES == 4) {
        bits.at[0] = __ldg(reinterpret_cast<const unsigned*>(from));
    } else {
        bits.at[0] = __ldg(reinterpret_cast<const unsigned short*>(from));
    }
    return bits;
}

// What is needed late the compiler would ask for late, behind the wait for what is needed first. Relaxed loads stay in
// their order: where those come first, all are under way together.
template <int ACROSS>
__device__ __forceinline__ Bits<ACROSS> load_bits_in_order(const TW_T* from) {
    Bits<ACROSS> bits;
    if constexpr (ACROSS * TW_T_BYTES == 16)
        asm volatile("ld.relaxed.cta.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(bits.at[0]), "=r"(bits.at[1]), "=r"(bits.at[2]), "=r"(bits.at[3])
                     : "l"(from)
                     : "memory");
    else if constexpr (ACROSS * TW_T_BYTES == 8)
        asm volatile("ld.relaxed.cta.global.v2.u32 {%0, %1}, [%2];"
                     : "=r"(bits.at[0]), "=r"(bits.at[1])
                     : "l"(from)
                     : "memory");
    else if constexpr (ACROSS * TW_T_BYTES == 4)
        asm volatile("ld.relaxed.cta.global.u32 %0, [%1];" : "=r"(bits.at[0]) : "l"(from) : "memory");
    else asm volatile("ld.relaxed.cta.global.u16 %0, [%1];" : "=r"(bits.at[0]) : "l"(from) : "memory");
    return bits;
}

template <int ACROSS>
__device__ __forceinline__ void store_bits(TW_T* to, const Bits<ACROSS>& bits) {
    if constexpr (ACROSS * TW_T_BYTES == 16)
        *reinterpret_cast<uint4*>(to) = make_uint4(bits.at[0], bits.at[1], bits.at[2], bits.at[3]);
    else if constexpr (ACROSS * TW_T_BYTES == 8) *reinterpret_cast<uint2*>(to) = make_uint2(bits.at[0], bits.at[1]);
    else if constexpr (ACROSS * TW_T_BYTES == 4) *reinterpret_cast<unsigned*>(to) = bits.at[0];
    else *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(bits.at[0]);
}

template <int ACROSS>
__device__ __forceinline__ void unpack(float (&values)[ACROSS], const Bits<ACROSS>& bits) {
    if constexpr (ACROSS * TW_T_BYTES < 4) {
        float both[2];
        unpack_word(both, bits.at[0], TW_T());
        values[0] = both[0];
    } else {
        #pragma unroll
        for (int w = 0; w < ACROSS * TW_T_BYTES / 4; ++w) unpack_word(&values[w * 4 / TW_T_BYTES], bits.at[w], TW_T());
    }
}

template <int ACROSS>
__device__ __forceinline__ Bits<ACROSS> bits_of(const float (&values)[ACROSS]) {
    Bits<ACROSS> bits;
    if constexpr (ACROSS * TW_T_BYTES < 4) {
        const float both[2] = {values[0], 0.0f};
        bits.at[0] = pack_word(both, TW_T());
    } else {
        #pragma unroll
        for (int w = 0; w < ACROSS * TW_T_BYTES / 4; ++w) bits.at[w] = pack_word(&values[w * 4 / TW_T_BYTES], TW_T());
    }
    return bits;
}

// `row` at the thread's first column, from where on it has `left` columns. Behind its end: `blank`, which should
// change no result. Only what nobody writes during the launch.
template <int SHARERS, int ACROSS, int OWNED>
__device__ __forceinline__ void load_share(Bits<ACROSS> (&share)[OWNED], const TW_T* row, int left, float blank) {
    float blanks[ACROSS];
    #pragma unroll
    for (int j = 0; j < ACROSS; ++j) blanks[j] = blank;
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        share[i] = bits_of(blanks);
        if (i * SHARERS * ACROSS < left) share[i] = load_bits<ACROSS>(row + i * SHARERS * ACROSS);
    }
}

// The same, all those of a kernel in the order in which they stand there; zeros behind the end.
template <int SHARERS, int ACROSS, int OWNED>
__device__ __forceinline__ void load_share_in_order(Bits<ACROSS> (&share)[OWNED], const TW_T* row, int left) {
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        share[i] = {};
        if (i * SHARERS * ACROSS < left) share[i] = load_bits_in_order<ACROSS>(row + i * SHARERS * ACROSS);
    }
}

template <int ACROSS, int OWNED>
__device__ __forceinline__ void unpack_share(float (&values)[OWNED][ACROSS], const Bits<ACROSS> (&share)[OWNED]) {
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) unpack(values[i], share[i]);
}

template <int SHARERS, int ACROSS>
__device__ __forceinline__ void store_piece(TW_T* row, const float (&values)[ACROSS], int i, int left) {
    if (i * SHARERS * ACROSS < left) store_bits(row + i * SHARERS * ACROSS, bits_of(values));
}

// The compiler would find the address again behind each condition of a store. It is told that it may have changed.
__device__ __forceinline__ TW_T* found_once(TW_T* row) {
    asm volatile("" : "+l"(row));
    __builtin_assume(__isGlobal(row));
    return row;
}

// Two rows' sum, as its type holds it, which is written on the way.
template <int SHARERS, int ACROSS, int OWNED>
__device__ __forceinline__ void add_shares(float (&values)[OWNED][ACROSS], const Bits<ACROSS> (&share)[OWNED],
                                           const Bits<ACROSS> (&others)[OWNED], TW_T* total, int left) {
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        float other[ACROSS];
        unpack(values[i], share[i]);
        unpack(other, others[i]);
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) values[i][j] += other[j];
        store_piece<SHARERS>(total, values[i], i, left);
        unpack(values[i], bits_of(values[i]));
    }
}

// A value that is found here, though it is needed late.
__device__ __forceinline__ float found_first(float value) {
    asm volatile("" : "+f"(value));
    return value;
}

// Whether accesses of so many elements may begin there. A row is as wide a multiple of it as its pitch is.
template <int ACROSS>
__device__ __forceinline__ bool is_aligned_for(const void* pointer) {
    return (reinterpret_cast<unsigned long long>(pointer) & (ACROSS * TW_T_BYTES - 1)) == 0;
}
