// Matrices of bytes written anew as tensor maps and wgmma take them: rows along k, at pitches of whole 16 bytes. Rows that
// begin anywhere are read as words, which a funnel shift moves by bytes. Where neighbours in memory are not those along k,
// tiles are turned: four words of four neighbours by PRMT in registers, the rest by way of shared memory, in words at
// places that no two of a warp share a bank of. What lies behind a row's end is written as it comes, or not at all: no map
// looks there. Rows begin at multiples of ALIGN bytes.
#pragma once

constexpr int PACKERS = 256;      // threads of a block
constexpr int TURNED_ROWS = 124;  // of a tile: 31 words wherever in the first of 32 words they begin
constexpr int TURNED_K = 128;
constexpr int TILE_WORDS = (TURNED_ROWS + 4) * TURNED_K / 4;
static_assert(PACKERS == 256 && TURNED_K == 128, "eight warps: what pack_turned() reads of shared memory relies on it");

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
    template <int ALIGN>
    __device__ __forceinline__ unsigned places() const {  // for those, to where the next row begins
        return (K + ALIGN - 1) / ALIGN * (ALIGN / 16);
    }
    __device__ __forceinline__ unsigned tiles_of_rows() const { return (rows + TURNED_ROWS - 1) / TURNED_ROWS; }
    // Blocks that write it, PACKS of 16 bytes a thread where k's neighbours are those in memory.
    template <int PACKS>
    __device__ __forceinline__ unsigned blocks() const {
        if (step == 1) return (rows * packs() + PACKERS * PACKS - 1) / (PACKERS * PACKS);
        return tiles_of_rows() * ((K + TURNED_K - 1) / TURNED_K);
    }
};

__device__ __forceinline__ unsigned bytes_past_a_word(const void* address) {
    return static_cast<unsigned>(reinterpret_cast<unsigned long long>(address) & 3);
}

// Aligned words of a matrix, by their offset in bytes from the one that has its first byte: that one and the last one may
// have bytes that are not the matrix'. All between are its own, or lie between its rows.
struct AlignedWords {
    const signed char* first;
    unsigned before;           // bytes of the first word that come before the matrix
    unsigned long long bytes;  // from the first word to the matrix' end
    unsigned long long last;   // offset

    __device__ __forceinline__ explicit AlignedWords(const ByteMatrix& of) : before(bytes_past_a_word(of.begin)) {
        first = of.begin - before;
        bytes = of.end() - first;
        last = (bytes - 1) & ~3ull;
    }
    __device__ __forceinline__ bool has_between(unsigned long long word) const { return word > 0 && word < last; }
    __device__ __forceinline__ bool has_at_end(unsigned long long word) const { return word == 0 || word == last; }
    __device__ __forceinline__ unsigned read(unsigned long long word) const {
        return __ldg(reinterpret_cast<const unsigned*>(first + word));
    }
    // Zeros for what is not the matrix'.
    __device__ __forceinline__ unsigned read_some(unsigned long long word) const {
        unsigned some = 0;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (word + i >= before && word + i < bytes) some |= (unsigned)(unsigned char)__ldg(first + word + i) << 8 * i;
        }
        return some;
    }
};

// 16 bytes a thread and turn, all turns under way together.
template <int PACKS, int ALIGN>
__device__ __forceinline__ void pack_rows(const ByteMatrix& from, uint4* to, unsigned block) {
    const AlignedWords there(from);
    const unsigned packs = from.packs();
    const unsigned all = from.rows * packs;
    unsigned words[PACKS][5];
    unsigned shifts[PACKS];
    unsigned places[PACKS];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const unsigned at = (block * PACKS + i) * PACKERS + threadIdx.x;
        const unsigned row = at / packs, pack = at % packs;
        places[i] = row * from.places<ALIGN>() + pack;
        const unsigned long long byte = row * from.pitch + pack * 16 + there.before;
        const unsigned long long word = byte & ~3ull;
        shifts[i] = (byte & 3) * 8;
        if (at >= all) continue;
        if (word > 0 && word + 16 < there.last) {
            #pragma unroll
            for (int w = 0; w < 5; ++w) words[i][w] = there.read(word + w * 4);
        } else {
            #pragma unroll
            for (int w = 0; w < 5; ++w) words[i][w] = there.read_some(word + w * 4);
        }
    }
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const unsigned at = (block * PACKS + i) * PACKERS + threadIdx.x;
        uint4 pack;
        pack.x = __funnelshift_r(words[i][0], words[i][1], shifts[i]);
        pack.y = __funnelshift_r(words[i][1], words[i][2], shifts[i]);
        pack.z = __funnelshift_r(words[i][2], words[i][3], shifts[i]);
        pack.w = __funnelshift_r(words[i][3], words[i][4], shifts[i]);
        if (at < all) to[places[i]] = pack;
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

// Of a tile that is turned: a warp has every eighth four of its k.
constexpr int QUADS = TURNED_K / 4 / 8;

