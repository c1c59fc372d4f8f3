// A ring of stages in shared memory: `full` of a stage completes when its bytes have arrived, `empty` when nobody reads
// it any more. sm_90.
#pragma once

#include "tma.cuh"

template <int STAGES>
struct Stages {
    Arrivals full[STAGES];
    Arrivals empty[STAGES];

    // By one thread; the others may use them behind a barrier. So many readers release a stage.
    template <int READERS>
    __device__ __forceinline__ void begin() {
        #pragma unroll
        for (int s = 0; s < STAGES; ++s) {
            expect_arrivals<1>(&full[s]);
            expect_arrivals<READERS>(&empty[s]);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
};

// Whose turn it is: stages one after the other, and the phase of their mbarriers, which changes with every round.
template <int STAGES>
struct Turn {
    int stage = 0;
    int phase = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
    __device__ __forceinline__ void skip(int count) {
        const int to = stage + count;
        phase ^= to / STAGES & 1;
        stage = to % STAGES;
    }
};

// Shared memory that the launch asks for begins at any multiple of 16 bytes; the swizzle's pattern at one of 1024.
__device__ __forceinline__ unsigned char* aligned_for_swizzle(unsigned char* shared) {
    return shared + (1024 - shared_address(shared) % 1024) % 1024;
}
