// Rings on mbarriers, in every order of issue, wait and compute: what is in flight is known from the source.
// One warp copies ROWS rows a tile (or one box of a tensor map), every thread computes.
typedef unsigned int u32;
typedef unsigned long long u64;
constexpr int ROWS = 4, COLUMNS = 64, TILE = ROWS * COLUMNS;
struct alignas(64) Map { char bytes[128]; };

#define DEVICE __device__ __forceinline__
DEVICE u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void init(u64* bar, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(bar)), "r"(count) : "memory"); }
DEVICE void wait(u64* bar, int parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(at(bar)),
        "r"(parity) : "memory");
}
DEVICE void arrive(u64* bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)) : "memory"); }
DEVICE void expect(u64* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes) : "memory");
}
DEVICE void bulk(float* to, const float* from, int bytes, u64* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(to)),
                 "l"(from), "r"(bytes), "r"(at(bar)) : "memory");
}
DEVICE void box(float* to, const Map* map, int x, int y, u64* bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(at(to)),
                 "l"(map), "r"(x), "r"(y), "r"(at(bar)) : "memory");
}
DEVICE float dot(const float* tile, float sum) {
#pragma unroll
    for (int i = 0; i < 40; ++i) sum = fmaf(tile[i], tile[(i * 3 + threadIdx.x) % TILE], sum);
    return sum;
}

// How a tile is copied: rows one after the other, a row for each lane, or a box.
enum How { ROWS_BY_ONE, ROWS_BY_LANES, BOX };
// Where the copy of a later tile is issued, and which wait follows.
enum Order { BEFORE, AFTER, WAITS_FOR_ALL, ONE_AT_A_TIME, REFILLS };

template <int STAGES, How HOW>
struct Ring {
    float (*tiles)[TILE];
    u64* full;
    const float* in;
    const Map* map;
    int pitch;
    DEVICE void fill(int t) const {
        const int stage = t % STAGES, lane = threadIdx.x % 32;
        if (HOW == BOX) {
            if (threadIdx.x == 0) expect(&full[stage], TILE * 4), box(tiles[stage], map, t * COLUMNS, 0, &full[stage]);
        } else if (HOW == ROWS_BY_ONE) {
            if (threadIdx.x == 0) {
                expect(&full[stage], TILE * 4);
                for (int r = 0; r < ROWS; ++r)
                    bulk(tiles[stage] + r * COLUMNS, in + r * pitch + t * COLUMNS, COLUMNS * 4, &full[stage]);
            }
        } else if (threadIdx.x < 32) {
            if (lane == 0) expect(&full[stage], TILE * 4);
            __syncwarp();
            if (lane < ROWS) bulk(tiles[stage] + lane * COLUMNS, in + lane * pitch + t * COLUMNS, COLUMNS * 4, &full[stage]);
        }
    }
};

template <int STAGES, How HOW, Order ORDER>
DEVICE void ring(const float* in, float* out, int count, int pitch, const Map* map) {
    __shared__ alignas(128) float tiles[STAGES][TILE];
    __shared__ u64 full[STAGES];
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], 1);
    __syncthreads();
    const Ring<STAGES, HOW> source{tiles, full, in, map, pitch};
    const int ahead = ORDER == ONE_AT_A_TIME ? 0 : ORDER == REFILLS ? STAGES : STAGES - 1;
    for (int s = 0; s < ahead && s < count; ++s) source.fill(s);
    float sum = 0;
    for (int t = 0; t < count; ++t) {
        if (ORDER == BEFORE || ORDER == WAITS_FOR_ALL || ORDER == ONE_AT_A_TIME) {
            __syncthreads();
            if (t + ahead < count) source.fill(t + ahead);
        }
        wait(&full[t % STAGES], t / STAGES & 1);
        if (ORDER == WAITS_FOR_ALL)
            for (int s = 1; s <= ahead; ++s)
                if (t + s < count) wait(&full[(t + s) % STAGES], (t + s) / STAGES & 1);
        sum = dot(tiles[t % STAGES], sum);
        if (ORDER == AFTER || ORDER == REFILLS) {
            __syncthreads();
            if (t + ahead < count) source.fill(t + ahead);
        }
    }
    out[threadIdx.x] = sum;
}

#define KERNEL(name, stages, how, order)                                                                            \
    extern "C" __global__ void __launch_bounds__(128)                                                               \
        name(const float* in, float* out, int count, int pitch, const __grid_constant__ Map map) {                  \
        ring<stages, how, order>(in, out, count, pitch, &map);                                                      \
    }
