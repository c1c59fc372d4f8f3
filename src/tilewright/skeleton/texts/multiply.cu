__device__ __forceinline__ void multiply(Sum (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("$mma "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+$constraint"(d[0]), "+$constraint"(d[1]), "+$constraint"(d[2]), "+$constraint"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
