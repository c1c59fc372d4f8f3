// The epilogue: a warp gathers strips of 16 rows in shared memory, so that they leave in whole pieces of rows.
// Each element of C is written once, by one thread; what lies beyond M or N is not written.
__device__ __forceinline__ void store(const Sum (&sums)[MT][NT][4], unsigned char* smem, Out* C, int row0, int col0,
                                      int M, int N)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    constexpr int ROW_BYTES = WN * sizeof(Out);
    constexpr int CHUNKS = ROW_BYTES / 16;
    unsigned char* strip = smem + warp * 16 * ROW_BYTES;
    row0 += warp / WARPS_N * WM;
    col0 += warp % WARPS_N * WN;
    __syncthreads();  // the ring is no longer read
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        #pragma unroll
        for (int n = 0; n < NT; ++n) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                // Lane l holds rows l / 4 and l / 4 + 8, columns 2 * (l % 4) and the next one.
                const int row = lane / 4 + half * 8;
                unsigned char* at = strip + row * ROW_BYTES + swizzled<ROW_BYTES>(row, n) * 16 + lane % 4 * 4;
                *reinterpret_cast<$pair*>(at)
                    = $to_pair(sums[m][n][half * 2], sums[m][n][half * 2 + 1]);
            }
        }
        __syncwarp();
        #pragma unroll
        for (int i = lane; i < 16 * CHUNKS; i += 32) {
            const int row = i / CHUNKS;
            const int chunk = i % CHUNKS;
            const uint4 values = *reinterpret_cast<const uint4*>(strip + row * ROW_BYTES
                                                                 + swizzled<ROW_BYTES>(row, chunk) * 16);
            store_chunk(values, C, row0 + m * 16 + row, col0 + chunk * 8, M, N);
        }
        __syncwarp();
    }
}