#ifndef FEW
KERNEL(rows_before_s2, 2, ROWS_BY_ONE, BEFORE)
KERNEL(rows_before_s4, 4, ROWS_BY_ONE, BEFORE)
KERNEL(rows_after_s2, 2, ROWS_BY_ONE, AFTER)
KERNEL(rows_waits_for_all_s2, 2, ROWS_BY_ONE, WAITS_FOR_ALL)
KERNEL(rows_waits_for_all_s3, 3, ROWS_BY_ONE, WAITS_FOR_ALL)
KERNEL(rows_one_at_a_time, 2, ROWS_BY_ONE, ONE_AT_A_TIME)
KERNEL(rows_refills_s2, 2, ROWS_BY_ONE, REFILLS)
KERNEL(lanes_waits_for_all_s3, 3, ROWS_BY_LANES, WAITS_FOR_ALL)
KERNEL(box_after_s2, 2, BOX, AFTER)
KERNEL(box_after_s4, 4, BOX, AFTER)
KERNEL(box_one_at_a_time, 3, BOX, ONE_AT_A_TIME)
#endif
KERNEL(rows_after_s3, 3, ROWS_BY_ONE, AFTER)
KERNEL(lanes_before_s3, 3, ROWS_BY_LANES, BEFORE)
KERNEL(box_before_s3, 3, BOX, BEFORE)
KERNEL(box_waits_for_all_s3, 3, BOX, WAITS_FOR_ALL)

// Stage and parity as counters that wrap; the K-loop is a share of it: count / splits tiles.
extern "C" __global__ void counters_s3(const float* in, float* out, int count, int splits, const __grid_constant__ Map map) {
    constexpr int STAGES = 3;
    __shared__ alignas(128) float tiles[STAGES][TILE];
    __shared__ u64 full[STAGES];
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], 1);
    __syncthreads();
    const int mine = count / splits, first = blockIdx.x * mine;
    const Ring<STAGES, BOX> source{tiles, full, in, &map, 0};
    for (int s = 0; s < STAGES - 1 && s < mine; ++s) source.fill(first + s);
    float sum = 0;
    int stage = 0, parity = 0, to = STAGES - 1;
#pragma unroll 1
    for (int t = 0; t < mine; ++t) {
        __syncthreads();
        if (t + STAGES - 1 < mine && threadIdx.x == 0) {
            expect(&full[to], TILE * 4);
            box(tiles[to], &map, (first + t + STAGES - 1) * COLUMNS, 0, &full[to]);
        }
        if (++to == STAGES) to = 0;
        wait(&full[stage], parity);
        sum = dot(tiles[stage], sum);
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    out[threadIdx.x] = sum;
}

// A and B have mbarriers of their own, B is waited for later.
extern "C" __global__ void two_barriers_s2(const float* in, float* out, int count, int pitch, const __grid_constant__ Map map) {
    constexpr int STAGES = 2;
    __shared__ alignas(128) float a[STAGES][TILE], b[STAGES][TILE];
    __shared__ u64 full_a[STAGES], full_b[STAGES];
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full_a[s], 1), init(&full_b[s], 1);
    __syncthreads();
    const Ring<STAGES, BOX> of_a{a, full_a, in, &map, 0}, of_b{b, full_b, in, &map, 0};
    of_a.fill(0), of_b.fill(0);
    float sum = 0;
    for (int t = 0; t < count; ++t) {
        __syncthreads();
        if (t + 1 < count) of_a.fill(t + 1), of_b.fill(t + 1);
        wait(&full_a[t % STAGES], t / STAGES & 1);
        wait(&full_b[t % STAGES], t / STAGES & 1);
        sum = dot(b[t % STAGES], dot(a[t % STAGES], sum));
    }
    out[threadIdx.x] = sum;
}

// The last warp copies, the others compute. RELEASE 0: nothing tells the copying warp that a stage is free.
template <int STAGES, bool RELEASE>
DEVICE void specialised(const float* in, float* out, int count, int pitch) {
    __shared__ alignas(128) float tiles[STAGES][TILE];
    __shared__ u64 full[STAGES], empty[STAGES];
    const int workers = 96;
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], workers);
    __syncthreads();
    if (threadIdx.x >= workers) {
        if (threadIdx.x == workers)
            for (int t = 0; t < count; ++t) {
                if (RELEASE) wait(&empty[t % STAGES], t / STAGES & 1 ^ 1);
                expect(&full[t % STAGES], TILE * 4);
                for (int r = 0; r < ROWS; ++r)
                    bulk(tiles[t % STAGES] + r * COLUMNS, in + r * pitch + t * COLUMNS, COLUMNS * 4, &full[t % STAGES]);
            }
    } else {
        float sum = 0;
        for (int t = 0; t < count; ++t) {
            wait(&full[t % STAGES], t / STAGES & 1);
            sum = dot(tiles[t % STAGES], sum);
            if (RELEASE) arrive(&empty[t % STAGES]);
        }
        out[threadIdx.x] = sum;
    }
}
#define SPECIALISED(name, stages, release)                                                                          \
    extern "C" __global__ void __launch_bounds__(128) name(const float* in, float* out, int count, int pitch) {     \
        specialised<stages, release>(in, out, count, pitch);                                                        \
    }
