// Contiguous bytes into L2, where whoever asks for them finds them. PTX ISA, "cp.async.bulk.prefetch". sm_90.
#pragma once

// A multiple of 16 bytes, as the address is. Nothing can be told from it by what a kernel computes: it may come before
// wait_for_previous_grid().
__device__ __forceinline__ void fetch_to_l2(const void* from, int count) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(count) : "memory");
}
