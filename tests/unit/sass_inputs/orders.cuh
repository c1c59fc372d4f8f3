// The orders of copy, wait, barrier and compute that the overlap proof must tell apart. One engine (int8, half, float)
// is included per file; every order becomes a kernel of its own, so that one cubin holds them all.
//
// An engine `Tile` offers: copy(tile, stage) asynchronous copies of one tile; fetch(tile) global -> registers;
// store(stage) registers -> shared; compute(stage); finish() results to global memory.
#pragma once
#include <cuda_pipeline.h>

// wait for the oldest stage, barrier, copy, compute: the ordinary ring (WAIT = STAGES - 2).
template <class Tile, int STAGES, int WAIT, bool BARE = false>
__device__ __forceinline__ void ring(Tile& tile, int count) {
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < count) tile.copy(s, s);
        __pipeline_commit();
    }
    for (int t = 0; t < count; ++t) {
        __pipeline_wait_prior(WAIT);
        __syncthreads();
        if (t + STAGES - 1 < count) tile.copy(t + STAGES - 1, (t + STAGES - 1) % STAGES);
        __pipeline_commit();
        if (BARE) __syncthreads();  // waits for no copy
        tile.compute(t % STAGES);
    }
}

// copy, wait, barrier, compute: with WAIT = 0 nothing is in flight while a tile is computed.
template <class Tile, int STAGES, int WAIT>
__device__ __forceinline__ void copy_then_wait(Tile& tile, int count) {
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < count) tile.copy(s, s);
        __pipeline_commit();
    }
    for (int t = 0; t < count; ++t) {
        __syncthreads();
        if (t + STAGES - 1 < count) tile.copy(t + STAGES - 1, (t + STAGES - 1) % STAGES);
        __pipeline_commit();
        __pipeline_wait_prior(WAIT);
        __syncthreads();
        tile.compute(t % STAGES);
    }
}

// wait, barrier, compute, barrier, copy: overlaps the next tile from three stages on.
template <class Tile, int STAGES>
__device__ __forceinline__ void copy_after(Tile& tile, int count) {
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < count) tile.copy(s, s);
        __pipeline_commit();
    }
    for (int t = 0; t < count; ++t) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        tile.compute(t % STAGES);
        __syncthreads();
        if (t + STAGES - 1 < count) tile.copy(t + STAGES - 1, (t + STAGES - 1) % STAGES);
        __pipeline_commit();
    }
}

// The ordinary ring with run-time stage counters.
template <class Tile, int STAGES>
__device__ __forceinline__ void ring_counters(Tile& tile, int count) {
    int put = 0, get = 0;
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < count) tile.copy(s, put);
        __pipeline_commit();
        put = put + 1 == STAGES ? 0 : put + 1;
    }
    for (int t = 0; t < count; ++t) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        if (t + STAGES - 1 < count) tile.copy(t + STAGES - 1, put);
        __pipeline_commit();
        put = put + 1 == STAGES ? 0 : put + 1;
        tile.compute(get);
        get = get + 1 == STAGES ? 0 : get + 1;
    }
}

// The ordinary ring, the K-loop unrolled by hand.
template <class Tile, int STAGES, int TIMES>
__device__ __forceinline__ void ring_unrolled(Tile& tile, int count) {
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < count) tile.copy(s, s);
        __pipeline_commit();
    }
#pragma unroll TIMES
    for (int t = 0; t < count; ++t) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        if (t + STAGES - 1 < count) tile.copy(t + STAGES - 1, (t + STAGES - 1) % STAGES);
        __pipeline_commit();
        tile.compute(t % STAGES);
    }
}

// As the programming guide writes it: the copy and its wait on one side of a branch, the last tile's wait on the other.
template <class Tile>
__device__ __forceinline__ void ring_branches(Tile& tile, int count) {
    tile.copy(0, 0);
    __pipeline_commit();
    for (int t = 0; t < count; ++t) {
        if (t + 1 < count) {
            tile.copy(t + 1, (t + 1) & 1);
            __pipeline_commit();
            __pipeline_wait_prior(1);
        } else {
            __pipeline_wait_prior(0);
        }
        __syncthreads();
        tile.compute(t & 1);
        __syncthreads();
    }
}

