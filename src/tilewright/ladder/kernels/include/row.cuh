// A row in registers: WORKERS threads hold PACKS packs each, and all loads are under way before the first is used.
//
// PACKED: the row is aligned and as long as whole packs; else elements go one by one, next to one another within a
// warp, so that the sectors are the same. Which element lies where is of no matter as long as loads and stores agree.
#pragma once

#include "elements.cuh"
#include "packs.cuh"
#include "streams.cuh"

template <bool PACKED, int WORKERS>
__device__ __forceinline__ int column_of(int i, int j, int worker) {
    if constexpr (PACKED) return (i * WORKERS + worker) * TW_PACK + j;
    return (i * TW_PACK + j) * WORKERS + worker;
}

// Whether element j of pack i lies in the row; of a packed row, all elements of a pack do or none.
template <bool PACKED, int WORKERS>
__device__ __forceinline__ bool is_in_row(int i, int j, int worker, int columns) {
    return column_of<PACKED, WORKERS>(i, PACKED ? 0 : j, worker) < columns;
}

// Behind the end of the row: `blank`, which should change no result.
template <bool PACKED, int WORKERS, int PACKS>
__device__ __forceinline__ void load_row(Pack (&packs)[PACKS], const TW_T* row, int columns, int worker, float blank) {
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) from_float(packs[i].at[j], blank);
        if constexpr (PACKED) {
            const int column = column_of<true, WORKERS>(i, 0, worker);
            if (column < columns) packs[i] = load_pack_once(row + column);
        } else {
            #pragma unroll
            for (int j = 0; j < TW_PACK; ++j) {
                const int column = column_of<false, WORKERS>(i, j, worker);
                if (column < columns) packs[i].at[j] = row[column];
            }
        }
    }
}

template <bool PACKED, int WORKERS>
__device__ __forceinline__ void store_in_row(TW_T* row, const Pack& pack, int i, int columns, int worker) {
    if constexpr (PACKED) {
        const int column = column_of<true, WORKERS>(i, 0, worker);
        if (column < columns) store_pack_once(row + column, pack);
    } else {
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const int column = column_of<false, WORKERS>(i, j, worker);
            if (column < columns) row[column] = pack.at[j];
        }
    }
}

// Pack i of what all rows share (weights): it stays in the caches.
template <bool PACKED, int WORKERS>
__device__ __forceinline__ Pack load_shared_row(const TW_T* row, int i, int columns, int worker) {
    Pack pack = {};
    if constexpr (PACKED) {
        const int column = column_of<true, WORKERS>(i, 0, worker);
        if (column < columns) pack = load_pack(row + column);
    } else {
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const int column = column_of<false, WORKERS>(i, j, worker);
            if (column < columns) pack.at[j] = row[column];
        }
    }
    return pack;
}
