// wgmma of sm_90a: descriptors, ordering, and m64n64 with 32 accumulators a thread.
#pragma once
#include "ptx_wrappers.cuh"

// A shared-memory matrix descriptor (PTX ISA, "Matrix Descriptor Format"): addresses and offsets in units of 16 bytes,
// bits 62 and 63 the swizzle, 1 for 128 bytes. Between groups of eight rows lie `stride_bytes`. The leading offset
// means nothing here: a swizzled K-major tile is one atom wide, and so is an MN-major one of 64 columns.
DEVICE u64 descriptor_128b(u32 address, u32 stride_bytes) {
    return (u64)((address & 0x3FFFF) >> 4) | ((u64)1 << 16) | ((u64)(stride_bytes >> 4) << 32) | ((u64)1 << 62);
}
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int COUNT>
DEVICE void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
DEVICE void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#define D32                                                                                                             \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define OUT32(C, d)                                                                                                     \
    C(d[0]), C(d[1]), C(d[2]), C(d[3]), C(d[4]), C(d[5]), C(d[6]), C(d[7]), C(d[8]), C(d[9]), C(d[10]), C(d[11]),       \
        C(d[12]), C(d[13]), C(d[14]), C(d[15]), C(d[16]), C(d[17]), C(d[18]), C(d[19]), C(d[20]), C(d[21]), C(d[22]),   \
        C(d[23]), C(d[24]), C(d[25]), C(d[26]), C(d[27]), C(d[28]), C(d[29]), C(d[30]), C(d[31])
#define AS_FLOAT(x) "+f"(x)
#define AS_INT(x) "+r"(x)

// d = a b + (accumulate ? d : 0). Both operands K-major.
DEVICE void wgmma_bf16(float (&d)[32], u64 a, u64 b, int accumulate) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " D32 ", %32, %33, p, 1, 1, 0, 0;\n\t}"
                 : OUT32(AS_FLOAT, d)
                 : "l"(a), "l"(b), "r"(accumulate)
                 : "memory");
}
// A from registers, B MN-major ("transposed").
DEVICE void wgmma_bf16_register_a(float (&d)[32], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " D32
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n\t}"
                 : OUT32(AS_FLOAT, d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)
                 : "memory");
}
DEVICE void wgmma_e4m3(float (&d)[32], u64 a, u64 b, int accumulate) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 " D32 ", %32, %33, p, 1, 1;\n\t}"
                 : OUT32(AS_FLOAT, d)
                 : "l"(a), "l"(b), "r"(accumulate)
                 : "memory");
}
DEVICE void wgmma_s8(int (&d)[32], u64 a, u64 b, int accumulate) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 " D32 ", %32, %33, p;\n\t}"
                 : OUT32(AS_INT, d)
                 : "l"(a), "l"(b), "r"(accumulate)
                 : "memory");
}

// Row and column in a warpgroup's 64 x 64 tile of accumulator i of a thread.
DEVICE int accumulator_row(int thread, int i) { return thread % 128 / 32 * 16 + thread % 32 / 4 + (i & 2) * 4; }
DEVICE int accumulator_column(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + (i & 1); }
