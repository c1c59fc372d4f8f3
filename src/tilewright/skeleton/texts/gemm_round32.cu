// FP32 to TF32, to nearest; without it the matrix instruction drops the low bits.
__device__ __forceinline__ unsigned rounded(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(bits) : "f"(value));
    return bits;
}

