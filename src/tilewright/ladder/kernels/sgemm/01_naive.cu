// One thread makes one element of C, and reads everything it needs from global memory: a row of A and a column of B.
// Neighbouring lanes read neighbouring elements of B, so requests are whole; there are far too many of them: each element
// of A is asked for N times, each of B M times, and a multiply-add waits for two of them.
extern "C" __global__ void __launch_bounds__(256)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    const int column = blockIdx.x * 32 + threadIdx.x;
    const int row = blockIdx.y * 8 + threadIdx.y;
    if (row >= M || column >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum = fmaf(a[(long long)row * ld_a + k], b[(long long)k * ld_b + column], sum);
    c[(long long)row * N + column] = sum;
}
