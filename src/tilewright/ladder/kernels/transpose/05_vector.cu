// Every access is of 16 bytes, in global and in shared memory. A thread reads a square of PACK x PACK elements, a pack
// from each of its rows, and turns it in registers, where that costs no memory access; shared memory is left to exchange
// whole packs between threads. The swizzle of the last rung now permutes packs: eight lanes write or read 128 bytes.
#include "dependent.cuh"
#include "packs.cuh"

constexpr int PACK = TW_PACK;
constexpr int COLUMNS = 8;   // packs of a tile along x's rows: 128 bytes, four sectors
constexpr int ROWS = 16;     // squares of a tile down x's columns: y is written in runs of 256 bytes
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
transpose(const TW_T* __restrict__ x, TW_T* __restrict__ y, int M, int N, int ld_x) {
    wait_for_previous_grid();
    __shared__ Pack tile[COLUMNS * PACK][ROWS];  // rows of y, each of ROWS packs
    int first_column = blockIdx.x * COLUMNS * PACK;
    int first_row = blockIdx.y * ROWS * PACK;
    bool x_has_packs = is_pack_aligned(x) && ld_x % PACK == 0;
    bool y_has_packs = is_pack_aligned(y) && M % PACK == 0;

    int square_column = threadIdx.x % COLUMNS;
    int square_row = threadIdx.x / COLUMNS;
    int column = first_column + square_column * PACK;
    int row = first_row + square_row * PACK;
    Pack read[PACK];
#pragma unroll
    for (int i = 0; i < PACK; ++i) {
        int count = row + i < M ? N - column : 0;
        read[i] = load_some(x + (long long)(row + i) * ld_x + column, count, x_has_packs);
    }
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
