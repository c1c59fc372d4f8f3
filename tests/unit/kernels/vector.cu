// C[M, N] = A[M, K] * B[K, N] in float4, A transposed through a register, pointers advanced from tile to tile.
// M and N are multiples of 32, K is one of 8.
#define BM 32
#define BN 32
#define BK 8
#define FLOAT4(x) (reinterpret_cast<float4 *>(&(x))[0])
#define CONST4(x) (reinterpret_cast<const float4 *>(&(x))[0])

__global__ void vector(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[BK * BM], Bs[BK * BN];

    const int tid = threadIdx.x;
    const int a_row = tid / 2;
    const int a_col = tid % 2 * 4;
    const int b_row = tid / 8;
    const int b_col = tid % 8 * 4;
    const int r = tid / 8 * 4;
    const int c = tid % 8 * 4;
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += blockIdx.y * BM * N + blockIdx.x * BN;
    float sum[4][4] = {};

    for (int k = 0; k < K; k += BK) {
        float4 tmp = CONST4(A[a_row * K + a_col]);
        As[(a_col + 0) * BM + a_row] = tmp.x;
        As[(a_col + 1) * BM + a_row] = tmp.y;
        As[(a_col + 2) * BM + a_row] = tmp.z;
        As[(a_col + 3) * BM + a_row] = tmp.w;
        FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[b_row * N + b_col]);
        __syncthreads();
        A += BK;
        B += BK * N;
        for (int d = 0; d < BK; ++d) {
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) {
                    sum[i][j] += As[d * BM + r + i] * Bs[d * BN + c + j];
                }
            }
        }
        __syncthreads();
    }

    for (int i = 0; i < 4; ++i) {
        FLOAT4(C[(r + i) * N + c]) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
    }
}
