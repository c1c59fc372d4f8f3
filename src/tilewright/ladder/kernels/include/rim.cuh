// What is beyond the whole tiles of a product: its last rows, and the last columns of the others. Eight warps make a
// piece of it, and share its k; operands go from memory to registers in accesses of 16 bytes. Which k an instruction's
// operands are of is nobody's matter as long as it is the same of both: a lane takes eight neighbours of k.
#pragma once

#include "mma.cuh"
#include "wgmma.cuh"
#include "words.cuh"

constexpr int RIM_WARPS = 8;
constexpr int RIM_BYTES = RIM_WARPS * 128 * 16;  // four rows or columns of 16 x 8 sums a warp
constexpr int RIM_K = 32;                        // of a warp's step

// What a lane multiplies in one step of a warp.
struct RimStep {
    Words many[8];    // eight neighbours each: columns of eight rows of b, or k of eight rows of a
    unsigned few[8];  // of the other operand: k two by two, or one by one

    // Of eight rows by 64 columns: b's columns are the instruction's rows.
    __device__ __forceinline__ void multiply_rows(float (&sums)[4][4]) const {
        #pragma unroll
        for (int half = 0; half < 2; ++half)
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const Words* four = &many[half * 4];
                unsigned operand[4];
                #pragma unroll
                for (int j = 0; j < 4; ++j)
                    operand[j] = __byte_perm(four[j / 2 * 2].at[i], four[j / 2 * 2 + 1].at[i], j % 2 ? 0x7632 : 0x5410);
                multiply_add(sums[i], operand, few[half * 2], few[half * 2 + 1]);
            }
    }

    // Of 64 rows by eight columns: a's rows are the instruction's.
    __device__ __forceinline__ void multiply_columns(float (&sums)[4][4]) const {
        #pragma unroll
        for (int half = 0; half < 2; ++half)
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const Words* two = &many[i * 2];
                const unsigned operand[4] = {two[0].at[half * 2], two[1].at[half * 2], two[0].at[half * 2 + 1],
                                             two[1].at[half * 2 + 1]};
                multiply_add(sums[i], operand, few[half * 4] | few[half * 4 + 1] << 16,
                             few[half * 4 + 2] | few[half * 4 + 3] << 16);
            }
    }
};

struct Rim {
    const TW_T* a;
    const TW_T* b;
    TW_T* c;
    int M, N, K, ld_a, ld_b;
    int rows, columns;  // that tiles have, or more than there are
    int across;         // pieces of one group of eight rows: 64 columns each
    int down;           // of one group of eight columns: 64 rows each
    int flat, tall;     // pieces of the last rows, and of the last columns

    __device__ __forceinline__ Rim(const TW_T* a, const TW_T* b, TW_T* c, int M, int N, int K, int ld_a, int ld_b,
                                   int rows, int columns)
        : a(a), b(b), c(c), M(M), N(N), K(K), ld_a(ld_a), ld_b(ld_b), rows(rows), columns(columns) {
        if (!rows || !columns) this->rows = this->columns = 0;  // no tiles: all is rim
        across = (N + 63) / 64;
        flat = (max(M - this->rows, 0) + 7) / 8 * across;
        down = (min(this->rows, M) + 63) / 64;
        tall = down * ((max(N - this->columns, 0) + 7) / 8);
    }
    __device__ __forceinline__ int pieces() const { return flat + tall; }

