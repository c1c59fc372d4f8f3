// Bytes on tensor cores: 16 x 32 by 32 x 8 signed bytes in one instruction, sums in int32. Sums are exact, and beyond the
// range of int32 they wrap around, as additions of unsigned integers do.
#pragma once

#ifndef TW_ANYWHERE
#define TW_ANYWHERE 0  // 1: arrays begin at any element, so pairs may lie at odd ones
#endif

#include "elements.cuh"

#if TW_T_BYTES == 1  // the operands are the element type: one word for it, which makes values, as the other ones do
using SignedByte = signed char;
#undef TW_T
#define TW_T SignedByte
#endif

// Rounds to nearest, ties to even; beyond the range it is the nearest end of it, NaN is 0. PTX ISA, "cvt", ".sat".
__device__ __forceinline__ void from_float(signed char& to, float x) {
    int byte;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(byte) : "f"(x));
    to = (signed char)byte;
}

#include "mma.cuh"
#include "pieces.cuh"

// ldmatrix and asynchronous copies move 16 bytes, whatever they are.
__device__ __forceinline__ void load_matrices_of_bytes(unsigned (&to)[4], const signed char* row) {
    load_matrices(to, reinterpret_cast<const TW_T*>(row));
}
__device__ __forceinline__ void copy_bytes_piece(signed char* to, const signed char* from, bool exists) {
    copy_piece(reinterpret_cast<TW_T*>(to), reinterpret_cast<const TW_T*>(from), exists);
}

// sums += a * b, where b is given by its columns, as a is by its rows: four neighbours along k are a register's.
__device__ __forceinline__ void multiply_add(int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two neighbours at (row, column) of c, M x N, as far as it has them. Rows of odd length begin at odd places.
__device__ __forceinline__ void store_inside(int* c, int row, int column, int M, int N, int first, int second) {
    if (row >= M || column >= N) return;
    int* to = c + (long long)row * N + column;
    if (N % 2 == 0 && (!TW_ANYWHERE || reinterpret_cast<size_t>(c) % 8 == 0)) {
        *reinterpret_cast<int2*>(to) = make_int2(first, second);
    } else {
        to[0] = first;
        if (column + 1 < N) to[1] = second;
    }
}
