// Boxes of tensors with three dimensions: matrices of a batch, one behind the other. See tma.cuh.
#pragma once

#include "tma.cuh"

// The box whose first element is (column, row) of matrix `batch`.
__device__ __forceinline__ void copy_box(void* to, const TensorMap* map, int column, int row, int batch,
                                         Arrivals* arrivals) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
        ::"r"(shared_address(to)), "l"(map), "r"(column), "r"(row), "r"(batch), "r"(shared_address(arrivals))
        : "memory");
}

// The same, and its lines in L2 are the first to go.
__device__ __forceinline__ void copy_box_once(void* to, const TensorMap* map, int column, int row, int batch,
                                              Arrivals* arrivals) {
    asm volatile(
        "{\n"
        ".reg .b64 first;\n"
        "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], first;\n"
        "}\n"
        ::"r"(shared_address(to)), "l"(map), "r"(column), "r"(row), "r"(batch), "r"(shared_address(arrivals))
        : "memory");
}

// Into L2 only; it may come before wait_for_previous_grid().
__device__ __forceinline__ void prefetch_box(const TensorMap* map, int column, int row, int batch) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(column), "r"(row),
                 "r"(batch)
                 : "memory");
}

// The same box into the same place of every block of the cluster whose bit is set; it counts on the mbarrier there.
__device__ __forceinline__ void copy_box_to_blocks(void* to, const TensorMap* map, int column, int row, int batch,
                                                   Arrivals* arrivals, int blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
        "l"(map), "r"(column), "r"(row), "r"(batch), "r"(shared_address(arrivals)), "h"((unsigned short)blocks)
        : "memory");
}

// A box of shared memory into the tensor; what lies beyond its edges is left out. By one thread, which also waits.
__device__ __forceinline__ void store_box(const TensorMap* map, int column, int row, int batch, const void* from) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
                 "r"(column), "r"(row), "r"(batch), "r"(shared_address(from))
                 : "memory");
}
