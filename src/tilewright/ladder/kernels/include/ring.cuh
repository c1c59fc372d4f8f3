// Rows that stream through shared memory: a block stays, and takes row after row; while it computes one, bulk copies
// bring the next. The blocks of a cluster share a row, each with its part. sm_90.
#pragma once

#include "cluster.cuh"
#include "row.cuh"
#include "tma.cuh"

// The parts of a block's rows: MEMBERS of them a stage, which arrive together.
template <int DEPTH, int MEMBERS, int LENGTH>
struct Ring {
    TW_T* parts;         // [DEPTH][MEMBERS][LENGTH], at a multiple of 16 bytes
    Arrivals* arrivals;  // [DEPTH]
    const TW_T* x;       // the block's columns
    long long ld_x;
    int columns;  // of the block's part that a row has; 0 beyond its end
    int R;

    // By one thread, before any other waits.
    __device__ __forceinline__ void begin(long long group, int groups) const {
        for (int stage = 0; stage < DEPTH; ++stage) init_arrivals(&arrivals[stage]);
        for (int stage = 0; stage < DEPTH; ++stage) fill(stage, group + (long long)stage * groups);
    }

    // By one thread, once all have read what the stage held.
    __device__ __forceinline__ void fill(int stage, long long group) const {
        const long long row = group * MEMBERS;
        if (row >= R) return;
        const int rows = min((long long)MEMBERS, R - row), bytes = columns * TW_T_BYTES;
        expect_bytes(&arrivals[stage], rows * bytes);
        for (int member = 0; member < rows && bytes > 0; ++member)
            copy_bytes(parts + (stage * MEMBERS + member) * LENGTH, x + (row + member) * ld_x, bytes, &arrivals[stage]);
    }

    // Behind the row's end, and in rows that the last group lacks: `blank`.
    template <int SHARERS, int OWNED>
    __device__ __forceinline__ void read(Words (&words)[OWNED], int stage, long long group, int member, int worker,
                                         float blank) const {
        const int there = MEMBERS == 1 || group * MEMBERS + member < R ? columns : 0;
        #pragma unroll
        for (int i = 0; i < OWNED; ++i) {
            const int column = column_of<SHARERS>(i, worker);
            words[i] = repeated(blank);
            if (column < there) words[i] = load_words(parts + (stage * MEMBERS + member) * LENGTH + column);
        }
    }
};

// What every warp of a cluster found in its share of a row, for all of them to read. Two boards take turns: whoever
// posts on one has read the other, which all had filled before.
template <int BLOCKS, int SHARES, int FIGURES>
struct Boards {
    float at[2][BLOCKS * SHARES][FIGURES];
    Arrivals arrivals[2];
};

// By all threads, before the first post: the others' shared memory is theirs only once they run.
template <int BLOCKS, int SHARES, int FIGURES>
__device__ __forceinline__ void open(Boards<BLOCKS, SHARES, FIGURES>& boards) {
    if constexpr (BLOCKS == 1) {
        __syncthreads();
    } else {
        if (threadIdx.x < 2) init_arrivals(&boards.arrivals[threadIdx.x]);
        cluster_arrive();
        cluster_wait();
    }
}

// By all threads of all the cluster's blocks, the count-th time: all lanes bring the warp's figures, and go on when
// those of all warps are on the board.
template <int BLOCKS, int SHARES, int FIGURES>
__device__ __forceinline__ void post(Boards<BLOCKS, SHARES, FIGURES>& boards, int count,
                                     const float (&figures)[FIGURES]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, board = count % 2;
    if constexpr (BLOCKS == 1) {
        if (lane == 0)
            #pragma unroll
            for (int f = 0; f < FIGURES; ++f) boards.at[board][warp][f] = figures[f];
        if constexpr (SHARES == 1) __syncwarp();
        else __syncthreads();
    } else {
        float* place = boards.at[board][cluster_rank() * SHARES + warp];
        __syncwarp();  // few lanes send for all: what the others read is read by then. No instruction but a NOP
        if (lane < BLOCKS)
            #pragma unroll
            for (int f = 0; f < FIGURES; ++f) send_to_block(&place[f], &boards.arrivals[board], lane, figures[f]);
        if (threadIdx.x == 0) expect_bytes(&boards.arrivals[board], BLOCKS * SHARES * FIGURES * 4);
        wait_for(&boards.arrivals[board], count / 2 % 2);
    }
}
