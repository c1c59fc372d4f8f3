// Rows that begin anywhere, and operands whose neighbours in memory are not those along k: tensor maps take pitches of
// whole 16 bytes only, and wgmma takes bytes along k only. A first kernel writes both operands anew, as both want them;
// then blocks that stay multiply, and the next tile's operands come while a result is written. What is copied is little
// beside the product, and mostly still in L2 when it is read.
#define TW_ANYWHERE 1
#include "dependent.cuh"
#include "ring_s8.cuh"
#include "walk.cuh"

#include "packed_bytes.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BN 64
#define TW_STAGES 2
#define TW_BLOCKS 2
#define TW_PACKS 2
#define TW_ALIGN 16
#endif
constexpr int PACKS = TW_PACKS;  // of 16 bytes, a thread of the first kernel
constexpr int ALIGN = TW_ALIGN;  // bytes that packed rows begin at a multiple of
constexpr int BN = TW_BN;
constexpr int STAGES = TW_STAGES;
constexpr int BLOCKS = TW_BLOCKS;
using Ring = ByteRing<BN, STAGES>;
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int BM = CONSUMERS * 64;
constexpr int BK = 128;
constexpr int GROUP = 16;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int SHARED_BYTES = STAGES * (BM + BN) * BK + 1024;
static_assert(BM == Ring::ROWS && BK == Ring::BK, "the ring's tiles");

extern "C" __global__ void __launch_bounds__(PACKERS, 3)
pack(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ a_rows, TW_T* __restrict__ b_rows, int M,
     int N, int K, long long ld_a, long long step_a, long long ld_b, long long step_b) {
    wait_for_previous_grid();
    let_next_grid_come();
    pack_operands<PACKS, ALIGN>({a, M, K, ld_a, step_a}, {b, N, K, ld_b, step_b}, reinterpret_cast<uint4*>(a_rows),
                                reinterpret_cast<uint4*>(b_rows));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
igemm(const TW_T* __restrict__ a_rows, const TW_T* __restrict__ b_rows, int* __restrict__ c, int M, int N, int K,
      const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    const int warpgroup = warpgroup_of_block();
    const int rows = (M + BM - 1) / BM;
    const int columns = (N + BN - 1) / BN;
    const int k_tiles = (K + BK - 1) / BK;
    Ring ring = {aligned_for_swizzle(shared), &stages, {}};

    if (threadIdx.x == 0) {
        prefetch_map(&a_map);
        prefetch_map(&b_map);
        stages.template begin<CONSUMERS>();
    }
    __syncthreads();
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            for (int tile = blockIdx.x; tile < rows * columns; tile += gridDim.x) {
                const Place place = place_of<GROUP>(tile, rows, columns);
                ring.ask(&a_map, &b_map, place.row * BM, place.column * BN, k_tiles);
            }
        }
    } else {
        more_registers<232>();
        const int part = warpgroup - 1;  // of the tile's rows
        for (int tile = blockIdx.x; tile < rows * columns; tile += gridDim.x) {
            int sums[BN / 2];
            ring.multiply(sums, part, k_tiles);
            const Place place = place_of<GROUP>(tile, rows, columns);
            const int first_row = place.row * BM + part * 64;
            const int first_column = place.column * BN;
            #pragma unroll
            for (int i = 0; i < BN / 2; i += 2) {
                const int row = first_row + sum_row(threadIdx.x, i);
                store_inside(c, row, first_column + sum_column(threadIdx.x, i), M, N, sums[i], sums[i + 1]);
            }
        }
    }
}
