__device__ __forceinline__ void commit_copies()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Until at most LEFT groups of this thread's copies are under way.
template <int LEFT>
__device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;\n" :: "n"(LEFT) : "memory");
}
