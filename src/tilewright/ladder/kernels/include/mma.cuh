// Warps on tensor cores: 16 x 16 by 16 x 8 elements of TW_T (half or bfloat16) in one instruction, sums in float; and
// the instruction that brings operands from shared memory as it wants them.
#pragma once

#ifndef TW_ANYWHERE
#define TW_ANYWHERE 0  // 1: arrays begin at any element, so pairs may lie at odd ones
#endif

#include "elements.cuh"

// Four 8 x 8 matrices. Lane l gives the address of row l % 8 of matrix l / 8, 16 bytes; it gets two neighbours of row
// l / 4 of each, from column l % 4 * 2 on.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const TW_T* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row))));
}

// The same, each of them turned on its way: it gets two neighbours of column l / 4.
__device__ __forceinline__ void load_turned_matrices(unsigned (&to)[4], const TW_T* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row))));
}

// The instruction has its operands' type in its name.
template <typename Element>
constexpr bool is_half = false;
template <>
constexpr bool is_half<__half> = true;
constexpr bool IS_HALF = is_half<TW_T>;

// sums += a * b. Of the sums lane l has columns l % 4 * 2 and the next one, of row l / 4 and of row l / 4 + 8.
__device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    if constexpr (IS_HALF) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// The same for halves with sums in halves: two neighbours of row l / 4, and two of row l / 4 + 8. There are none in bfloat16.
__device__ __forceinline__ void multiply_add_halves(unsigned (&sums)[2], const unsigned (&a)[4], unsigned b0,
                                                    unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};\n"
                 : "+r"(sums[0]), "+r"(sums[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two neighbours, rounded, in one store.
__device__ __forceinline__ void store_pair(TW_T* to, float first, float second) {
    struct alignas(4) Pair {
        TW_T at[2];
    } pair;
    from_float(pair.at[0], first);
    from_float(pair.at[1], second);
    *reinterpret_cast<Pair*>(to) = pair;
}

// The same at (row, column) of c, M x N, as far as it has them. Rows of odd length begin at odd places.
__device__ __forceinline__ void store_inside(TW_T* c, int row, int column, int M, int N, float first, float second) {
    if (row >= M || column >= N) return;
    TW_T* to = c + (long long)row * N + column;
    if (N % 2 == 0 && (!TW_ANYWHERE || reinterpret_cast<size_t>(c) % (2 * TW_T_BYTES) == 0)) {
        store_pair(to, first, second);
    } else {
        from_float(to[0], first);
        if (column + 1 < N) from_float(to[1], second);
    }
}
