// Tensor cores instead of multiply-adds of single threads, through WMMA: a warp multiplies 16 x 8 by 8 x 16 elements in one
// step. They take TF32, floats of which 10 bits of the fraction are kept: results are about as exact as half precision
// makes them, in float's range; sums stay float. This is another operation than that of the rungs before it, as it is in
// PyTorch, where it has to be allowed. A block makes 128 x 128, each of its 8 warps 64 x 32; rows of the tiles in shared
// memory are padded by 16 bytes, so that the rows of a fragment begin in different banks. What WMMA does not give: NVRTC
// 13.5 reads fragments of TF32 by generic addresses, four bytes at a time, and rounds each element in several steps.
#include <mma.h>
#include <cuda_pipeline.h>

constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 16;
constexpr int WM = 64;
constexpr int WN = 32;
constexpr int PAD = 4;
constexpr int WARPS = (BM / WM) * (BN / WN);
constexpr int THREADS = WARPS * 32;
constexpr int A_PIECES = BM * BK / 4 / THREADS;
constexpr int B_PIECES = BK * BN / 4 / THREADS;

using namespace nvcuda;

extern "C" __global__ void __launch_bounds__(THREADS)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    constexpr int STAGES = 4;
    // Above 48 KiB, so dynamic: launch with 74752 bytes, and raise the kernel's
    // cudaFuncAttributeMaxDynamicSharedMemorySize first (cudaFuncSetAttribute).
    extern __shared__ __align__(128) unsigned char tile_ring[];
    auto &a_tile_ring = *reinterpret_cast<float (*)[STAGES][BM][BK + PAD]>(tile_ring);
    auto &b_tile_ring = *reinterpret_cast<float (*)[STAGES][BK][BN + PAD]>(tile_ring + sizeof(a_tile_ring));
    __shared__ __align__(32) float c_patch[WARPS][16][16 + PAD];
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    a += (long long)first_row * ld_a;
    b += first_column;

    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums[WM / 16][WN / 16];
    #pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < WN / 16; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
    }
    // Software pipeline: while a tile is computed, the copies of the next STAGES - 1 tiles are in flight.
    auto copy_tile = [&](int k0, int stage) {
        auto &a_tile = a_tile_ring[stage];
        auto &b_tile = b_tile_ring[stage];
        // K and N are multiples of 4, and rows begin at multiples of 16 bytes: a piece exists whole, or not at all.
        #pragma unroll
        for (int i = 0; i < A_PIECES; ++i) {
            const int piece = tid + i * THREADS;
            const int row = piece / (BK / 4);
            const int k = piece % (BK / 4) * 4;
            __pipeline_memcpy_async(reinterpret_cast<float4*>(&a_tile[row][k]),
                reinterpret_cast<const float4*>(&a[row * ld_a + k]),
                16, (first_row + row < M && k0 + k < K) ? 0 : 16);
        }
        #pragma unroll
        for (int i = 0; i < B_PIECES; ++i) {
            const int piece = tid + i * THREADS;
            const int k = piece / (BN / 4);
            const int column = piece % (BN / 4) * 4;
            __pipeline_memcpy_async(reinterpret_cast<float4*>(&b_tile[k][column]),
                reinterpret_cast<const float4*>(&b[k * ld_b + column]),
                16, (k0 + k < K && first_column + column < N) ? 0 : 16);
        }

        a += BK;
        b += (long long)BK * ld_b;
    };

    // Prologue: fill all stages but one. Each commits, even with no tile left: the wait counts groups.
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        int k0 = stage * BK;
        if (k0 < K) copy_tile(k0, stage);
        __pipeline_commit();
    }

    int read_stage = 0;
    int write_stage = STAGES - 1;
    for (int k0 = 0; k0 < K; k0 += BK) {
        __pipeline_wait_prior(STAGES - 2);  // this tile has landed
        __syncthreads();  // for every thread; and nobody still reads the stage that is filled next
        const int k0_ahead = k0 + (STAGES - 1) * BK;
        if (k0_ahead < K) copy_tile(k0_ahead, write_stage);
        __pipeline_commit();

        auto &a_tile = a_tile_ring[read_stage];
        auto &b_tile = b_tile_ring[read_stage];
        #pragma unroll
        for (int k = 0; k < BK; k += 8) {
            wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a_part[WM / 16];
            wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b_part[WN / 16];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                wmma::load_matrix_sync(a_part[i], &a_tile[warp_row + i * 16][k], BK + PAD);
                #pragma unroll
                for (int e = 0; e < a_part[i].num_elements; ++e) a_part[i].x[e] = wmma::__float_to_tf32(a_part[i].x[e]);
            }
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j) {
                wmma::load_matrix_sync(b_part[j], &b_tile[k][warp_column + j * 16], BN + PAD);
                #pragma unroll
                for (int e = 0; e < b_part[j].num_elements; ++e) b_part[j].x[e] = wmma::__float_to_tf32(b_part[j].x[e]);
            }
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                #pragma unroll
                for (int j = 0; j < WN / 16; ++j) wmma::mma_sync(sums[i][j], a_part[i], b_part[j], sums[i][j]);
            }
        }

        read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
        write_stage = write_stage + 1 == STAGES ? 0 : write_stage + 1;
    }
    __syncthreads();  // as behind every tile of the original: nobody still reads the last one

    // A fragment's elements lie as the hardware likes; by way of shared memory they come out in rows, and can be masked.
    #pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < WN / 16; ++j) {
            wmma::store_matrix_sync(&c_patch[warp][0][0], sums[i][j], 16 + PAD, wmma::mem_row_major);
            __syncwarp();
            #pragma unroll
            for (int piece = lane; piece < 64; piece += 32) {
                const int row = first_row + warp_row + i * 16 + piece / 4;
                const int column = first_column + warp_column + j * 16 + piece % 4 * 4;
                if (row < M && column < N) {
                    *reinterpret_cast<float4*>(&c[(long long)row * N + column])
                        = *reinterpret_cast<const float4*>(&c_patch[warp][piece / 4][piece % 4 * 4]);
                }
            }
            __syncwarp();
        }
    }
}
