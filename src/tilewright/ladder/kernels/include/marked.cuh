// A value and a mark in one word of 8 bytes, which is written and read as a whole: who finds the mark has the value. So
// a block can leave a value to another one of the same grid without a fence: nothing but the word itself is handed over.
// PTX Writer's Guide, "Atomics ABI": these accesses are C++'s relaxed atomic ones.
//
// The reader should be the block of the highest index. CUDA promises no order in which blocks begin; were one to begin
// behind the reader, the reader would take no more than one block's place from it.
#pragma once

__device__ __forceinline__ void write_marked(unsigned long long* to, float value) {
    const unsigned long long word = 1ull << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

// Waits for the mark, and leaves 0 behind: the next launch finds nothing.
__device__ __forceinline__ float take_marked(unsigned long long* from) {
    unsigned long long word;
    do asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    while (word == 0);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(from), "l"(0ull) : "memory");
    return __uint_as_float(static_cast<unsigned>(word));
}
