// Each element is written once, by one thread; what lies beyond M or N is not written.
__device__ __forceinline__ void store_sums(const Sum (&sums)[TM][TN / 4][4], Sum* C, int row0, int col0, int M, int N)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    row0 += warp / WARPS_N * WM + lane / 8;
    col0 += warp % WARPS_N * WN + lane % 8 * 4;
    #pragma unroll
    for (int m = 0; m < TM; ++m) {
        #pragma unroll
        for (int n = 0; n < TN / 4; ++n) {
            #pragma unroll
            for (int i = 0; i < 4; i += VEC_C) {
                const int row = row0 + m * 4;
                const int col = col0 + n * 32 + i;
                if (row < M && col < N) {
                    store_vector<VEC_C>(C + (size_t)row * N + col, sums[m][n] + i);
                }
            }
        }
    }
}
