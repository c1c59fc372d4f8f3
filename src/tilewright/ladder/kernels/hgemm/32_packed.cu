// Rows that begin anywhere: tensor maps take pitches of whole 16 bytes only, and what copies element by element leaves the
// tensor cores waiting. A first kernel writes both operands anew with such pitches, 16 bytes a thread, from words that it
// shifts by half a word where rows begin there; then the ring of 22_specialised multiplies. What is copied is little
// beside the product, and mostly still in L2 when it is read.
#define TW_ANYWHERE 1
#include "dependent.cuh"
#include "packed_halves.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BN 64
#define TW_STAGES 2
#endif
#ifndef TW_ALIGN
#define TW_ALIGN 16
#define TW_PACKS 2
#endif
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int BM = CONSUMERS * 64;
constexpr int BN = TW_BN;
constexpr int BK = 64;  // 128 bytes: the width of the swizzle, and so of a box
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 16;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int A_BYTES = BM * BK * 2;
constexpr int B_BYTES = BN * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
constexpr int PACKERS = 256;         // threads of a block of the first kernel
constexpr int PACKS = TW_PACKS;      // of 16 bytes, a thread
constexpr int ALIGN = TW_ALIGN / 2;  // elements: packed rows begin at multiples of so many, 64 of them are a line of L2

extern "C" __global__ void __launch_bounds__(PACKERS)
pack(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ a_rows, TW_T* __restrict__ b_rows, int M,
     int N, int K, int ld_a, int ld_b) {
    const unsigned of_a = (K + 7) / 8;  // packs of a row
    const unsigned of_b = (N + 7) / 8;
    const unsigned all_a = M * of_a;
    const unsigned all = all_a + K * of_b;
    const unsigned pitch_a = (K + ALIGN - 1) / ALIGN * (ALIGN / 8);  // of what is written, in packs
    const unsigned pitch_b = (N + ALIGN - 1) / ALIGN * (ALIGN / 8);
    wait_for_previous_grid();
    let_next_grid_come();
    uint4 packs[PACKS];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const unsigned at = (blockIdx.x * PACKS + i) * PACKERS + threadIdx.x;
        if (at < all_a)
            packs[i] = eight_of(a + (long long)(at / of_a) * ld_a, 1, at % of_a * 8, K);
        else if (at < all)
            packs[i] = eight_of(b + (long long)((at - all_a) / of_b) * ld_b, 1, (at - all_a) % of_b * 8, N);
    }
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const unsigned at = (blockIdx.x * PACKS + i) * PACKERS + threadIdx.x;
        if (at < all_a)
            reinterpret_cast<uint4*>(a_rows)[at / of_a * pitch_a + at % of_a] = packs[i];
        else if (at < all)
            reinterpret_cast<uint4*>(b_rows)[(at - all_a) / of_b * pitch_b + (at - all_a) % of_b] = packs[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
hgemm(const TW_T* __restrict__ a_rows, const TW_T* __restrict__ b_rows, TW_T* __restrict__ c, int M, int N, int K,
      const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const Place place = place_of<GROUP>(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN);
    const int first_row = place.row * BM;
    const int first_column = place.column * BN;
    const int k_tiles = (K + BK - 1) / BK;

    if (threadIdx.x == 0) stages.template begin<CONSUMERS>();
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
                copy_box(tile, &a_map, t * BK, first_row, full);
                #pragma unroll
                for (int n = 0; n < BN; n += 64)
                    copy_box(tile + A_BYTES + n * 128, &b_map, first_column + n, t * BK, full);
                turn.next();
            }
        }
    } else {
        more_registers<232>();
        const int part = warpgroup - 1;  // of the tile's rows
        float sums[BN / 2];
        Turn<STAGES> turn;
        int before = 0;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages.full[turn.stage], turn.phase);
            const unsigned tile = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(tile + part * 64 * 128, 0);
            const unsigned long long of_b = tile_descriptor(tile + A_BYTES, BK * 128);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 16) wgmma<true>(sums, moved(of_a, k * 2), moved(of_b, k * 128), t > 0 || k > 0);
            wgmma_commit();
            if (t > 0) {
                wgmma_wait<1>();  // a group of products is all four warps': one thread tells that their reads are over
                if (threadIdx.x % 128 == 0) arrive(&stages.empty[before]);
            }
            before = turn.stage;
            turn.next();
        }
        wgmma_wait<0>();
        hold(sums);

        #pragma unroll
        for (int i = 0; i < BN / 2; i += 2) {
            const int row = first_row + part * 64 + sum_row(threadIdx.x, i);
            store_inside(c, row, first_column + sum_column(threadIdx.x, i), M, N, sums[i], sums[i + 1]);
        }
    }
}