    // All warps come here. thread: of RIM_WARPS * 32. left: RIM_BYTES of shared memory.
    __device__ __forceinline__ void multiply(int piece, float4* left, int thread) const {
        if (piece >= flat + tall) return;
        const int warp = thread / 32;
        const int lane = thread % 32;
        float sums[4][4] = {};
        if (piece < flat) {
            const int row = rows + piece / across * 8;
            const int column = piece % across * 64;
            RimStep even, odd;  // one is multiplied while the other is on its way
            load_rows(even, row, column, warp * RIM_K, lane);
            #pragma unroll 1
            for (int k = warp * RIM_K; k < K; k += 2 * RIM_WARPS * RIM_K) {
                load_rows(odd, row, column, k + RIM_WARPS * RIM_K, lane);
                even.multiply_rows(sums);
                load_rows(even, row, column, k + 2 * RIM_WARPS * RIM_K, lane);
                odd.multiply_rows(sums);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float* low = &sums[i % 2 * 2][i / 2];
                const float* high = &sums[i % 2 * 2 + 1][i / 2];
                left[warp * 128 + i * 32 + lane] = make_float4(low[0], low[2], high[0], high[2]);
            }
        } else {
            const int row = (piece - flat) % down * 64;
            const int column = columns + (piece - flat) / down * 8;
            RimStep even, odd;
            load_columns(even, row, column, warp * RIM_K, lane);
            #pragma unroll 1
            for (int k = warp * RIM_K; k < K; k += 2 * RIM_WARPS * RIM_K) {
                load_columns(odd, row, column, k + RIM_WARPS * RIM_K, lane);
                even.multiply_columns(sums);
                load_columns(even, row, column, k + 2 * RIM_WARPS * RIM_K, lane);
                odd.multiply_columns(sums);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                left[warp * 128 + i * 32 + lane] = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
        }
        sync_warpgroups<RIM_WARPS / 4>(1 + RIM_WARPS / 4);
        if (thread < 128) add_up(piece, left, thread);
        sync_warpgroups<RIM_WARPS / 4>(1 + RIM_WARPS / 4);  // the next piece's sums come to the same place
    }

    __device__ __forceinline__ void load_rows(RimStep& step, int row, int column, int k, int lane) const {
        k += lane % 4 * 8;
        row += lane / 4;
        column += lane / 4 * 8;
        step = RimStep{};
        if (k >= K) return;
        if (column < N) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) step.many[j] = load_words_once(b + (long long)(k + j) * ld_b + column);
        }
        if (row < M) {
            const Words four = load_words(a + (long long)row * ld_a + k);
            #pragma unroll
            for (int j = 0; j < 4; ++j) step.few[j] = four.at[j];
        }
    }

    __device__ __forceinline__ void load_columns(RimStep& step, int row, int column, int k, int lane) const {
        k += lane % 4 * 8;
        row += lane / 4;
        step = RimStep{};
        if (k >= K) return;
        #pragma unroll
        for (int j = 0; j < 8; ++j)
            if (row + j * 8 < M) step.many[j] = load_words_once(a + (long long)(row + j * 8) * ld_a + k);
        const TW_T* from = b + (long long)k * ld_b + column + lane / 4;
        #pragma unroll
        for (int j = 0; j < 8; ++j) step.few[j] = *reinterpret_cast<const unsigned short*>(from + (long long)j * ld_b);
    }

    // Four sums of a thread, in the order of the warps: the same bits every time.
    __device__ __forceinline__ void add_up(int piece, const float4* left, int thread) const {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        #pragma unroll
        for (int w = 0; w < RIM_WARPS; ++w) {
            const float4 more = left[w * 128 + thread];
            sum.x += more.x;
            sum.y += more.y;
            sum.z += more.z;
            sum.w += more.w;
        }
        const int whose = thread % 32;
        const int i = thread / 32;
        if (piece < flat) {
            const int row = rows + piece / across * 8 + whose % 4 * 2 + i / 2;
            const int column = piece % across * 64 + whose / 4 * 8 + i % 2 * 4;
            store_inside(c, row, column, M, N, sum.x, sum.y);
            store_inside(c, row, column + 2, M, N, sum.z, sum.w);
        } else {
            const int row = (piece - flat) % down * 64 + i * 16 + whose / 4;
            const int column = columns + (piece - flat) / down * 8 + whose % 4 * 2;
            store_inside(c, row, column, M, N, sum.x, sum.y);
            store_inside(c, row + 8, column, M, N, sum.z, sum.w);
        }
    }
};
