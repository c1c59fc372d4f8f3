// Copies that an mbarrier retires: bulk copies and asynchronous copies in one loop, and a warp-specialised pair of loops.
constexpr int TILE = 256, STAGES = 3;

__device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ void init(unsigned long long* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count));
}
__device__ void wait(unsigned long long* bar, int phase) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(
            shared_address(bar)),
        "r"(phase)
        : "memory");
}
__device__ void arrive(unsigned long long* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
__device__ void bulk(float* to, const float* from, unsigned long long* bar) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(TILE * 4) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(TILE * 4), "r"(shared_address(bar))
                 : "memory");
}
__device__ float dot(const float* tile, float sum) {
#pragma unroll 16
    for (int i = 0; i < TILE; ++i) sum += tile[i] * tile[(i + threadIdx.x) % TILE];
    return sum;
}

extern "C" __global__ void bulk_ring(const float* in, float* out, int count) {
    __shared__ __align__(128) float tiles[STAGES][TILE];
    __shared__ unsigned long long full[STAGES];
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], 1);
    __syncthreads();
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES - 1 && s < count; ++s) bulk(tiles[s], in + s * TILE, &full[s]);
    float sum = 0;
    for (int t = 0; t < count; ++t) {
        __syncthreads();
        const int ahead = t + STAGES - 1;
        if (threadIdx.x == 0 && ahead < count) bulk(tiles[ahead % STAGES], in + ahead * TILE, &full[ahead % STAGES]);
        wait(&full[t % STAGES], t / STAGES & 1);
        sum = dot(tiles[t % STAGES], sum);
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void async_ring(const float* in, float* out, int count) {
    __shared__ __align__(128) float tiles[2][TILE];
    __shared__ unsigned long long full[2];
    if (threadIdx.x < 2) init(&full[threadIdx.x], blockDim.x);
    __syncthreads();
    float sum = 0;
    for (int t = 0; t < count; ++t) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&tiles[t & 1][threadIdx.x])),
                     "l"(in + t * TILE + threadIdx.x)
                     : "memory");
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&full[t & 1])) : "memory");
        wait(&full[t & 1], t / 2 & 1);
        sum = dot(tiles[t & 1], sum);
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void specialised(const float* in, float* out, int count) {
    __shared__ __align__(128) float tiles[STAGES][TILE];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], blockDim.x - 32);
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0)
            for (int t = 0; t < count; ++t) {
                wait(&empty[t % STAGES], t / STAGES & 1 ^ 1);
                bulk(tiles[t % STAGES], in + t * TILE, &full[t % STAGES]);
            }
    } else {
        float sum = 0;
        for (int t = 0; t < count; ++t) {
            wait(&full[t % STAGES], t / STAGES & 1);
            sum = dot(tiles[t % STAGES], sum);
            arrive(&empty[t % STAGES]);
        }
        out[threadIdx.x] = sum;
    }
}

// No copies at all, and no loop at all.
extern "C" __global__ void unstaged(const float* in, float* out, int count) {
    float sum = 0;
    for (int t = 0; t < count; ++t) sum += in[t * 32] * in[t * 32 + 1];
    out[threadIdx.x] = sum;
}
extern "C" __global__ void loopless(const float* in, float* out) { out[0] = in[0] * in[1] + in[2]; }
extern "C" __global__ void mathless(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }
