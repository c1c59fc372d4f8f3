constexpr int PIECE = $piece;                  // columns that a lane holds side by side

// 32-bit results, straight from the registers: four lanes write whole sectors of a row.
// Each element is written once, by one thread; what lies beyond M or N is not written.
__device__ __forceinline__ void store_sums(const Sum (&sums)[MT][NT][4], Sum* C, int row0, int col0, int M, int N)
{
    constexpr int WIDTH = VEC_C < PIECE ? VEC_C : PIECE;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    row0 += warp / WARPS_N * WM + lane / 4;
    col0 += warp % WARPS_N * WN + lane % 4 * PIECE;
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        #pragma unroll
        for (int n = 0; n < NT; n += PIECE / 2) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = row0 + m * 16 + half * 8;
                Sum values[PIECE];
                #pragma unroll
                for (int i = 0; i < PIECE; ++i) {
                    values[i] = $piece_value;
                }
                #pragma unroll
                for (int i = 0; i < PIECE; i += WIDTH) {
                    const int col = col0 + n * 8 + i;
                    if (row < M && col < N) {
                        store_vector<WIDTH>(C + (size_t)row * N + col, values + i);
                    }
                }
            }
        }
    }
}
