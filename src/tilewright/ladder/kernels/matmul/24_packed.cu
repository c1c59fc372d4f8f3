// Operands that no tensor map has: odd pitches, odd bases, strides in both dimensions. What copies element by element leaves
// the tensor cores waiting, so a first kernel writes both operands anew with pitches of whole 16 bytes, along k or across it
// as they lie; from words that it shifts by half a word where rows begin there. Then a ring multiplies. What is copied is
// little beside the product, and mostly still in L2 when it is read.
#define TW_ANYWHERE 1
#include "batches.cuh"
#include "dependent.cuh"
#include "stages.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

#ifndef TW_BN  // for the emulator; a card gets those of ladder.toml
#define TW_BN 64
#define TW_STAGES 2
#endif
#ifndef TW_PACKS
#define TW_PACKS 2
#endif
#ifndef TW_A_ALONG_M
#define TW_A_ALONG_M 0  // rows of a_rows are along m, not along k
#define TW_B_ALONG_K 0  // along k, not along n
#define TW_BIAS 0
#define TW_C 0
#define TW_ACTIVATION 0
#endif
#include "epilogue.cuh"
#include "packed_halves.cuh"

constexpr int CONSUMERS = 2;  // warpgroups
constexpr int BM = CONSUMERS * 64;
constexpr int BN = TW_BN;
constexpr int BK = 64;
constexpr int WIDE = 64;  // elements of a box's rows, 128 bytes: the width of the swizzle
constexpr int STAGES = TW_STAGES;
constexpr int GROUP = 8;
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int BOX_BYTES = 64 * 128;
constexpr int A_BOX_ROWS = TW_A_ALONG_M ? BK : BM;
constexpr int A_BOXES = TW_A_ALONG_M ? BM / WIDE : 1;
constexpr int B_BOX_ROWS = TW_B_ALONG_K ? BN : BK;
constexpr int B_BOXES = TW_B_ALONG_K ? 1 : BN / WIDE;
constexpr int A_BYTES = BM * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + BN * BK * 2;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
constexpr int PACKERS = 256;     // threads of a block of the first kernel
constexpr int PACKS = TW_PACKS;  // of 16 bytes, a thread

// A matrix, or several, as rows that are to be packed: `ld` from one to the next, `step` inside.
struct Rows {
    const TW_T* from;
    long long batch;
    long long ld;
    long long step;
    unsigned rows;
    int columns;

    __device__ __forceinline__ unsigned packs() const { return (columns + 7) / 8; }  // of a row
    // To the next row of what is written, in packs: long rows begin at lines of L2, of 128 bytes, which are read whole.
    __device__ __forceinline__ unsigned pitch() const { return columns >= 512 ? (columns + 63) / 64 * 8 : packs(); }
    __device__ __forceinline__ unsigned place(unsigned at) const { return at / packs() * pitch() + at % packs(); }
    __device__ __forceinline__ uint4 pack(unsigned at) const {
        const unsigned row = at / packs();
        const unsigned matrix = row / rows;
        return eight_of(from + matrix * batch + (row - matrix * rows) * ld, step, at % packs() * 8, columns);
    }
};

