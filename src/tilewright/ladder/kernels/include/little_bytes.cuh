// Little products of bytes whose rows begin anywhere, or lie across k: what they take is the time of a few accesses, one
// behind the other, so there is one launch, and all that a warp takes of 64 k it asks for at once. The warps of a block share
// k. No warp wants what another has read: 16 bytes of a row go as words to the registers of the lane that multiplies them, and
// a funnel shift moves them. Which of an instruction's k they are is nobody's matter, as long as it is the same of both.
#pragma once

#include "mma_s8.cuh"
#include "packed_bytes.cuh"

// A lane's 16 neighbours of k, of every eighth row.
template <int ROWS>
struct Sixteens {
    unsigned at[ROWS / 8][4];

    __device__ __forceinline__ void load(const ByteMatrix& from, int row, int k) {
        if (from.step == 1) load_words(from, row, k);
        else load_strided(from, row, k);
    }
    // Zeros for k that are not there. Of the other operand they may be anything.
    __device__ __forceinline__ void cut(int left) {
        #pragma unroll
        for (int w = 0; w < 4; ++w) {
            const int bytes = left - w * 4;
            if (bytes >= 4) continue;
            #pragma unroll
            for (int i = 0; i < ROWS / 8; ++i) at[i][w] &= bytes > 0 ? (1u << 8 * bytes) - 1 : 0u;
        }
    }

    // Sums of rows beyond the last are not stored: what is read for those is what lies there, as far as the matrix goes.
    __device__ __forceinline__ void load_words(const ByteMatrix& from, int row, int k) {
        const AlignedWords there(from);
        unsigned words[ROWS / 8][5];
        unsigned shifts[ROWS / 8];
        int lasts[ROWS / 8];  // where the matrix' last word is, in bytes from the first of those five
        bool has_first[ROWS / 8];
        bool is_at_end = false;
        #pragma unroll
        for (int i = 0; i < ROWS / 8; ++i) {
            const unsigned long long byte = (row + i * 8) * from.pitch + k + there.before;
            const unsigned long long word = byte & ~3ull;
            shifts[i] = (byte & 3) * 8;
            lasts[i] = word > there.last ? -4 : static_cast<int>(min(there.last - word, 20ull));
            has_first[i] = word == 0;
            is_at_end |= has_first[i] || lasts[i] < 20;
            #pragma unroll
            for (int w = 0; w < 5; ++w) {
                words[i][w] = 0;
                if (w * 4 < lasts[i] && !(w == 0 && has_first[i])) words[i][w] = there.read(word + w * 4);
            }
        }
        if (is_at_end) {
            const unsigned first = there.read_some(0), last = there.read_some(there.last);
            #pragma unroll
            for (int i = 0; i < ROWS / 8; ++i) {
                #pragma unroll
                for (int w = 0; w < 5; ++w)
                    if (w * 4 == lasts[i]) words[i][w] = last;
                if (has_first[i]) words[i][0] = first;
            }
        }
        #pragma unroll
        for (int i = 0; i < ROWS / 8; ++i) {
            #pragma unroll
            for (int w = 0; w < 4; ++w) at[i][w] = __funnelshift_r(words[i][w], words[i][w + 1], shifts[i]);
        }
    }

    __device__ __forceinline__ void load_strided(const ByteMatrix& from, int row, int k) {
        #pragma unroll
        for (int i = 0; i < ROWS / 8; ++i) {
            const signed char* of_row = from.at(min(row + i * 8, from.rows - 1), k);
            #pragma unroll
            for (int w = 0; w < 4; ++w) {
                at[i][w] = 0;
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (k + w * 4 + j < from.K) at[i][w] |= (unsigned)(unsigned char)__ldg(of_row) << 8 * j;
                    of_row += from.step;
                }
            }
        }
    }
};

template <int BM, int BN, int WARPS>
struct LittleProduct {
    static constexpr int TILES = BM / 16 * (BN / 8);  // an instruction's
    static constexpr int BK = 64;                     // of a warp at once
    static_assert(WARPS * TILES * 512 <= 48 * 1024, "static shared memory");
    int sums[BM / 16][BN / 8][4];

    __device__ __forceinline__ void multiply(const ByteMatrix& a, const ByteMatrix& b, int first_row, int first_column) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        #pragma unroll
        for (int i = 0; i < BM / 16 * (BN / 8) * 4; ++i) sums[i / (BN / 8 * 4)][i / 4 % (BN / 8)][i % 4] = 0;
        #pragma unroll 1
        for (int first_k = warp * BK; first_k < a.K; first_k += WARPS * BK) {
            const int k = first_k + lane % 4 * 16;
            Sixteens<BM> rows;
            Sixteens<BN> columns;
            rows.load(a, first_row + lane / 4, k);
            columns.load(b, first_column + lane / 4, k);
            rows.cut(a.K - k);
            #pragma unroll
            for (int half = 0; half < 4; half += 2) {
                #pragma unroll
                for (int i = 0; i < BM / 16; ++i) {
                    const unsigned part[4] = {rows.at[i * 2][half], rows.at[i * 2 + 1][half], rows.at[i * 2][half + 1],
                                              rows.at[i * 2 + 1][half + 1]};
                    #pragma unroll
                    for (int j = 0; j < BN / 8; ++j)
                        multiply_add(sums[i][j], part, columns.at[j][half], columns.at[j][half + 1]);
                }
            }
        }
    }

    // Adds up what the warps have. Calls use(row, column, four): the sums at (row, column), the next column, and eight rows on.
    template <typename Use>
    __device__ __forceinline__ void meet(int first_row, int first_column, Use use) {
        __shared__ int4 left[WARPS][TILES][32];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        #pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            const int(&mine)[4] = sums[tile / (BN / 8)][tile % (BN / 8)];
            left[warp][tile][lane] = make_int4(mine[0], mine[1], mine[2], mine[3]);
        }
        __syncthreads();
        #pragma unroll 1
        for (int tile = warp; tile < TILES; tile += WARPS) {
            unsigned sum[4] = {};  // beyond the range of int they wrap around
            #pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                const int4 more = left[w][tile][lane];
                sum[0] += more.x;
                sum[1] += more.y;
                sum[2] += more.z;
                sum[3] += more.w;
            }
            const int four[4] = {(int)sum[0], (int)sum[1], (int)sum[2], (int)sum[3]};
            use(first_row + tile / (BN / 8) * 16 + lane / 4, first_column + tile % (BN / 8) * 8 + lane % 4 * 2, four);
        }
    }
};