#ifndef FEW
SPECIALISED(specialised_s1, 1, true)
SPECIALISED(specialised_s4, 4, true)
SPECIALISED(specialised_unheld, 3, false)
#endif
SPECIALISED(specialised_s2, 2, true)

// Sizes without a map take the way of old: launches go one way or the other.
extern "C" __global__ void __launch_bounds__(128)
    two_ways_s2(const float* in, float* out, int count, int pitch, const __grid_constant__ Map map, int has_map) {
    __shared__ float tile[TILE];
    if (has_map) {
        ring<2, BOX, BEFORE>(in, out, count, pitch, &map);
        return;
    }
    float sum = 0;
    for (int t = 0; t < count; ++t) {
        for (int i = threadIdx.x; i < TILE; i += 128) tile[i] = in[i / COLUMNS * pitch + t * COLUMNS + i % COLUMNS];
        __syncthreads();
        sum = dot(tile, sum);
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

// Columns from one parameter to another: bulk copies where they begin at a multiple of 16 bytes, else the way of old.
extern "C" __global__ void __launch_bounds__(128)
    from_a_column_s2(const float* in, float* out, int first, int last, int pitch) {
    __shared__ alignas(128) float tiles[2][TILE];
    __shared__ u64 full[2];
    if (threadIdx.x == 0) init(&full[0], 1), init(&full[1], 1);
    __syncthreads();
    auto fill = [&](int x, int stage) {
        if (x % 4 == 0) {
            if (threadIdx.x == 0) {
                expect(&full[stage], TILE * 4);
                for (int r = 0; r < ROWS; ++r)
                    bulk(tiles[stage] + r * COLUMNS, in + r * pitch + x, COLUMNS * 4, &full[stage]);
            }
        } else {
            for (int i = threadIdx.x; i < TILE; i += 128) tiles[stage][i] = in[i / COLUMNS * pitch + x + i % COLUMNS];
            if (threadIdx.x == 0) arrive(&full[stage]);
        }
    };
    if (first < last) fill(first, 0);
    float sum = 0;
    int stage = 0, parity = 0;
    for (int x = first; x < last; x += COLUMNS) {
        wait(&full[stage], parity);
        __syncthreads();
        if (x + COLUMNS < last) fill(x + COLUMNS, stage ^ 1);
        sum = dot(tiles[stage], sum);
        parity ^= stage;
        stage ^= 1;
    }
    out[threadIdx.x] = sum;
}

// The same behind padding: columns in front of the matrix are no place for a bulk copy.
extern "C" __global__ void __launch_bounds__(128)
    behind_padding_s2(const float* in, float* out, int padding, int columns, int pitch) {
    __shared__ alignas(128) float tiles[2][TILE];
    __shared__ u64 full[2];
    if (threadIdx.x == 0) init(&full[0], 1), init(&full[1], 1);
    __syncthreads();
    auto fill = [&](int x, int stage) {
        if (x >= 0 && x % 4 == 0) {
            if (threadIdx.x == 0) {
                expect(&full[stage], TILE * 4);
                for (int r = 0; r < ROWS; ++r)
                    bulk(tiles[stage] + r * COLUMNS, in + r * pitch + x, COLUMNS * 4, &full[stage]);
            }
        } else {
            for (int i = threadIdx.x; i < TILE; i += 128) tiles[stage][i] = x + i % COLUMNS < 0 ? 0 : in[i / COLUMNS * pitch + x + i % COLUMNS];
            if (threadIdx.x == 0) arrive(&full[stage]);
        }
    };
    if (0 < columns) fill(-padding, 0);
    float sum = 0;
    int stage = 0, parity = 0;
    for (int x = 0; x < columns; x += COLUMNS) {
        wait(&full[stage], parity);
        __syncthreads();
        if (x + COLUMNS < columns) fill(x + COLUMNS - padding, stage ^ 1);
        sum = dot(tiles[stage], sum);
        parity ^= stage;
        stage ^= 1;
    }
    out[threadIdx.x] = sum;
}
