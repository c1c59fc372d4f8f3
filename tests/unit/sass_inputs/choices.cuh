// Rings whose wait depends on a branch. STEPS is the body of the K-loop; `left` counts the tiles after this one.
#define CHOICE(name, stages, STEPS)                              \
    ORDER(name, stages, {                                        \
        _Pragma("unroll") for (int s = 0; s < stages - 1; ++s) { \
            if (s < N) tile.copy(s, s);                          \
            __pipeline_commit();                                 \
        }                                                        \
        for (int t = 0; t < N; ++t) {                            \
            const int left = N - 1 - t;                          \
            STEPS                                                \
            tile.compute(t % stages);                            \
            __syncthreads();                                     \
        }                                                        \
    })
#define NEXT(stages)                                                              \
    if (t + stages - 1 < N) {                                                     \
        tile.copy(t + stages - 1, (t + stages - 1) % stages);                     \
        __pipeline_commit();                                                      \
    }
#define WAIT(n) __pipeline_wait_prior(n)
// clang-format off
CHOICE(drain_by_number, 3, NEXT(3) if (left >= 2) WAIT(2); else if (left == 1) WAIT(1); else WAIT(0); __syncthreads();)
CHOICE(drain_first, 3, NEXT(3) if (t >= N - 2) WAIT(0); else WAIT(2); __syncthreads();)
CHOICE(drain_last_tile, 2, NEXT(2) if (t == N - 1) WAIT(0); else WAIT(1); __syncthreads();)
CHOICE(drain_extra, 3, WAIT(1); __syncthreads(); NEXT(3) if (t + 3 >= N) WAIT(0);)
CHOICE(first_trip, 3, NEXT(3) if (t == 0) WAIT(2); else WAIT(0); __syncthreads();)
CHOICE(first_trips, 3, NEXT(3) if (t < 2) WAIT(2); else WAIT(0); __syncthreads();)
CHOICE(last_trip, 3, NEXT(3) if (t != N - 1) WAIT(0); else WAIT(2); __syncthreads();)
CHOICE(by_flag, 3, NEXT(3) if (tile.M > 0) WAIT(0); else WAIT(2); __syncthreads();)
CHOICE(by_flag_twin, 3, NEXT(3) if (tile.M > 0) WAIT(2); else WAIT(0); __syncthreads();)
CHOICE(by_row, 3, NEXT(3) if (t == tile.M) WAIT(0); else WAIT(2); __syncthreads();)
CHOICE(half_way, 3, NEXT(3) if (t < N / 2) WAIT(0); else WAIT(2); __syncthreads();)
CHOICE(either_way, 4, NEXT(4) if (tile.M > 0) WAIT(1); else WAIT(2); __syncthreads();)
// clang-format on
// Half of the tile comes by asynchronous copies, the other half through registers, in time for nothing but its own tile:
// dequantised on the way, or through a pointer that ptxas does not know to be one to global memory.
#define HALF(name, LOAD, CHANGE)                                                                    \
    extern "C" __global__ __launch_bounds__(THREADS) void name(PARAMETERS, const int4* const* P) {  \
        __shared__ __align__(16) Buffers<2> shared;                                                 \
        __shared__ __align__(16) int4 extra[2][THREADS];                                            \
        Tile<2> tile(shared, ARGUMENTS);                                                            \
        const int4* from = LOAD;                                                                    \
        tile.copy(0, 0);                                                                            \
        __pipeline_commit();                                                                        \
        for (int t = 0; t < tile.count; ++t) {                                                      \
            int4 v = from[t * THREADS + threadIdx.x];                                               \
            CHANGE(v.x) CHANGE(v.y) CHANGE(v.z) CHANGE(v.w)                                         \
            extra[t & 1][threadIdx.x] = v;                                                          \
            __pipeline_wait_prior(0);                                                               \
            __syncthreads();                                                                        \
            if (t + 1 < tile.count) tile.copy(t + 1, (t + 1) & 1);                                  \
            __pipeline_commit();                                                                    \
            tile.compute(t & 1);                                                                    \
            reinterpret_cast<float*>(tile.sums)[0] += extra[t & 1][threadIdx.x ^ 1].x;              \
        }                                                                                           \
        tile.finish();                                                                              \
    }
#define SCALED(word) word = __float_as_int(__int_as_float(word) * 1.5f + 0.25f);
#define AS_IT_IS(word)
HALF(half_dequantised, (const int4*)A, SCALED)
HALF(half_generic, P[blockIdx.z], AS_IT_IS)