extern "C" __global__ void __launch_bounds__(PACKERS)
pack(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ a_rows, TW_T* __restrict__ b_rows, int B,
     int M, int N, int K, long long batch_a, long long ld_a, long long step_a, long long batch_b, long long ld_b,
     long long step_b) {
    Rows of_a = {a, batch_a, ld_a, step_a, (unsigned)M, K};
    if (TW_A_ALONG_M) of_a = {a, batch_a, step_a, ld_a, (unsigned)K, M};
    Rows of_b = {b, batch_b, ld_b, step_b, (unsigned)K, N};
    if (TW_B_ALONG_K) of_b = {b, batch_b, step_b, ld_b, (unsigned)N, K};
    const unsigned all_a = (batch_a > 0 ? B : 1) * of_a.rows * of_a.packs();  // one matrix may stand for all of a batch
    const unsigned all = all_a + (batch_b > 0 ? B : 1) * of_b.rows * of_b.packs();
    wait_for_previous_grid();
    let_next_grid_come();
    uint4 packs[PACKS];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const unsigned at = (blockIdx.x * PACKS + i) * PACKERS + threadIdx.x;
        if (at < all_a)
            packs[i] = of_a.pack(at);
        else if (at < all)
            packs[i] = of_b.pack(at - all_a);
    }
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const unsigned at = (blockIdx.x * PACKS + i) * PACKERS + threadIdx.x;
        if (at < all_a)
            reinterpret_cast<uint4*>(a_rows)[of_a.place(at)] = packs[i];
        else if (at < all)
            reinterpret_cast<uint4*>(b_rows)[of_b.place(at - all_a)] = packs[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
matmul(const TW_T* __restrict__ a_rows, const TW_T* __restrict__ b_rows, const TW_T* __restrict__ bias,
       const TW_T* __restrict__ c, TW_T* __restrict__ y, int B, int M, int N, int K, long long batch_a,
       long long batch_b, long long batch_c, long long ld_c, long long step_c, float alpha, float beta,
       const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    extern __shared__ unsigned char shared[];
    __shared__ Stages<STAGES> stages;
    unsigned char* tiles = aligned_for_swizzle(shared);
    const int warpgroup = warpgroup_of_block();
    const int rows = (M + BM - 1) / BM;
    const int columns = (N + BN - 1) / BN;
    const int batch = blockIdx.x / (rows * columns);
    const Place place = place_of<GROUP>(blockIdx.x - batch * rows * columns, rows, columns);
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
            const int a_batch = batch_a > 0 ? batch : 0;
            const int b_batch = batch_b > 0 ? batch : 0;
            Turn<STAGES> turn;
            #pragma unroll 1
            for (int t = 0; t < k_tiles; ++t) {
                unsigned char* to = tiles + turn.stage * STAGE_BYTES;
                Arrivals* full = &stages.full[turn.stage];
                const int k = t * BK;
                wait_for(&stages.empty[turn.stage], turn.phase ^ 1);  // nobody reads a fresh stage: this passes at once
                expect_bytes(full, STAGE_BYTES);
                #pragma unroll
                for (int i = 0; i < A_BOXES; ++i) {
                    const int row = first_row + i * WIDE;
                    copy_box(to + i * BOX_BYTES, &a_map, TW_A_ALONG_M ? row : k, TW_A_ALONG_M ? k : row, a_batch, full);
                }
                #pragma unroll
                for (int i = 0; i < B_BOXES; ++i) {
                    const int column = first_column + i * WIDE;
                    copy_box(to + A_BYTES + i * BOX_BYTES, &b_map, TW_B_ALONG_K ? k : column, TW_B_ALONG_K ? column : k,
                             b_batch, full);
                }
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
            const unsigned from = shared_address(tiles + turn.stage * STAGE_BYTES);
            const unsigned long long of_a = tile_descriptor(from + part * BOX_BYTES, 0);
            const unsigned long long of_b = tile_descriptor(from + A_BYTES, TW_B_ALONG_K ? 0 : BOX_BYTES);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 16)  // 16 of k: as many elements of a row, or as many rows
                wgmma<!TW_B_ALONG_K, TW_A_ALONG_M>(sums, moved(of_a, TW_A_ALONG_M ? k * 128 : k * 2),
                                                   moved(of_b, TW_B_ALONG_K ? k * 2 : k * 128), t > 0 || k > 0);
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

        const int row = first_row + part * 64 + sum_row(threadIdx.x, 0);
        const Added added = {c + batch * batch_c, ld_c, step_c};
        y += (long long)batch * M * N;
        #pragma unroll
        for (int i = 0; i < BN / 8; ++i) {
            const int column = first_column + i * 8 + sum_column(threadIdx.x, 0);
            const unsigned biases = TW_BIAS ? two_of<false>(bias + column, 1, N - column) : 0;
            float two[2];
            finish_two(two, &sums[i * 4], alpha, beta, added.at(row, column, M, N), biases);
            store_inside(y, row, column, M, N, two[0], two[1]);
            finish_two(two, &sums[i * 4 + 2], alpha, beta, added.at(row + 8, column, M, N), biases);
            store_inside(y, row + 8, column, M, N, two[0], two[1]);
        }
    }
}
