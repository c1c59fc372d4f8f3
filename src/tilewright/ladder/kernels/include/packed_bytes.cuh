// Matrices of bytes written anew as tensor maps and wgmma take them: rows along k, at pitches of whole 16 bytes. Rows that
// begin anywhere are read as words, which a funnel shift moves by bytes. Where neighbours in memory are not those along k,
// tiles are turned: four words of four neighbours by PRMT in registers, the rest by way of shared memory, in words at
// places that no two of a warp share a bank of. What lies behind a row's end is written as it comes: no map looks there.
#pragma once

constexpr int PACKERS = 256;  // threads of a block
constexpr int PACKS = 4;      // of 16 bytes, a thread
constexpr int TURNED_ROWS = 124;  // of a tile: 31 words wherever in the first of 32 words they begin
constexpr int TURNED_K = 128;
constexpr int TILE_WORDS = (TURNED_ROWS + 4) * TURNED_K / 4;
static_assert(PACKERS == 256 && TURNED_K == 128, "eight warps: what turn() reads of shared memory relies on it");

// rows x K bytes: element (row, k) is begin[row * pitch + k * step].
struct ByteMatrix {
    const signed char* begin;
    int rows;
    int K;
    long long pitch;
    long long step;

    __device__ __forceinline__ const signed char* at(long long row, long long k) const {
        return begin + row * pitch + k * step;
    }
    __device__ __forceinline__ const signed char* end() const { return at(rows - 1, K - 1) + 1; }
    __device__ __forceinline__ unsigned packs() const { return (K + 15) / 16; }  // of a row
    __device__ __forceinline__ unsigned tiles_of_rows() const { return (rows + TURNED_ROWS - 1) / TURNED_ROWS; }
    // Blocks that write it.
    __device__ __forceinline__ unsigned blocks() const {
        if (step == 1) return (rows * packs() + PACKERS * PACKS - 1) / (PACKERS * PACKS);
        return tiles_of_rows() * ((K + TURNED_K - 1) / TURNED_K);
    }
};

__device__ __forceinline__ unsigned bytes_past_a_word(const void* address) {
    return static_cast<unsigned>(reinterpret_cast<unsigned long long>(address) & 3);
}

// Four bytes of which some are in the matrix; zeros for the others.
__device__ __forceinline__ unsigned word_between(const signed char* from, const signed char* begin, const signed char* end) {
    unsigned word = 0;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (from + i >= begin && from + i < end) word |= (unsigned)(unsigned char)__ldg(from + i) << 8 * i;
    }
    return word;
}

// 16 bytes a thread and turn, PACKS turns under way together.
__device__ __forceinline__ void pack_rows(const ByteMatrix& from, uint4* to, unsigned block) {
    const signed char* end = from.end();
    const unsigned packs = from.packs();
    const unsigned all = from.rows * packs;
    unsigned words[PACKS][5];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const unsigned at = (block * PACKS + i) * PACKERS + threadIdx.x;
        const signed char* first = from.at(at / packs, at % packs * 16);
        const signed char* whole = first - bytes_past_a_word(first);
        if (at >= all) continue;
        if (whole >= from.begin && whole + 20 <= end) {
            #pragma unroll
            for (int w = 0; w < 5; ++w) words[i][w] = __ldg(reinterpret_cast<const unsigned*>(whole) + w);
        } else {
            #pragma unroll
            for (int w = 0; w < 5; ++w) words[i][w] = word_between(whole + w * 4, from.begin, end);
        }
    }
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const unsigned at = (block * PACKS + i) * PACKERS + threadIdx.x;
        const unsigned shift = bytes_past_a_word(from.at(at / packs, at % packs * 16)) * 8;
        uint4 pack;
        pack.x = __funnelshift_r(words[i][0], words[i][1], shift);
        pack.y = __funnelshift_r(words[i][1], words[i][2], shift);
        pack.z = __funnelshift_r(words[i][2], words[i][3], shift);
        pack.w = __funnelshift_r(words[i][3], words[i][4], shift);
        if (at < all) to[at] = pack;
    }
}

// Of four words of four rows' bytes, one for each k: four words of four k's bytes, one for each row.
__device__ __forceinline__ void turn_bytes(unsigned (&words)[4]) {
    const unsigned low = __byte_perm(words[0], words[1], 0x5140), high = __byte_perm(words[0], words[1], 0x7362);
    const unsigned next_low = __byte_perm(words[2], words[3], 0x5140), next_high = __byte_perm(words[2], words[3], 0x7362);
    words[0] = __byte_perm(low, next_low, 0x5410);
    words[1] = __byte_perm(low, next_low, 0x7632);
    words[2] = __byte_perm(high, next_high, 0x5410);
    words[3] = __byte_perm(high, next_high, 0x7632);
}

