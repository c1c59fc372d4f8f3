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
// The same, and nothing that it wrote is made known: not even a fence for the whole card. Fresh mbarriers have one of their own.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
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

// Four at once.
__device__ __forceinline__ float4 load4_of_block(const float4* shared, int rank) {
    float4 value;
    const unsigned here = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, "
        "[there];\n}"
        : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
        : "r"(here), "r"(rank)
        : "memory");
    return value;
}

// To the same variable in the block of that rank, which has to run already; its four bytes count on the same mbarrier
// there. Unlike a barrier of the cluster, that waits for no other store of the thread's: a release would.
__device__ __forceinline__ void send_to_block(float* shared, unsigned long long* arrivals, int rank, float value) {
    asm volatile(
        "{\n"
        ".reg .b32 there, counter;\n"
        "mapa.shared::cluster.u32 there, %0, %2;\n"
        "mapa.shared::cluster.u32 counter, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [there], %3, [counter];\n"
        "}\n" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
        "r"(static_cast<unsigned>(__cvta_generic_to_shared(arrivals))), "r"(rank), "f"(value)
        : "memory");
}

// Four at once.
__device__ __forceinline__ void send4_to_block(float4* shared, unsigned long long* arrivals, int rank, float4 value) {
    asm volatile(
        "{\n"
        ".reg .b32 there, counter;\n"
        "mapa.shared::cluster.u32 there, %0, %2;\n"
        "mapa.shared::cluster.u32 counter, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, [counter];\n"
        "}\n" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
        "r"(static_cast<unsigned>(__cvta_generic_to_shared(arrivals))), "r"(rank), "f"(value.x), "f"(value.y),
        "f"(value.z), "f"(value.w)
        : "memory");
}

// At the same mbarrier in the block of that rank: what the thread read is free there. Nothing that it wrote is made known:
// a release for the whole cluster would be a fence for the whole card each time, where operands of wgmma have been read
// once it has been waited for.
__device__ __forceinline__ void arrive_in_block(unsigned long long* arrivals, int rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(arrivals))),
        "r"(rank)
        : "memory");
}
