// $title
// X and Y are R x C, row-major. $grid_words
//
// WORKERS threads share a row and read it in rounds of LOADS vectors each: so many loads are under way together. What
// they gather is merged by shuffles, and between warps through shared memory, always in the same order.
// $reread
// C must be a multiple of VEC, and the pointers as well aligned. VEC = 1 fits everything.

$includes

constexpr int THREADS = $threads;
constexpr int ROWS = $rows;      // rows that a block makes
constexpr int LOADS = $loads;     // vectors that a thread has under way
constexpr int SPLIT = $split;     // blocks that share a row
constexpr int VEC = $vec;       // elements of a vector

using T = $element;
using Out = $output;

constexpr int WORKERS = THREADS / ROWS;  // threads of a row
constexpr int WARPS = THREADS / 32;
constexpr int ROUND = WORKERS * LOADS * VEC;
static_assert(ROWS == 1 || WORKERS == 32, "a row is one block's or one warp's");
static_assert(WARPS * 32 == THREADS && WARPS <= 32, "whole warps");

struct alignas(VEC * sizeof(T)) Vector {
    T items[VEC];
};

$state

// What one lane of each pair holds, merged with the other's: afterwards all lanes hold the same.
__device__ __forceinline__ State merged_in_warp(State state)
{
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        state = merge(state, shuffled(state, distance));
    }
    return state;
}

__device__ __forceinline__ State merged_in_row(State state)
{
    state = merged_in_warp(state);
    if constexpr (ROWS == 1 && WARPS > 1) {
        __shared__ State states[WARPS];
        const int lane = threadIdx.x % 32;
        if (lane == 0) {
            states[threadIdx.x / 32] = state;
        }
        __syncthreads();
        state = merged_in_warp(lane < WARPS ? states[lane] : nothing());
    }
    return state;
}

// One round of a row: columns from `column` on, in steps of all workers' vectors; behind `end` nothing is read.
__device__ __forceinline__ void load(Vector (&values)[LOADS], const T* row, long long column, long long end)
{
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const long long at = column + (long long)i * WORKERS * VEC;
        if (at < end) {
            values[i] = *reinterpret_cast<const Vector*>(row + at);
        }
    }
}

__device__ __forceinline__ void gather(State& state, const Vector (&values)[LOADS], long long column, long long end)
{
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        if (column + (long long)i * WORKERS * VEC < end) {
            float items[VEC];
            #pragma unroll
            for (int j = 0; j < VEC; ++j) {
                items[j] = static_cast<float>(values[i].items[j]);
            }
            add(state, items);
        }
    }
}

// The state of columns begin .. end - 1 of a row; `first` keeps the first round.
__device__ __forceinline__ State state_of(Vector (&first)[LOADS], const T* row, long long begin, long long end)
{
    State state = nothing();
    const long long column = begin + threadIdx.x % WORKERS * VEC;
    load(first, row, column, end);
    gather(state, first, column, end);
    #pragma unroll 1
    for (long long at = column + ROUND; at < end; at += ROUND) {
        Vector values[LOADS];
        load(values, row, at, end);
        gather(state, values, at, end);
    }
    return merged_in_row(state);
}

__device__ __forceinline__ long long begin_of(int part, long long C)
{
    const long long share = (C + SPLIT * VEC - 1) / (SPLIT * VEC) * VEC;
    return min(part * share, C);
}
$write
$kernels
