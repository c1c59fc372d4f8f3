// Every access is of 16 bytes: four floats in one instruction, in global memory and in shared. A thread's rows and columns
// have to be neighbours for that, and so have the elements of a column of A: it is turned on its way into shared memory.
// Instructions become few, and bank conflicts come: the turned stores meet in a few banks, and eight lanes that each read
// 16 bytes of runs of 64 need four passes. The next rungs deal with them.
constexpr int BM = 128;
constexpr int BN = 256;
constexpr int BK = 16;
constexpr int TM = 8;
constexpr int TN = 16;
constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int A_PIECES = BM * BK / 4 / THREADS;
constexpr int B_PIECES = BK * BN / 4 / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    __shared__ __align__(16) float a_tile[BK][BM];  // turned
    __shared__ __align__(16) float b_tile[BK][BN];
    const int tid = threadIdx.x;
    // Threads stand 16 x 16; a thread's patch is in one piece.
    const int patch_row = tid / (BN / TN) * TM;
    const int patch_column = tid % (BN / TN) * TN;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    a += (long long)first_row * ld_a;
    b += first_column;

    float sums[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        // K and N are multiples of 4, and rows begin at multiples of 16 bytes: a piece exists whole, or not at all.
        #pragma unroll
        for (int i = 0; i < A_PIECES; ++i) {
            const int piece = tid + i * THREADS;
            const int row = piece / (BK / 4);
            const int k = piece % (BK / 4) * 4;
            float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (first_row + row < M && k0 + k < K) {
                value = *reinterpret_cast<const float4*>(&a[row * ld_a + k]);
            }
            a_tile[k + 0][row] = value.x;
            a_tile[k + 1][row] = value.y;
            a_tile[k + 2][row] = value.z;
            a_tile[k + 3][row] = value.w;
        }
        #pragma unroll
        for (int i = 0; i < B_PIECES; ++i) {
            const int piece = tid + i * THREADS;
            const int k = piece / (BN / 4);
            const int column = piece % (BN / 4) * 4;
            float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (k0 + k < K && first_column + column < N) {
                value = *reinterpret_cast<const float4*>(&b[k * ld_b + column]);
            }
            *reinterpret_cast<float4*>(&b_tile[k][column]) = value;
        }
        __syncthreads();
        a += BK;
        b += (long long)BK * ld_b;

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float4 a_part[TM / 4];
            float4 b_part[TN / 4];
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                a_part[i] = *reinterpret_cast<const float4*>(&a_tile[k][patch_row + i * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                b_part[j] = *reinterpret_cast<const float4*>(&b_tile[k][patch_column + j * 4]);
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                const float4 rows = a_part[i / 4];
                const float a_value = i % 4 == 0 ? rows.x : i % 4 == 1 ? rows.y : i % 4 == 2 ? rows.z : rows.w;
                #pragma unroll
                for (int j = 0; j < TN; j += 4) {
                    sums[i][j + 0] = fmaf(a_value, b_part[j / 4].x, sums[i][j + 0]);
                    sums[i][j + 1] = fmaf(a_value, b_part[j / 4].y, sums[i][j + 1]);
                    sums[i][j + 2] = fmaf(a_value, b_part[j / 4].z, sums[i][j + 2]);
                    sums[i][j + 3] = fmaf(a_value, b_part[j / 4].w, sums[i][j + 3]);
                }
            }
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = first_row + patch_row + i;
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int column = first_column + patch_column + j;
            if (row < M && column < N) {
                *reinterpret_cast<float4*>(&c[(long long)row * N + column])
                    = make_float4(sums[i][j + 0], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
            }
        }
    }
}
