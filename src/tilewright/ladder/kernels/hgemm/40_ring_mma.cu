// The ring for cards of sm_120, which have the copy engine, clusters of one and setmaxnreg, and no wgmma: one warpgroup only
// asks for tiles, two multiply with mma.sync, and they meet on the stages' mbarriers alone. Fragments and sums of mma.sync
// lie in registers, so the producer hands over what it has no use for; the ring is what 99 KB hold.
#include "dependent.cuh"
#include "mma.cuh"
#include "roles.cuh"
#include "stages.cuh"
#include "walk.cuh"

#ifndef TW_BM  // for the emulator; a card gets those of ladder.toml
#define TW_BM 64
#define TW_BN 64
#define TW_STAGES 2
#endif
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 8;
constexpr int WARPS = CONSUMERS * 4;  // that multiply: two beside each other along m, four along n
constexpr int WM = BM / 2;
constexpr int WN = BN / 4;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = BN * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(WM % 16 == 0 && WN % 16 == 0, "a warp loads four 8 x 8 matrices of either operand at a time");

// Chunk of 16 bytes number `chunk` of a row of a box.
__device__ __forceinline__ const TW_T* chunk_at(const unsigned char* box, int row, int chunk) {
    return reinterpret_cast<const TW_T*>(box + row * 128 + (chunk ^ row % 8) * 16);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int lane = threadIdx.x % 32;
    const int warpgroup = warpgroup_of_block();
    const Place place = place_of<GROUP>(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN);
    const int first_row = place.row * BM;
    const int first_column = place.column * BN;
    const int k_tiles = (K + BK - 1) / BK;

    if (threadIdx.x == 0) stages.template begin<WARPS>();
    __syncthreads();
    wait_for_previous_grid();
    let_next_grid_come();

    if (warpgroup == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            Turn<STAGES> turn;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                unsigned char* tile = tiles + turn.stage * STAGE_BYTES;
                Arrivals* full = &stages.full[turn.stage];
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);  // nobody reads a fresh stage: this passes at once
                expect_bytes(full, STAGE_BYTES);
                copy_box_here(tile, &a_map, t * BK, first_row, full);
                #pragma unroll
                for (int n = 0; n < BN; n += 64)
                    copy_box_here(tile + A_BYTES + n * 128, &b_map, first_column + n, t * BK, full);
                turn.next();
            }
        }
    } else {
        more_registers<232>();
        const int warp = threadIdx.x / 32 - 4;
        const int warp_row = warp % 2 * WM;
        const int warp_column = warp / 2 * WN;
        float sums[WM / 16][WN / 8][4] = {};
        Turn<STAGES> turn;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages.full[turn.stage], turn.phase);
            const unsigned char* tile = tiles + turn.stage * STAGE_BYTES;
            #pragma unroll
            for (int k = 0; k < BK; k += 16) {
                unsigned of_a[WM / 16][4];
                unsigned of_b[WN / 16][4];
                #pragma unroll
                for (int i = 0; i < WM / 16; ++i)
                    load_matrices(of_a[i], chunk_at(tile, warp_row + i * 16 + lane % 16, k / 8 + lane / 16));
                #pragma unroll
                for (int j = 0; j < WN / 16; ++j) {
                    const int column = warp_column + j * 16;
                    const unsigned char* box = tile + A_BYTES + column / 64 * BK * 128;
                    load_turned_matrices(of_b[j], chunk_at(box, k + lane % 16, column % 64 / 8 + lane / 16));
                }
                if (k == BK - 16) {  // all that the warp reads of the stage is in registers
                    __syncwarp();
                    if (lane == 0) arrive(&stages.empty[turn.stage]);
                }
                #pragma unroll
                for (int i = 0; i < WM / 16; ++i) {
                    #pragma unroll
                    for (int j = 0; j < WN / 8; ++j)
                        multiply_add(sums[i][j], of_a[i], of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1]);
                }
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
}
