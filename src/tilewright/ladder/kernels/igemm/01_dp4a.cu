// Bytes on the ordinary cores: dp4a multiplies four bytes by four and adds up the products, in one instruction. A block
// makes 64 x 64 sums, each of its threads 4 x 4, of tiles in shared memory whose words are four neighbours along k. Both
// operands are read byte by byte, wherever they lie: any size and any strides do. Sums wrap around, modulo 2^32.
#include "elements.cuh"

constexpr int BM = 64;
constexpr int BN = 64;
constexpr int BK = 32;
constexpr int WORDS = BK / 4;
constexpr int THREADS = 256;

// Four neighbours along k of one row; zeros beyond the end.
__device__ __forceinline__ int word_of(const TW_T* row, long long step, int k, int K, bool exists) {
    unsigned word = 0;
    #pragma unroll
    for (int byte = 0; byte < 4; ++byte) {
        if (exists && k + byte < K) word |= (unsigned)(unsigned char)row[(k + byte) * step] << 8 * byte;
    }
    return (int)word;
}

extern "C" __global__ void __launch_bounds__(THREADS)
igemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, int* __restrict__ c, int M, int N, int K, long long ld_a,
      long long step_a, long long ld_b, long long step_b) {
    __shared__ int a_tile[WORDS][BM + 4];  // four words more: what is written together lies in different banks
    __shared__ int b_tile[WORDS][BN + 4];
    const int tid = threadIdx.x;
    const int word = tid % WORDS;
    const int copied_row = tid / WORDS;
    const int own_row = tid / 16 * 4;
    const int own_column = tid % 16 * 4;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;

    int sums[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int i = copied_row; i < BM; i += THREADS / WORDS) {
            const int row = first_row + i;
            a_tile[word][i] = word_of(a + row * ld_a, step_a, k0 + word * 4, K, row < M);
        }
        #pragma unroll
        for (int i = copied_row; i < BN; i += THREADS / WORDS) {
            const int column = first_column + i;
            b_tile[word][i] = word_of(b + column * ld_b, step_b, k0 + word * 4, K, column < N);
        }
        __syncthreads();

        #pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            const int4 of_a = *reinterpret_cast<const int4*>(&a_tile[w][own_row]);
            const int4 of_b = *reinterpret_cast<const int4*>(&b_tile[w][own_column]);
            const int rows[4] = {of_a.x, of_a.y, of_a.z, of_a.w};
            const int columns[4] = {of_b.x, of_b.y, of_b.z, of_b.w};
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) sums[i][j] = __dp4a(rows[i], columns[j], sums[i][j]);
            }
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = first_row + own_row + i;
            const int column = first_column + own_column + j;
            if (row < M && column < N) c[(long long)row * N + column] = sums[i][j];
        }
    }
}
