// An array of any length that may begin anywhere, in packs: a few loose elements up to the first multiple of 16 bytes,
// whole packs, and a few loose elements at the end.
#pragma once

#include "packs.cuh"

struct Line {
    long long head;   // elements before the first pack
    long long packs;  // whole ones
    int loose;        // elements in no pack: the head's and the end's, fewer than 2 * TW_PACK
};

__device__ __forceinline__ Line line_of(const TW_T* array, long long count) {
    const unsigned long long beyond = (0 - reinterpret_cast<unsigned long long>(array)) & 15;
    const long long head = min(count, static_cast<long long>(beyond / TW_T_BYTES));
    const long long packs = (count - head) / TW_PACK;
    return {head, packs, static_cast<int>(count - packs * TW_PACK)};
}

// Where the loose element `i` is.
__device__ __forceinline__ long long loose_at(const Line& line, int i) {
    return i < line.head ? i : i + line.packs * TW_PACK;
}

// Whether the packs of one array lie beside those of the other: both begin at the same place within 16 bytes.
__device__ __forceinline__ bool begin_alike(const TW_T* a, const TW_T* b) {
    return ((reinterpret_cast<unsigned long long>(a) ^ reinterpret_cast<unsigned long long>(b)) & 15) == 0;
}

// The pack, or zeros. By masks: a condition would become a branch, and the load would move into it, to wait there for
// the one before.
__device__ __forceinline__ Pack only_if(bool is_there, const Pack& pack) {
    const unsigned mask = is_there ? 0xffffffff : 0;
    uint4 words = *reinterpret_cast<const uint4*>(&pack);
    words = {words.x & mask, words.y & mask, words.z & mask, words.w & mask};
    return *reinterpret_cast<const Pack*>(&words);
}
