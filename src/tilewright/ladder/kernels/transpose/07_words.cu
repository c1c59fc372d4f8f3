// Rows that are not aligned: where a pitch is no multiple of 16 bytes, no tensor map and no pack takes a row, and element
// by element a warp moves 64 bytes of 16-bit elements at a time. Here every access to memory is of a word of 4 bytes, and
// a warp's 32 words are next to one another. A row of 16-bit elements begins with a word or in the middle of one. The
// tile holds x's words as they come: which half an element is, is the same for all even rows, and for all odd ones. A row
// of y that begins in the middle of a word takes the element before: the tile reads a row more for it.
//
// Blocks follow each other down x, which is along a row of y: where two share a sector that they write, it is still in
// L2 for the second. With ALONG they follow each other along x: for a matrix whose rows are a few tiles.
//
// A warp's rows, and its columns, are all even or all odd: what depends on that is computed once, the rest is offsets.
#include "dependent.cuh"
#include "elements.cuh"

#ifndef THREADS
#define THREADS 512
#endif
#ifndef DOWN
#define DOWN 64
#endif
#ifndef ALONG
#define ALONG 0
#endif
constexpr int WORD = 4 / TW_T_BYTES;             // elements of a word
constexpr int ROWS = DOWN;                       // of x, that a tile writes: 128 bytes of a row of y, or more
constexpr int COLUMNS = 32 * WORD - (WORD - 1);  // 32 words hold so many, wherever in a word they begin
constexpr int READ = ROWS + WORD - 1;            // rows that it reads: the first one belongs to the tile before
constexpr int PITCH = 33;                        // words: down a column no bank comes twice
constexpr int WARPS = THREADS / 32;              // even
constexpr int LOADS = (READ + WARPS - 1) / WARPS;
constexpr int TURNS = 32 * WORD / WARPS;
constexpr int STORES = ROWS / (32 * WORD);       // words of a thread in a row of y

// Where row r of the tile lies: even ones together, for a word of y takes its first element from a row that is even in
// all lanes, or odd in all of them.
__device__ __forceinline__ int slot(int r) { return WORD == 1 ? r : r % 2 * (ROWS / 2 + 1) + r / 2; }

// 1 where an element is the second half of its word.
__device__ __forceinline__ int half_of(const TW_T* element) {
    return WORD == 1 ? 0 : static_cast<int>(reinterpret_cast<unsigned long long>(element) >> 1 & 1);
}

// Whether a warp reads a k-th row, or turns a k-th column. What all warps do, the compiler need not ask.
__device__ __forceinline__ bool reads(int warp, int k) { return (k + 1) * WARPS <= READ || warp + k * WARPS < READ; }
__device__ __forceinline__ bool turns(int warp, int k) {
    return (k + 1) * WARPS <= COLUMNS || warp + k * WARPS < COLUMNS;
}

extern "C" __global__ void __launch_bounds__(THREADS)
transpose(const TW_T* __restrict__ x, TW_T* __restrict__ y, int M, int N, int ld_x) {
    wait_for_previous_grid();
    __shared__ unsigned tile[READ * PITCH];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_column = (ALONG ? blockIdx.x : blockIdx.y) * COLUMNS;
    const int first_row = (ALONG ? blockIdx.y : blockIdx.x) * ROWS;

    const int row = first_row - (WORD - 1) + warp;
    const TW_T* from = x + (long long)row * ld_x + first_column;
    const int at = lane * WORD - half_of(from), column = first_column + at;
    from += at;
    const long long pitch = (long long)WARPS * ld_x;
    unsigned words[LOADS];
    if (column >= 0 && column + WORD <= N) {
#pragma unroll
        for (int k = 0; k < LOADS; ++k, from += pitch) {
            if (reads(warp, k) && static_cast<unsigned>(row + k * WARPS) < M)
                words[k] = *reinterpret_cast<const unsigned*>(from);
        }
    } else if (WORD == 2) {  // a word of which one element or none is in the row
        const int half = column < 0;
        if (column + half >= 0 && column + half < N) {
            const auto* element = reinterpret_cast<const unsigned short*>(from + half);
#pragma unroll
            for (int k = 0; k < LOADS; ++k, element += pitch) {
                if (reads(warp, k) && static_cast<unsigned>(row + k * WARPS) < M) words[k] = *element;
            }
#pragma unroll
            for (int k = 0; k < LOADS; ++k) words[k] <<= 16 * half;
        }
    }
    unsigned* put = tile + slot(warp) * PITCH + lane;
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        if (reads(warp, k)) put[k * WARPS / WORD * PITCH] = words[k];
    }
    __syncthreads();

    TW_T* to = y + (long long)(first_column + warp) * M + first_row;
    const int before = half_of(to);  // as many elements of the row before the even one begin its words
    const int r = lane * WORD + (WORD - 1) - before;
    unsigned turned[TURNS][STORES];
    if constexpr (WORD == 1) {
#pragma unroll
        for (int k = 0; k < TURNS; ++k) {
#pragma unroll
            for (int s = 0; s < STORES; ++s) turned[k][s] = tile[(r + s * 32) * PITCH + warp + k * WARPS];
        }
    } else {
        const int even = half_of(x + first_column), odd = even ^ (ld_x & 1);  // where rows of x begin; first_row is even
        const int a = warp + (before ? odd : even), b = warp + (before ? even : odd);
        const unsigned *first = tile + slot(r) * PITCH + a / 2, *second = tile + slot(r + 1) * PITCH + b / 2;
        const unsigned halves = (a % 2 ? 0x32 : 0x10) | (b % 2 ? 0x7600 : 0x5400);
#pragma unroll
        for (int k = 0; k < TURNS; ++k) {
            const int at = k * WARPS / WORD;
            if (!turns(warp, k)) continue;
#pragma unroll
            for (int s = 0; s < STORES; ++s) {
                const int down = at + s * 32 * PITCH;
                turned[k][s] = __byte_perm(first[down], second[down], halves);
            }
        }
    }

    const int columns = min(COLUMNS, N - first_column) - warp;
    const int i = first_row + lane * WORD - before;
    const long long step = (long long)WARPS * M;
    to += lane * WORD - before;
#pragma unroll
    for (int s = 0; s < STORES; ++s) {
        if (i + s * 32 * WORD >= 0 && i + s * 32 * WORD + WORD <= M) {
            TW_T* word = to + s * 32 * WORD;
#pragma unroll
            for (int k = 0; k < TURNS; ++k, word += step) {
                if (k * WARPS < columns) *reinterpret_cast<unsigned*>(word) = turned[k][s];
            }
        } else if (WORD == 2) {
            const int half = i + s * 32 * WORD < 0, beyond = s * 32 * WORD + half;
            if (i + beyond >= 0 && i + beyond < M) {
                auto* element = reinterpret_cast<unsigned short*>(to + beyond);
#pragma unroll
                for (int k = 0; k < TURNS; ++k, element += step) {
                    if (k * WARPS < columns) *element = static_cast<unsigned short>(turned[k][s] >> 16 * half);
                }
            }
        }
    }
}
