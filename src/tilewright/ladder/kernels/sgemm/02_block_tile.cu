// A block of 32 x 32 threads makes a 32 x 32 tile of C. It walks along K a tile at a time: all threads together copy a
// tile of A and one of B to shared memory, and every element that was read from global memory once is used 32 times.
constexpr int TILE = 32;

extern "C" __global__ void __launch_bounds__(TILE * TILE)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty;
    const int column = blockIdx.x * TILE + tx;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        // What lies beyond the matrices counts as zero: it adds nothing.
        a_tile[ty][tx] = row < M && k0 + tx < K ? a[(long long)row * ld_a + k0 + tx] : 0.0f;
        b_tile[ty][tx] = k0 + ty < K && column < N ? b[(long long)(k0 + ty) * ld_b + column] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < TILE; ++k) sum = fmaf(a_tile[ty][k], b_tile[k][tx], sum);
        __syncthreads();
    }
    if (row < M && column < N) c[(long long)row * N + column] = sum;
}
