// Blocks that run at the same time and read each other's shared memory: PTX ISA, "barrier.cluster", "mapa", "ld".
// sm_90.
#pragma once

__device__ __forceinline__ int cluster_rank() {
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// What any thread of the cluster wrote to shared memory before it arrived is seen by all that have waited.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same variable in the block of that rank.
__device__ __forceinline__ float load_of_block(const float* shared, int rank) {
    float value;
    const unsigned here = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.f32 %0, [there];\n}"
                 : "=f"(value)
                 : "r"(here), "r"(rank)
                 : "memory");
    return value;
}
