// mbarriers: who arrives goes on, and waits for the others only where it needs what they did. sm_90.
// PTX ISA, "mbarrier".
#pragma once

using Arrivals = unsigned long long;  // an mbarrier, in shared memory

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// So many a phase. By one thread; the block's others may use it behind a __syncthreads().
template <int COUNT>
__device__ __forceinline__ void expect_arrivals(Arrivals* arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(arrivals)), "n"(COUNT) : "memory");
}

// What the thread did before is done for all that wait for the phase.
__device__ __forceinline__ void arrive(Arrivals* arrivals) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(arrivals)) : "memory");
}

// Until all arrivals, and all bytes, of the phase (0 first, then 1, 0, …) are there.
__device__ __forceinline__ void wait_for(Arrivals* arrivals, int phase) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared_address(arrivals)), "r"(phase) : "memory");
}
