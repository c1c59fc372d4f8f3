// C[M, N] = A[M, K] * B[K, N] in float4, A transposed through a register, pointers advanced from tile to tile.
// M and N are multiples of 32, K is one of 8.
#define BM 32
#define BN 32
#define BK 8
#define FLOAT4(x) (reinterpret_cast<float4 *>(&(x))[0])
#define CONST4(x) (reinterpret_cast<const float4 *>(&(x))[0])

__global__ void vector(const float *A, const float *B, float *C, int M, int N, int K)
{
    constexpr int STAGES = 2;
    __shared__ __align__(16) float As_ring[STAGES][BK * BM], Bs_ring[STAGES][BK * BN];

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

    // Software pipeline: the loads of the next tile wait in registers while this tile is computed.
    float4 tmp_next;
    float4 Bs_next;
    auto fetch_tile = [&]() {
        tmp_next = CONST4(A[a_row * K + a_col]);
        Bs_next = CONST4(B[b_row * N + b_col]);

        A += BK;
        B += BK * N;
    };
    auto store_tile = [&](int stage) {
        auto &As = As_ring[stage];
        auto &Bs = Bs_ring[stage];
        As[(a_col + 0) * BM + a_row] = tmp_next.x;
        As[(a_col + 1) * BM + a_row] = tmp_next.y;
        As[(a_col + 2) * BM + a_row] = tmp_next.z;
        As[(a_col + 3) * BM + a_row] = tmp_next.w;
        FLOAT4(Bs[b_row * BN + b_col]) = Bs_next;
    };

    {  // Prologue: the first tile.
        int k = 0;
        if (k < K) {
            fetch_tile();
            store_tile(0);
        }
    }
    __syncthreads();

    int stage = 0;
    for (int k = 0; k < K; k += BK) {
        const int k_next = k + BK;
        const bool has_next = k_next < K;
        if (has_next) fetch_tile();

        auto &As = As_ring[stage];
        auto &Bs = Bs_ring[stage];
        for (int d = 0; d < BK; ++d) {
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) {
                    sum[i][j] += As[d * BM + r + i] * Bs[d * BN + c + j];
                }
            }
        }

        if (has_next) store_tile(stage ^ 1);
        __syncthreads();  // the next tile is in shared memory, and nobody reads this one any more
        stage ^= 1;
    }

    for (int i = 0; i < 4; ++i) {
        FLOAT4(C[(r + i) * N + c]) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
    }
}