// A lane's four neighbouring rows, where rows are neighbours in memory: a word for each k. A warp reads words as they lie,
// and shifts them by the bytes that the first row is behind a word's beginning: the last lane's are its neighbour's only.
__device__ __forceinline__ void load_neighbours(unsigned (&words)[QUADS][4], const ByteMatrix& from, int first_row,
                                                int first_k) {
    const AlignedWords there(from);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned long long start = there.before + first_row;
    bool is_at_end = false;
    #pragma unroll
    for (int i = 0; i < QUADS * 4; ++i) {
        const int k = first_k + (i / 4 * 8 + warp) * 4 + i % 4;
        const unsigned long long word = (start + k * from.step & ~3ull) + lane * 4;
        words[i / 4][i % 4] = 0;
        if (k < from.K && there.has_between(word)) words[i / 4][i % 4] = there.read(word);
        is_at_end |= k < from.K && there.has_at_end(word);
    }
    if (is_at_end) {
        const unsigned first = there.read_some(0), last = there.read_some(there.last);
        #pragma unroll
        for (int i = 0; i < QUADS * 4; ++i) {
            const int k = first_k + (i / 4 * 8 + warp) * 4 + i % 4;
            const unsigned long long word = (start + k * from.step & ~3ull) + lane * 4;
            if (k < from.K && there.has_at_end(word)) words[i / 4][i % 4] = word == 0 ? first : last;
        }
    }
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < QUADS * 4; ++i) {
        const int k = first_k + (i / 4 * 8 + warp) * 4 + i % 4;
        const unsigned next = __shfl_down_sync(0xffffffff, words[i / 4][i % 4], 1);
        const unsigned shift = (static_cast<unsigned>(start) + k * static_cast<unsigned>(from.step)) % 4 * 8;
        words[i / 4][i % 4] = __funnelshift_r(words[i / 4][i % 4], next, shift);
    }
}

// The same at four k, of a matrix that has neither rows nor elements of k for neighbours: byte by byte.
__device__ __forceinline__ void load_strided(unsigned (&words)[4], const ByteMatrix& from, int first_row, int k) {
    const int row = first_row + threadIdx.x % 32 * 4;
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        words[j] = 0;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (k + j < from.K && row + i < from.rows)
                words[j] |= (unsigned)(unsigned char)__ldg(from.at(row + i, k + j)) << 8 * i;
        }
    }
}

// A row of the tile is eight chunks of four words. Eight lanes' rows take other chunks, four times eight other words.
__device__ __forceinline__ void put_turned(unsigned* tile, unsigned (&words)[4], int quad) {
    const int lane = threadIdx.x % 32;
    const int place = (quad / 4 ^ lane % 8) * 4 + (quad % 4 ^ lane / 8);
    turn_bytes(words);
    #pragma unroll
    for (int i = 0; i < 4; ++i) tile[(lane * 4 + i) * 32 + place] = words[i];
}

template <int ALIGN>
__device__ __forceinline__ void pack_turned(const ByteMatrix& from, uint4* to, unsigned block, unsigned* tile) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_row = block % from.tiles_of_rows() * TURNED_ROWS;
    const int first_k = block / from.tiles_of_rows() * TURNED_K;
    if (from.pitch == 1) {
        unsigned words[QUADS][4];
        load_neighbours(words, from, first_row, first_k);
        #pragma unroll
        for (int q = 0; q < QUADS; ++q) put_turned(tile, words[q], q * 8 + warp);
    } else {
        #pragma unroll 1
        for (int quad = warp; quad < TURNED_K / 4; quad += 8) {
            unsigned words[4];
            load_strided(words, from, first_row, first_k + quad * 4);
            put_turned(tile, words, quad);
        }
    }
    __syncthreads();

    #pragma unroll
    for (int turn = 0; turn < 4; ++turn) {  // 32 rows: those of the same eight lanes, so their words' places are known
        const int row = turn * 32 + warp * 4 + lane / 8;
        const uint4 read = *reinterpret_cast<const uint4*>(tile + row * 32 + (lane % 8 ^ warp) * 4);
        const unsigned lay[4] = {read.x, read.y, read.z, read.w};
        const unsigned pack = first_k / 16 + lane % 8;
        if (row < TURNED_ROWS && first_row + row < from.rows && pack < from.packs())
            to[(first_row + row) * from.places<ALIGN>() + pack] =
                make_uint4(lay[turn], lay[1 ^ turn], lay[2 ^ turn], lay[3 ^ turn]);
    }
}

// Both operands, by one grid: blocks of a come first.
template <int PACKS, int ALIGN>
__device__ __forceinline__ void pack_operands(const ByteMatrix& a, const ByteMatrix& b, uint4* a_rows, uint4* b_rows) {
    __shared__ __align__(16) unsigned tile[TILE_WORDS];
    const unsigned of_a = a.template blocks<PACKS>();
    const bool is_a = blockIdx.x < of_a;
    const ByteMatrix from = is_a ? a : b;
    uint4* to = is_a ? a_rows : b_rows;
    const unsigned block = is_a ? blockIdx.x : blockIdx.x - of_a;
    if (from.step == 1) pack_rows<PACKS, ALIGN>(from, to, block);
    else pack_turned<ALIGN>(from, to, block, tile);
}
