// FP16 matrix product with mma.sync and ldmatrix: C[M, N] = A[M, K] * B[K, N].
//
// half in, half out, float sums; everything row-major. One block makes a 128x128 tile with
// eight warps (2 x 4), each of them 64x32. Global memory is read 16 bytes at a time, so K and N
// have to be multiples of 8; M is free.
//
// Shared rows are padded by 8 halves: ldmatrix then touches all 32 banks without a conflict.

#include <cuda_fp16.h>
#include <cstdint>

constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 32;
constexpr int PAD = 8;

constexpr int WARPS_M = 2;
constexpr int WARPS_N = 4;
constexpr int NUM_THREADS = WARPS_M * WARPS_N * 32;

constexpr int WM = BM / WARPS_M;  // 64 rows per warp
constexpr int WN = BN / WARPS_N;  // 32 columns per warp
constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int MT = WM / MMA_M;    // 4 x 4 instructions per warp and k-step
constexpr int NT = WN / MMA_N;

constexpr int VEC = 8;            // halves in 16 bytes
constexpr int A_CHUNKS = BM * BK / VEC / NUM_THREADS;
constexpr int B_CHUNKS = BK * BN / VEC / NUM_THREADS;

// Four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const half* row)
{
    uint32_t addr = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr));
}

// The same for two matrices, each transposed on the way: B is stored k-major.
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], const half* row)
{
    uint32_t addr = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(addr));
}

__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
hgemm_mma(const half* __restrict__ A, const half* __restrict__ B, half* __restrict__ C, int M, int N, int K)
{
    __shared__ __align__(16) half a_tile[BM][BK + PAD];
    __shared__ __align__(16) half b_tile[BK][BN + PAD];

    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int warp_m = (warp / WARPS_N) * WM;
    const int warp_n = (warp % WARPS_N) * WN;
    const int bm = blockIdx.y * BM;
    const int bn = blockIdx.x * BN;

    float acc[MT][NT][4] = {};

    for (int k0 = 0; k0 < K; k0 += BK) {
        // Global to shared, 16 bytes per thread and step; outside the matrices: zeros.
        #pragma unroll
        for (int i = 0; i < A_CHUNKS; ++i) {
            int chunk = tid + i * NUM_THREADS;
            int row = chunk / (BK / VEC);
            int col = chunk % (BK / VEC) * VEC;
            *reinterpret_cast<uint4*>(&a_tile[row][col]) =
                (bm + row < M && k0 + col < K)
                    ? *reinterpret_cast<const uint4*>(&A[(size_t)(bm + row) * K + k0 + col])
                    : make_uint4(0, 0, 0, 0);
        }
        #pragma unroll
        for (int i = 0; i < B_CHUNKS; ++i) {
            int chunk = tid + i * NUM_THREADS;
            int row = chunk / (BN / VEC);
            int col = chunk % (BN / VEC) * VEC;
            *reinterpret_cast<uint4*>(&b_tile[row][col]) =
                (k0 + row < K && bn + col < N)
                    ? *reinterpret_cast<const uint4*>(&B[(size_t)(k0 + row) * N + bn + col])
                    : make_uint4(0, 0, 0, 0);
        }
        __syncthreads();

        #pragma unroll
        for (int kk = 0; kk < BK; kk += MMA_K) {
            uint32_t a_frag[MT][4];
            uint32_t b_frag[NT][2];
            #pragma unroll
            for (int m = 0; m < MT; ++m) {
                ldmatrix_x4(a_frag[m], &a_tile[warp_m + m * MMA_M + lane % 16][kk + lane / 16 * 8]);
            }
            #pragma unroll
            for (int n = 0; n < NT; ++n) {
                ldmatrix_x2_trans(b_frag[n], &b_tile[kk + lane % 16][warp_n + n * MMA_N]);
            }
            #pragma unroll
            for (int m = 0; m < MT; ++m) {
                #pragma unroll
                for (int n = 0; n < NT; ++n) {
                    mma_m16n8k16(acc[m][n], a_frag[m], b_frag[n]);
                }
            }
        }
        __syncthreads();
    }

    // Thread l of a warp holds rows l / 4 and l / 4 + 8, columns 2 * (l % 4) and the next one.
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        #pragma unroll
        for (int n = 0; n < NT; ++n) {
            int row = bm + warp_m + m * MMA_M + lane / 4;
            int col = bn + warp_n + n * MMA_N + lane % 4 * 2;
            if (col < N) {
                if (row < M) {
                    *reinterpret_cast<half2*>(&C[(size_t)row * N + col]) =
                        __floats2half2_rn(acc[m][n][0], acc[m][n][1]);
                }
                if (row + 8 < M) {
                    *reinterpret_cast<half2*>(&C[(size_t)(row + 8) * N + col]) =
                        __floats2half2_rn(acc[m][n][2], acc[m][n][3]);
                }
            }
        }
    }
}