// A lane's four neighbouring rows, at four k from `k` on: one word for each k.
__device__ __forceinline__ void load_neighbours(unsigned (&words)[4], const ByteMatrix& from, int first_row, int k) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        const signed char* first = from.at(first_row, k + j);
        const signed char* whole = first - bytes_past_a_word(first) + lane * 4;
        words[j] = 0;
        if (k + j < from.K && whole + 4 <= from.end()) {
            if (whole >= from.begin) words[j] = __ldg(reinterpret_cast<const unsigned*>(whole));
        }
    }
}

// What lies across an end of the matrix, which is one word of all at each: load_neighbours left it out.
__device__ __forceinline__ void load_across_ends(unsigned (&words)[4], const ByteMatrix& from, int first_row, int k) {
    const int lane = threadIdx.x % 32;
    const signed char* end = from.end();
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        const signed char* first = from.at(first_row, k + j);
        const signed char* whole = first - bytes_past_a_word(first) + lane * 4;
        const bool is_across = (whole < from.begin && whole + 4 > from.begin) || (whole < end && whole + 4 > end);
        if (k + j < from.K && is_across) words[j] = word_between(whole, from.begin, end);
    }
}

// All lanes take part: the last one's words are there for its neighbour.
__device__ __forceinline__ void shift_neighbours(unsigned (&words)[4], const ByteMatrix& from, int first_row, int k) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        const unsigned next = __shfl_down_sync(0xffffffff, words[j], 1);
        words[j] = __funnelshift_r(words[j], next, bytes_past_a_word(from.at(first_row, k + j)) * 8);
    }
}

// The same of any matrix, byte by byte.
__device__ __forceinline__ void load_strided(unsigned (&words)[4], const ByteMatrix& from, int first_row, int k) {
    const int row = first_row + threadIdx.x % 32 * 4;
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        words[j] = 0;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bool exists = k + j < from.K && row + i < from.rows;
            if (exists) words[j] |= (unsigned)(unsigned char)__ldg(from.at(row + i, k + j)) << 8 * i;
        }
    }
}

__device__ __forceinline__ void pack_turned(const ByteMatrix& from, uint4* to, unsigned block, unsigned* tile) {
    constexpr int QUADS = TURNED_K / 4 / 8;  // of k, a warp
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_row = block % from.tiles_of_rows() * TURNED_ROWS;
    const int first_k = block / from.tiles_of_rows() * TURNED_K;
    unsigned words[QUADS][4];
    if (from.pitch == 1) {
        #pragma unroll
        for (int q = 0; q < QUADS; ++q) load_neighbours(words[q], from, first_row, first_k + (q * 8 + warp) * 4);
        #pragma unroll
        for (int q = 0; q < QUADS; ++q) load_across_ends(words[q], from, first_row, first_k + (q * 8 + warp) * 4);
        #pragma unroll
        for (int q = 0; q < QUADS; ++q) shift_neighbours(words[q], from, first_row, first_k + (q * 8 + warp) * 4);
    } else {
        #pragma unroll
        for (int q = 0; q < QUADS; ++q) load_strided(words[q], from, first_row, first_k + (q * 8 + warp) * 4);
    }

    // A row of the tile is eight chunks of four words. Eight lanes' rows take other chunks, four times eight other words.
    #pragma unroll
    for (int q = 0; q < QUADS; ++q) {
        turn_bytes(words[q]);
        const int quad = q * 8 + warp;
        const int place = (quad / 4 ^ lane % 8) * 4 + (quad % 4 ^ lane / 8);
        #pragma unroll
        for (int i = 0; i < 4; ++i) tile[(lane * 4 + i) * 32 + place] = words[q][i];
    }
    __syncthreads();

    #pragma unroll
    for (int turn = 0; turn < 4; ++turn) {  // 32 rows: those of the same eight lanes, so their words' places are known
        const int row = turn * 32 + warp * 4 + lane / 8;
        const uint4 read = *reinterpret_cast<const uint4*>(tile + row * 32 + (lane % 8 ^ warp) * 4);
        const unsigned lay[4] = {read.x, read.y, read.z, read.w};
        const unsigned pack = first_k / 16 + lane % 8;
        if (row < TURNED_ROWS && first_row + row < from.rows && pack < from.packs())
            to[(first_row + row) * from.packs() + pack] = make_uint4(lay[turn], lay[1 ^ turn], lay[2 ^ turn], lay[3 ^ turn]);
    }
}

// Both operands, by one grid: blocks of a come first.
__device__ __forceinline__ void pack_operands(const ByteMatrix& a, const ByteMatrix& b, uint4* a_rows, uint4* b_rows) {
    __shared__ __align__(16) unsigned tile[TILE_WORDS];
    const unsigned of_a = a.blocks();
    const bool is_a = blockIdx.x < of_a;
    const ByteMatrix from = is_a ? a : b;
    uint4* to = is_a ? a_rows : b_rows;
    const unsigned block = is_a ? blockIdx.x : blockIdx.x - of_a;
    if (from.step == 1) pack_rows(from, to, block);
    else pack_turned(from, to, block, tile);
}
