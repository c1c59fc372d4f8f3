// Rows that stream through shared memory, each warp with its own chunk of them: it asks for its next one as soon as it
// has done with the last, and waits for no other warp's. What the warps of a row have to tell each other is sent a row
// ahead, and so on its way while the row before is written. sm_90.
#pragma once

#include "cluster.cuh"
#include "row.cuh"
#include "tma.cuh"

// A warp's chunks of its cluster's next rows, OWNED packs a lane. EXACT: every row fills every chunk.
template <int DEPTH, int OWNED, bool EXACT = false>
struct Chunks {
    static constexpr int LENGTH = 32 * OWNED * TW_PACK;
    TW_T* at;            // [DEPTH][LENGTH], at a multiple of 16 bytes
    Arrivals* arrivals;  // [DEPTH]
    const TW_T* x;       // the warp's columns
    long long ld_x;
    int columns;  // of the chunk that a row has, in whole packs; 0 beyond its end
    int R;

    // By one lane, before any waits.
    __device__ __forceinline__ void begin(long long row, long long step) const {
        for (int stage = 0; stage < DEPTH; ++stage) init_arrivals(&arrivals[stage]);
        for (int stage = 0; stage < DEPTH; ++stage) fill(stage, row + stage * step);
    }

    // By one lane, once the others have read what the stage held.
    __device__ __forceinline__ void fill(int stage, long long row) const {
        if (row >= R) return;
        expect_bytes(&arrivals[stage], columns * TW_T_BYTES);
        if (columns > 0) copy_bytes(at + stage * LENGTH, x + row * ld_x, columns * TW_T_BYTES, &arrivals[stage]);
    }

    __device__ __forceinline__ bool has(int i) const {
        return EXACT || column_of<32>(i, threadIdx.x % 32) < columns;
    }
    // Behind the row's end: `blank`.
    __device__ __forceinline__ Words read(int stage, int i, float blank) const {
        return has(i) ? load_words(at + stage * LENGTH + column_of<32>(i, threadIdx.x % 32)) : repeated(blank);
    }
};

// What the warps of a cluster tell each other of a row, SHARES of them in each of BLOCKS. Four rows' boards take turns:
// while one warp still reads a row's, another may be two rows on, and have told of a third.
template <int BLOCKS, int SHARES, int FIGURES>
struct RowBoards {
    static constexpr int PARTS = BLOCKS * SHARES;
    float at[4][PARTS][FIGURES];  // parts in the order of their columns
    Arrivals arrivals[4];

    // By all threads, before the first is told: the others' shared memory is theirs only once they run.
    __device__ __forceinline__ void open() {
        if (threadIdx.x < 4) init_arrivals(&arrivals[threadIdx.x]);
        cluster_arrive();
        cluster_wait();
    }

    // By all warps, of the count-th row; all lanes bring the warp's figures.
    __device__ __forceinline__ void tell(int count, const float (&figures)[FIGURES]) {
        const int lane = threadIdx.x % 32, board = count % 4;
        if (threadIdx.x == 0) expect_bytes(&arrivals[board], PARTS * FIGURES * 4);
        if (lane >= BLOCKS) return;
        float* place = at[board][cluster_rank() * SHARES + threadIdx.x / 32];
        #pragma unroll
        for (int f = 0; f < FIGURES; ++f) send_to_block(&place[f], &arrivals[board], lane, figures[f]);
    }

    // Until all have told of the count-th row. A lane's parts are lane, lane + 32, …
    __device__ __forceinline__ const float (&heard(int count))[PARTS][FIGURES] {
        wait_for(&arrivals[count % 4], count / 4 % 2);
        return at[count % 4];
    }
};
