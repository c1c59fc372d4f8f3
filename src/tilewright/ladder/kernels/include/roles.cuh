// Warpgroups with roles of their own: sm_90a and sm_120a.
#pragma once

// Registers move between the warpgroups of a block: all of a warpgroup's warps ask.
template <int COUNT>
__device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Number of the thread's warpgroup in its block. The shuffle tells the compiler that it is the same in all lanes: what
// depends on it, as descriptors do, it keeps in uniform registers, where wgmma wants them.
__device__ __forceinline__ int warpgroup_of_block() { return __shfl_sync(0xffffffff, threadIdx.x / 128, 0); }
