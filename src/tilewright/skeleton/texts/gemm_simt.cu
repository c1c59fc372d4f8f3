__device__ __forceinline__ float4 shared_float4(unsigned address)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ float part_of(const float4& v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The compute phase of one tile.
__device__ __forceinline__ void multiply_tile(Sum (&sums)[TM][TN / 4][4], unsigned stage, int row0, int col0)
{
    #pragma unroll
    for (int k = 0; k < BK; k += 4) {
        float4 a[TM];
        #pragma unroll
        for (int m = 0; m < TM; ++m) {
            const int row = row0 + m * 4;
            a[m] = shared_float4(stage + row * A_ROW_BYTES + swizzled<A_ROW_BYTES>(row, k / 4) * 16);
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int n = 0; n < TN / 4; ++n) {
                const int row = k + i;
                const int chunk = col0 / 4 + n * 8;
                const float4 b
                    = shared_float4(stage + A_BYTES + row * B_ROW_BYTES + swizzled<B_ROW_BYTES>(row, chunk) * 16);
                #pragma unroll
                for (int m = 0; m < TM; ++m) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        sums[m][n][j] = fmaf(part_of(a[m], i), part_of(b, j), sums[m][n][j]);
                    }
                }
            }
        }
    }
}

// The sums of one thread over `tiles` tiles in K.
__device__ __forceinline__ void multiply_tiles(Sum (&sums)[TM][TN / 4][4], unsigned ring, Loader loader, int tiles)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * WM;
    const int warp_col = warp % WARPS_N * WN;
    if (tiles <= 0) {
        return;
    }
    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        loader.copy(ring + s * STAGE_BYTES);
        commit_copies();
    }
    int read = 0;
    int write = STAGES - 1;
    #pragma unroll 1
    for (; tiles > 0; --tiles) {
        wait_copies<STAGES - 2>();  // the oldest tile has landed ...
        __syncthreads();            // ... the copies of every thread, and the stage that is written next is read
        // A group is committed also when nothing is copied, so that their count stays right.
        loader.copy(ring + write * STAGE_BYTES);
        commit_copies();
        multiply_tile(sums, ring + read * STAGE_BYTES, warp_row + lane / 8, warp_col + lane % 8 * 4);
        read = read + 1 == STAGES ? 0 : read + 1;
        write = write + 1 == STAGES ? 0 : write + 1;
    }
    wait_copies<0>();
}

$store