// Waits for every copy, committed or not, before computing.
template <class Tile>
__device__ __forceinline__ void wait_all(Tile& tile, int count) {
    tile.copy(0, 0);
    for (int t = 0; t < count; ++t) {
        if (t + 1 < count) tile.copy(t + 1, (t + 1) & 1);
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        tile.compute(t & 1);
        __syncthreads();
    }
}

// A persistent kernel: the K-loop inside a loop over output tiles.
template <class Tile, int STAGES>
__device__ __forceinline__ void persistent(Tile& tile, int count) {
    const int stride = 64 * gridDim.x;
    for (; tile.col0 < tile.Ncols; tile.col0 += stride) {
        ring<Tile, STAGES, STAGES - 2>(tile, count);
        tile.finish();
        __pipeline_wait_prior(0);
        __syncthreads();
    }
}

// load, barrier, compute, barrier: the single-buffered kernel that everything starts from.
template <class Tile>
__device__ __forceinline__ void single(Tile& tile, int count) {
    for (int t = 0; t < count; ++t) {
        tile.fetch(t);
        tile.store(0);
        __syncthreads();
        tile.compute(0);
        __syncthreads();
    }
}

// The next tile waits in registers while this one is computed; two buffers, one barrier. The loads come before the barrier:
// ptxas may sink a load below math that does not need it, but not below a barrier (unless it reads through the
// non-coherent cache: hence __ldcg in fetch).
template <class Tile, int TIMES>
__device__ __forceinline__ void ldg_double(Tile& tile, int count) {
    tile.fetch(0);
    tile.store(0);
#pragma unroll TIMES
    for (int t = 0; t + 1 < count; ++t) {
        tile.fetch(t + 1);
        __syncthreads();
        tile.compute(t & 1);
        tile.store((t + 1) & 1);
    }
    __syncthreads();
    tile.compute((count - 1) & 1);
}

// The same with one buffer and two barriers.
template <class Tile>
__device__ __forceinline__ void ldg_single(Tile& tile, int count) {
    tile.fetch(0);
    for (int t = 0; t < count; ++t) {
        tile.store(0);
        if (t + 1 < count) tile.fetch(t + 1);
        __syncthreads();
        tile.compute(0);
        __syncthreads();
    }
}

// The loads after the barrier, as most people write it: ptxas often sinks them below the math, and undoes the overlap.
template <class Tile>
__device__ __forceinline__ void ldg_loose(Tile& tile, int count) {
    tile.fetch(0);
    tile.store(0);
    __syncthreads();
    for (int t = 0; t + 1 < count; ++t) {
        tile.fetch(t + 1);
        tile.compute(t & 1);
        tile.store((t + 1) & 1);
        __syncthreads();
    }
    tile.compute((count - 1) & 1);
}

// Two buffers, but the loads are consumed before the compute phase: nothing overlaps.
template <class Tile>
__device__ __forceinline__ void ldg_consumed(Tile& tile, int count) {
    tile.fetch(0);
    tile.store(0);
    __syncthreads();
    for (int t = 0; t + 1 < count; ++t) {
        tile.fetch(t + 1);
        tile.store((t + 1) & 1);
        __syncthreads();
        tile.compute(t & 1);
        __syncthreads();
    }
    tile.compute((count - 1) & 1);
}

#define ORDER(name, stages, order, ...)                                                                  \
    extern "C" __global__ __launch_bounds__(THREADS) void name(PARAMETERS) {                             \
        __shared__ __align__(16) Buffers<stages> shared;                                                 \
        Tile<stages __VA_OPT__(, ) __VA_ARGS__> tile(shared, ARGUMENTS);                                 \
        order;                                                                                           \
        tile.finish();                                                                                   \
    }
