// Copies of boxes through tensor maps (sm_90): one thread asks, the hardware computes addresses, fills zeros beyond the
// tensor's edges, and counts the bytes that have arrived on an mbarrier.
#pragma once

#include "arrivals.cuh"

// What the host encodes; passed by value as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
    char bytes[128];
};

// By one thread; the others may use it behind a __syncthreads().
__device__ __forceinline__ void init_arrivals(Arrivals* arrivals) {
    expect_arrivals<1>(arrivals);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// By the thread that then asks for copies of so many bytes in all.
__device__ __forceinline__ void expect_bytes(Arrivals* arrivals, int count) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrivals)), "r"(count)
                 : "memory");
}

// The box whose first element is (column, row), into shared memory at a multiple of 128 bytes.
__device__ __forceinline__ void copy_box(void* to, const TensorMap* map, int column, int row, Arrivals* arrivals) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(shared_address(to)), "l"(map), "r"(column), "r"(row), "r"(shared_address(arrivals)) : "memory");
}

// The same, and its lines in L2 are the first to go: what is read once leaves room for what is read again.
__device__ __forceinline__ void copy_box_once(void* to, const TensorMap* map, int column, int row, Arrivals* arrivals) {
    asm volatile(
        "{\n"
        ".reg .b64 first;\n"
        "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], first;\n"
        "}\n"
        ::"r"(shared_address(to)), "l"(map), "r"(column), "r"(row), "r"(shared_address(arrivals)) : "memory");
}

// The same into the block's own shared memory, said so (PTX ISA 8.6). For sm_120 the compiler takes a copy that names the
// cluster's for a reason to leave setmaxnreg out.
__device__ __forceinline__ void copy_box_here(void* to, const TensorMap* map, int column, int row, Arrivals* arrivals) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(shared_address(to)), "l"(map), "r"(column), "r"(row), "r"(shared_address(arrivals)) : "memory");
}

// So many contiguous bytes: a multiple of 16, as both addresses are.
__device__ __forceinline__ void copy_bytes(void* to, const void* from, int count, Arrivals* arrivals) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(count), "r"(shared_address(arrivals))
                 : "memory");
}

// The map itself is read from memory: so that the first copy does not wait for it.
__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box into L2, where whoever asks for it finds it. Nothing can be told from it by what a kernel computes: it may come
// before wait_for_previous_grid().
__device__ __forceinline__ void prefetch_box(const TensorMap* map, int column, int row) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(column), "r"(row)
                 : "memory");
}

// The same box into the same place of every block of the cluster whose bit is set; it counts on the mbarrier there.
__device__ __forceinline__ void copy_box_to_blocks(void* to, const TensorMap* map, int column, int row,
                                                   Arrivals* arrivals, int blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
        "l"(map), "r"(column), "r"(row), "r"(shared_address(arrivals)), "h"((unsigned short)blocks)
        : "memory");
}

// What the thread wrote to shared memory is seen by the copy engine and by wgmma, once a barrier has told them.
__device__ __forceinline__ void publish_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A box of shared memory into the tensor; what lies beyond its edges is left out. By one thread, which also waits.
__device__ __forceinline__ void store_box(const TensorMap* map, int column, int row, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(column), "r"(row), "r"(shared_address(from))
                 : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most so many groups still read their shared memory.
template <int LEFT>
__device__ __forceinline__ void wait_until_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}
// Until all have arrived in global memory.
__device__ __forceinline__ void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
