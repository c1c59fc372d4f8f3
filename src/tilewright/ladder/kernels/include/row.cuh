// A row in registers: SHARERS threads hold OWNED packs each, and all loads are under way before the first is used. Rows
// begin at a multiple of 16 bytes, and are as long as whole packs.
#pragma once

#include "elements.cuh"
#include "packs.cuh"
#include "streams.cuh"
#include "words.cuh"

template <int SHARERS>
__device__ __forceinline__ int column_of(int i, int worker) {
    return (i * SHARERS + worker) * TW_PACK;
}

// Behind the end of the row: `blank`, which should change no result.
template <int SHARERS, int OWNED>
__device__ __forceinline__ void load_row(Pack (&packs)[OWNED], const TW_T* row, int columns, int worker, float blank) {
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) from_float(packs[i].at[j], blank);
        const int column = column_of<SHARERS>(i, worker);
        if (column < columns) packs[i] = load_pack_once(row + column);
    }
}

template <int SHARERS, int OWNED>
__device__ __forceinline__ void load_row(Words (&words)[OWNED], const TW_T* row, int columns, int worker, float blank) {
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        const int column = column_of<SHARERS>(i, worker);
        words[i] = repeated(blank);
        if (column < columns) words[i] = load_words_once(row + column);
    }
}

// STREAMED: what is written leaves L2 first.
template <int SHARERS, bool STREAMED = true>
__device__ __forceinline__ void store_in_row(TW_T* row, const Words& words, int i, int columns, int worker) {
    const int column = column_of<SHARERS>(i, worker);
    if (column >= columns) return;
    if constexpr (STREAMED) store_words_once(row + column, words);
    else store_words(row + column, words);
}

// Words i of what all rows share (weights), as floats: they stay in the caches.
template <int SHARERS>
__device__ __forceinline__ void unpack_shared_row(float (&values)[TW_PACK], const TW_T* row, int i, int columns,
                                                  int worker) {
    const int column = column_of<SHARERS>(i, worker);
    unpack(values, column < columns ? load_words(row + column) : Words{});
}

template <int SHARERS>
__device__ __forceinline__ void store_in_row(TW_T* row, const Pack& pack, int i, int columns, int worker) {
    const int column = column_of<SHARERS>(i, worker);
    if (column < columns) store_pack_once(row + column, pack);
}

// Pack i of what all rows share (weights): it stays in the caches.
template <int SHARERS>
__device__ __forceinline__ Pack load_shared_row(const TW_T* row, int i, int columns, int worker) {
    const int column = column_of<SHARERS>(i, worker);
    Pack pack = {};
    if (column < columns) pack = load_pack(row + column);
    return pack;
}

// The compiler would keep the floats that it makes of 16-bit elements for their next use, in twice the registers. It is
// told that the packs may have changed, and makes them anew.
template <int OWNED>
__device__ __forceinline__ void keep_packed(Pack (&packs)[OWNED]) {
    if constexpr (TW_T_BYTES < 4) {
        #pragma unroll
        for (int i = 0; i < OWNED; ++i) {
            unsigned* words = reinterpret_cast<unsigned*>(&packs[i]);
            asm volatile("" : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3]));
        }
    }
}
