// 16 bytes from global to shared memory past the registers, or 16 bytes of zeros.
#pragma once

#include "elements.cuh"

// Where `exists` is false nothing is read, and `from` may point anywhere. One instruction either way: told by the
// number of bytes to read instead, as __pipeline_memcpy_async tells it, the compiler writes two, one for each case.
__device__ __forceinline__ void copy_piece(TW_T* to, const TW_T* from, bool exists) {
    asm volatile("{\n"
                 ".reg .pred missing;\n"
                 "setp.eq.s32 missing, %2, 0;\n"
                 "cp.async.cg.shared.global [%0], [%1], 16, missing;\n"
                 "}\n" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from), "r"(static_cast<int>(exists))
                 : "memory");
}

// What was copied up to here is one group.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Until all of this thread's groups but the last LEFT ones have landed.
template <int LEFT>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
}