#define T decltype(tile)
#define N tile.count
#if defined(CHOICES)
#include "choices.cuh"
#elif !defined(EXTRA)
ORDER(baseline, 1, single(tile, N))
ORDER(ring_s2, 2, (ring<T, 2, 0>(tile, N)))
ORDER(ring_s3, 3, (ring<T, 3, 1>(tile, N)))
ORDER(ring_s4, 4, (ring<T, 4, 2>(tile, N)))
ORDER(bare_s2, 2, (ring<T, 2, 0, true>(tile, N)))
ORDER(bare_s3, 3, (ring<T, 3, 1, true>(tile, N)))
ORDER(waits_s2_n0, 2, (copy_then_wait<T, 2, 0>(tile, N)))
ORDER(waits_s3_n1, 3, (copy_then_wait<T, 3, 1>(tile, N)))
ORDER(waits_s3_n0, 3, (copy_then_wait<T, 3, 0>(tile, N)))
ORDER(waits_s4_n2, 4, (copy_then_wait<T, 4, 2>(tile, N)))
ORDER(waits_s4_n0, 4, (copy_then_wait<T, 4, 0>(tile, N)))
ORDER(after_s2, 2, (copy_after<T, 2>(tile, N)))
ORDER(after_s3, 3, (copy_after<T, 3>(tile, N)))
ORDER(after_s4, 4, (copy_after<T, 4>(tile, N)))
ORDER(ldg_double, 2, (ldg_double<T, 1>(tile, N)))
ORDER(ldg_single, 1, ldg_single(tile, N))
ORDER(ldg_loose, 2, ldg_loose(tile, N))
ORDER(ldg_consumed, 2, ldg_consumed(tile, N))
#else
ORDER(counters_s2, 2, (ring_counters<T, 2>(tile, N)))
ORDER(counters_s3, 3, (ring_counters<T, 3>(tile, N)))
ORDER(unrolled_s2_x2, 2, (ring_unrolled<T, 2, 2>(tile, N)))
ORDER(unrolled_s3_x4, 3, (ring_unrolled<T, 3, 4>(tile, N)))
ORDER(branches_s2, 2, ring_branches(tile, N))
ORDER(wait_all_n0, 2, wait_all(tile, N))
ORDER(persistent_s3, 3, (persistent<T, 3>(tile, N)))
ORDER(ldg_unrolled, 2, (ldg_double<T, 2>(tile, N)))
ORDER(rolled_baseline, 1, single(tile, N), ROLLED)
ORDER(rolled_ring_s2, 2, (ring<T, 2, 0>(tile, N)), ROLLED)
ORDER(rolled_ring_s3, 3, (ring<T, 3, 1>(tile, N)), ROLLED)
ORDER(rolled_waits_s3_n0, 3, (copy_then_wait<T, 3, 0>(tile, N)), ROLLED)
ORDER(rolled_after_s2, 2, (copy_after<T, 2>(tile, N)), ROLLED)
ORDER(rolled_ldg, 2, (ldg_double<T, 1>(tile, N)), ROLLED)
ORDER(strided_baseline, 1, single(tile, N), STRIDED)
ORDER(strided_ring_s3, 3, (ring<T, 3, 1>(tile, N)), STRIDED)
ORDER(strided_waits_s3_n0, 3, (copy_then_wait<T, 3, 0>(tile, N)), STRIDED)
ORDER(guarded_baseline, 1, single(tile, N), GUARDED)
ORDER(guarded_ring_s2, 2, (ring<T, 2, 0>(tile, N)), GUARDED)
ORDER(guarded_ring_s3, 3, (ring<T, 3, 1>(tile, N)), GUARDED)
ORDER(guarded_after_s2, 2, (copy_after<T, 2>(tile, N)), GUARDED)
ORDER(guarded_ldg, 2, (ldg_double<T, 1>(tile, N)), GUARDED)
ORDER(fallback_ring_s2, 2, (ring<T, 2, 0>(tile, N)), FALLBACK)
ORDER(fallback_ring_s3, 3, (ring<T, 3, 1>(tile, N)), FALLBACK)
ORDER(fallback_waits_s3_n0, 3, (copy_then_wait<T, 3, 0>(tile, N)), FALLBACK)
ORDER(fallback_after_s2, 2, (copy_after<T, 2>(tile, N)), FALLBACK)
#endif
