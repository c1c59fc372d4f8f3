// One barrier a row, for few rows, where nothing hides a wait: every warp finds the mean of its own share and the
// squares around it by shuffles, posts both, and merges what all posted by Chan's formula. Weights and biases are asked
// for along with both rows.
//
// Rows that lie in no packs of 16 bytes are held in the same way, by accesses of fewer elements. A row of up to
// WORKERS * PIECES * WIDTH elements fits.
#include "block.cuh"
#include "dependent.cuh"
#include "share.cuh"

#ifndef WORKERS
#define WORKERS 128              // threads of a row: whole warps
#define PIECES 4                 // accesses of a thread
#define WIDTH (16 / TW_T_BYTES)  // elements of an access, where the arrays allow it
#define HELD 1                   // 0: where they do not, no register is kept for them
#define LOOSE 0                  // threads of a row, of many that lie in no packs; 0: of all others
#define MOST 128                 // threads of a row, unless more than an eighth of them would idle
#endif
#ifndef LATE
#define LATE 0  // 1: weights and biases are asked for behind the barrier: fewer registers, and more blocks an SM
#endif
#ifndef BLOCKS
#define BLOCKS 1  // of an SM, at least; 0 leaves it to the compiler, which keeps registers for more
#endif
constexpr int WARPS = WORKERS / 32, SLOTS = power_of_two_from(WARPS);
static_assert(WORKERS % 32 == 0, "whole warps");

// Elements of the row that a warp has.
template <int ACROSS, int OWNED>
__device__ __forceinline__ int elements_of(int warp, int C) {
    int count = 0;
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        count += min(max(C - (i * WORKERS + warp * 32) * ACROSS, 0), 32 * ACROSS);
    return count;
}

template <int ACROSS, int OWNED>
__device__ __forceinline__ void make_row(const TW_T* x, const TW_T* residual, const TW_T* weight, const TW_T* bias,
                                         TW_T* total, TW_T* y, int C, float epsilon) {
    __shared__ float4 states[WARPS];  // of each warp: elements, their sum, their mean, the squares around it
    const int first = threadIdx.x * ACROSS, left = C - first;  // column; columns from there on
    TW_T *sums_to = found_once(total + first), *to = found_once(y + first);
    Bits<ACROSS> share[OWNED], others[OWNED], weights[OWNED], biases[OWNED];
    if constexpr (!LATE) {
        load_share_in_order<WORKERS>(weights, weight + first, left);
        load_share_in_order<WORKERS>(biases, bias + first, left);
    }
    load_share_in_order<WORKERS>(others, residual + first, left);
    load_share_in_order<WORKERS>(share, x + first, left);
    const float rate = found_first(1.0f / C);  // while the loads are under way
    const float elements = elements_of<ACROSS, OWNED>(threadIdx.x / 32, C);
    const float own_rate = __fdividef(1.0f, fmaxf(elements, 1.0f));  // the squares are corrected for what it lacks

    float values[OWNED][ACROSS], sum = 0.0f, squares = 0.0f;
    add_shares<WORKERS>(values, share, others, sums_to, left);
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) sum += values[i][j];
    sum = warp_sum(sum);
    const float own_mean = sum * own_rate;
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        const bool is_there = i * WORKERS * ACROSS < left;
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
            const float left = is_there ? values[i][j] - own_mean : 0.0f;
            squares += left * left;
        }
    }
    squares = warp_sum(squares);
    const float4 state = met(states, make_float4(elements, sum, own_mean, squares));
    const float mean = group_sum<SLOTS>(state.y) * rate;
    const float apart = state.z - mean;
    const float square = group_sum<SLOTS>(state.w + (state.x > 0.0f ? apart * apart * state.x : 0.0f));
    const float scale = rsqrtf(square * rate + epsilon);

    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        if constexpr (LATE) {
            const int column = i * WORKERS * ACROSS;
            weights[i] = biases[i] = {};
            if (column < left) {
                weights[i] = load_bits<ACROSS>(weight + first + column);
                biases[i] = load_bits<ACROSS>(bias + first + column);
            }
        }
        float factors[ACROSS], shifts[ACROSS];
        unpack(factors, weights[i]);
        unpack(shifts, biases[i]);
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) values[i][j] = (values[i][j] - mean) * scale * factors[j] + shifts[j];
        store_piece<WORKERS>(to, values[i], i, left);
    }
}

// Arrays that begin where such an access may not: what is read again comes from the caches. What this path would hold,
// many rows would pay for on the other one, where it is not needed, with threads that find no register.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, const TW_T* residual, const TW_T* weight,
                                                     const TW_T* bias, TW_T* total, TW_T* y, int C, float epsilon) {
    __shared__ float sums[WARPS], squares[WARPS];
    float sum = 0.0f, square = 0.0f;
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) {
        from_float(total[column], to_float(x[column]) + to_float(residual[column]));
        sum += to_float(total[column]);
    }
    const float mean = block_sum(sum, sums) / C;
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) {
        const float left = to_float(total[column]) - mean;
        square += left * left;
    }
    const float scale = rsqrtf(block_sum(square, squares) / C + epsilon);
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) {
        const float value = (to_float(total[column]) - mean) * scale;
        from_float(y[column], value * to_float(weight[column]) + to_float(bias[column]));
    }
}

extern "C" __global__ void __launch_bounds__(WORKERS, BLOCKS)
add_layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ residual, const TW_T* __restrict__ weight,
              const TW_T* __restrict__ bias, TW_T* __restrict__ total, TW_T* __restrict__ y, int R, int C,
              long long ld_x, float epsilon) {
    wait_for_previous_grid();
    x += blockIdx.x * ld_x;
    residual += (long long)blockIdx.x * C;
    total += (long long)blockIdx.x * C;
    y += (long long)blockIdx.x * C;
    const bool is_wide = C % WIDTH == 0 && is_aligned_for<WIDTH>(x) && is_aligned_for<WIDTH>(weight) &&
                         is_aligned_for<WIDTH>(bias) && is_aligned_for<WIDTH>(y) &&
                         is_aligned_for<WIDTH>(residual) && is_aligned_for<WIDTH>(total);
    if (WIDTH == 1 || is_wide) make_row<WIDTH, PIECES>(x, residual, weight, bias, total, y, C, epsilon);
    else if constexpr (HELD) make_row<1, PIECES * WIDTH>(x, residual, weight, bias, total, y, C, epsilon);
    else make_row_by_elements(x, residual, weight, bias, total, y, C, epsilon);
    if (C > WORKERS * PIECES * WIDTH) __trap();  // told behind the work: few rows wait for every instruction
}
