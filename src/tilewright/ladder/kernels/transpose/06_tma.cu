// One thread asks for the whole tile of x: the copy engine computes the addresses, fills zeros beyond the edges and tells
// an mbarrier when all bytes have arrived. No thread holds elements on their way, and no load waits for another's address.
// The squares are then read from shared memory: eight lanes of 16 bytes are one row of the tile, without conflicts.
#include "dependent.cuh"
#include "packs.cuh"
#include "tma.cuh"

#ifndef COLUMNS
#define COLUMNS 8  // packs of a tile along x's rows: 128 bytes, four sectors
#define ROWS 16    // squares of a tile down x's columns: y is written in runs of 256 bytes
#define ALONG 1    // 1: blocks follow each other along x's rows; 0: down its columns, which is along y's rows
#endif
constexpr int PACK = TW_PACK;
constexpr int THREADS = COLUMNS * ROWS;

// The pack that begins at from[0], of which `count` elements exist; packs that may be read whole are.
__device__ __forceinline__ Pack load_some(const TW_T* from, int count, bool may_be_whole) {
    Pack pack = {};
    if (may_be_whole && count >= PACK) {
        pack = load_pack(from);
    } else {
#pragma unroll
        for (int k = 0; k < PACK; ++k) {
            if (k < count) pack.at[k] = from[k];
        }
    }
    return pack;
}

__device__ __forceinline__ void store_some(TW_T* to, const Pack& pack, int count, bool may_be_whole) {
    if (may_be_whole && count >= PACK) {
        store_pack(to, pack);
    } else {
#pragma unroll
        for (int k = 0; k < PACK; ++k) {
            if (k < count) to[k] = pack.at[k];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
transpose(const TW_T* __restrict__ x, TW_T* __restrict__ y, int M, int N, int ld_x,
          const __grid_constant__ TensorMap x_map, int has_map) {
    wait_for_previous_grid();
    __shared__ alignas(128) Pack box[ROWS * PACK][COLUMNS];  // rows of x, as they come
    __shared__ Arrivals arrivals;
    __shared__ Pack tile[COLUMNS * PACK][ROWS];  // rows of y, each of ROWS packs
    int first_column = (ALONG ? blockIdx.x : blockIdx.y) * COLUMNS * PACK;
    int first_row = (ALONG ? blockIdx.y : blockIdx.x) * ROWS * PACK;
    bool y_has_packs = is_pack_aligned(y) && M % PACK == 0;
    int square_column = threadIdx.x % COLUMNS;
    int square_row = threadIdx.x / COLUMNS;

    if (has_map) {
        if (threadIdx.x == 0) {
            init_arrivals(&arrivals);
            expect_bytes(&arrivals, sizeof(box));
            copy_box(box, &x_map, first_column, first_row, &arrivals);
        }
        __syncthreads();  // nobody waits on an mbarrier that is not there yet
        wait_for(&arrivals, 0);
    } else {  // rows that no map can describe: their pitch is no multiple of 16 bytes
        int column = first_column + square_column * PACK;
        for (int r = square_row; r < ROWS * PACK; r += ROWS) {
            int count = first_row + r < M ? N - column : 0;
            box[r][square_column] = load_some(x + (long long)(first_row + r) * ld_x + column, count, false);
        }
        __syncthreads();
    }

    Pack read[PACK];
#pragma unroll
    for (int i = 0; i < PACK; ++i) read[i] = box[square_row * PACK + i][square_column];
#pragma unroll
    for (int j = 0; j < PACK; ++j) {
        Pack turned;
#pragma unroll
        for (int i = 0; i < PACK; ++i) turned.at[i] = read[i].at[j];
        // Eight lanes write to eight rows: the exclusive or with the square's column sends them to eight bank groups.
        tile[square_column * PACK + j][square_row ^ square_column] = turned;
    }
    __syncthreads();

    int out_pack = threadIdx.x % ROWS;
#pragma unroll
    for (int r = threadIdx.x / ROWS; r < COLUMNS * PACK; r += THREADS / ROWS) {
        int out_row = first_column + r;
        int out_column = first_row + out_pack * PACK;
        if (out_row >= N) break;
        store_some(y + (long long)out_row * M + out_column, tile[r][out_pack ^ (r / PACK)], M - out_column, y_has_packs);
    }
}
