// Blocks that run at the same time and read each other's shared memory: PTX ISA, "barrier.cluster", "mapa", "ld". sm_90.
#pragma once

__device__ __forceinline__ unsigned cluster_rank()
{
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all blocks; what was written to shared memory before is seen after.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same variable in the block of that rank.
__device__ __forceinline__ float load_of_block(const float* shared, unsigned rank)
{
    float value;
    const unsigned here = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.f32 %0, [there];\n}"
        : "=f"(value)
        : "r"(here), "r"(rank)
        : "memory");
    return value;
}
