// A tile of a product of bytes: one thread asks for its operands by tensor map, two warpgroups multiply what has arrived.
#pragma once

#include "stages.cuh"
#include "wgmma_s8.cuh"

template <int COLUMNS, int COUNT>
struct ByteRing {
    static constexpr int CONSUMERS = 2;  // warpgroups
    static constexpr int ROWS = CONSUMERS * 64;
    static constexpr int BK = 128;  // bytes: the width of the swizzle, and so of a box
    static constexpr int A_BYTES = ROWS * BK;
    static constexpr int STAGE_BYTES = A_BYTES + COLUMNS * BK;

    unsigned char* tiles;  // aligned for the swizzle
    Stages<COUNT>* stages;
    Turn<COUNT> turn;

    __device__ __forceinline__ void ask(const TensorMap* a_map, const TensorMap* b_map, int first_row, int first_column,
                                        int k_tiles) {
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            unsigned char* tile = tiles + turn.stage * STAGE_BYTES;
            Arrivals* full = &stages->full[turn.stage];
            wait_for(&stages->empty[turn.stage], turn.phase ^ 1);  // nobody reads a fresh stage: this passes at once
            expect_bytes(full, STAGE_BYTES);
            copy_box(tile, a_map, t * BK, first_row, full);
            copy_box(tile + A_BYTES, b_map, t * BK, first_column, full);
            turn.next();
        }
    }

    // Rows part * 64 and behind of the tile; there is one tile of k at least.
    __device__ __forceinline__ void multiply(int (&sums)[COLUMNS / 2], int part, int k_tiles) {
        int before = 0;
        #pragma unroll 1
        for (int t = 0; t < k_tiles; ++t) {
            wait_for(&stages->full[turn.stage], turn.phase);
            const unsigned tile = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(tile + part * 64 * BK, 0);
            const unsigned long long of_b = tile_descriptor(tile + A_BYTES, 0);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 32) wgmma_s8(sums, moved(of_a, k), moved(of_b, k), t > 0 || k > 0);
            wgmma_commit();
            if (t > 0) {
                wgmma_wait<1>();  // a group of products is all four warps': one thread tells that their reads are over
                if (threadIdx.x % 128 == 0) arrive(&stages->empty[before]);
            }
            before = turn.stage;
            turn.next();
        }
        wgmma_wait<0>();
        hold(sums);
        if (threadIdx.x % 128 == 0) arrive(&stages->empty[before]);
    }
};
