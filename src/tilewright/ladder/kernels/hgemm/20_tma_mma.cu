// The copy engine brings the tiles: one thread asks for boxes of a tensor map, the hardware computes addresses, fills zeros
// beyond the edges and counts bytes on the stage's mbarrier. No thread holds an address or a predicate of a load any more,
// and nobody meets at a barrier: a warp waits for the bytes it reads, and arrives when it has read them. The boxes lie in
// rows of 128 bytes whose chunks the engine itself has swizzled, so that ldmatrix meets no bank twice.
#include "dependent.cuh"
#include "mma.cuh"
#include "stages.cuh"
#include "walk.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 64
#define TW_STAGES 2
#endif
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 8;
constexpr int WM = BM / 2;
constexpr int WN = BN > 64 ? 64 : 32;
constexpr int WARPS = 2 * (BN / WN);
constexpr int THREADS = WARPS * 32;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = BN * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 1024;

// Chunk of 16 bytes number `chunk` of a row of a box.
__device__ __forceinline__ const TW_T* chunk_at(const unsigned char* box, int row, int chunk) {
    return reinterpret_cast<const TW_T*>(box + row * 128 + (chunk ^ row % 8) * 16);
}

extern "C" __global__ void __launch_bounds__(THREADS)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp % 2 * WM;
    const int warp_column = warp / 2 * WN;
    const Place place = place_of<GROUP>(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN);
    const int first_row = place.row * BM;
    const int first_column = place.column * BN;
    const int k_tiles = (K + BK - 1) / BK;

    if (threadIdx.x == 0) stages.template begin<WARPS>();
    __syncthreads();
    wait_for_previous_grid();
    let_next_grid_come();

    const auto fill = [&](int stage, int k_tile) {
        unsigned char* tile = tiles + stage * STAGE_BYTES;
        expect_bytes(&stages.full[stage], STAGE_BYTES);
        copy_box(tile, &a_map, k_tile * BK, first_row, &stages.full[stage]);
        #pragma unroll
        for (int n = 0; n < BN; n += 64)
            copy_box(tile + A_BYTES + n * 128, &b_map, first_column + n, k_tile * BK, &stages.full[stage]);
    };
    if (threadIdx.x == 0)
        for (int t = 0; t < min(STAGES, k_tiles); ++t) fill(t, t);

    float sums[WM / 16][WN / 8][4] = {};
    Turn<STAGES> turn;
    #pragma unroll 1
    for (int t = 0; t < k_tiles; ++t) {
        wait_for(&stages.full[turn.stage], turn.phase);
        const unsigned char* a_tile = tiles + turn.stage * STAGE_BYTES;
        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            unsigned of_a[WM / 16][4];
            unsigned of_b[WN / 16][4];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i)
                load_matrices(of_a[i], chunk_at(a_tile, warp_row + i * 16 + lane % 16, k / 8 + lane / 16));
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j) {
                const int column = warp_column + j * 16;
                const unsigned char* box = a_tile + A_BYTES + column / 64 * BK * 128;
                load_turned_matrices(of_b[j], chunk_at(box, k + lane % 16, column % 64 / 8 + lane / 16));
            }
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                #pragma unroll
                for (int j = 0; j < WN / 8; ++j)
                    multiply_add(sums[i][j], of_a[i], of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1]);
            }
        }
        __syncwarp();
        if (lane == 0) arrive(&stages.empty[turn.stage]);
        if (threadIdx.x == 0 && t + STAGES < k_tiles) {
            wait_for(&stages.empty[turn.stage], turn.phase);
            fill(turn.stage, t + STAGES);
        }
        turn.next();
    }

    #pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < WN / 8; ++j) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + warp_row + i * 16 + half * 8 + lane / 4;
                const int column = first_column + warp_column + j * 8 + lane % 4 * 2;
                store_inside(c, row, column, M, N, sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
            }
        }
    }
}
