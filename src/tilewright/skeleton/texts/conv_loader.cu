constexpr int R = $r;         // taps, down and across
constexpr int S = $s;
constexpr int STRIDE = $stride;
constexpr int PAD = $pad;       // zeros around the image

// What a convolution is made of; one image holds P x Q output pixels.
struct Shape {
    int H;
    int W;
    int C;
    int P;
    int Q;
};

// VEC elements of a pixel into shared memory, or zeros.
template <int VEC>
__device__ __forceinline__ void copy_piece(unsigned to, const T* from, bool exists, bool is_wanted)
{
    if constexpr (VEC == 1) {
        // No asynchronous copy is this narrow: the element passes through a register.
        if (is_wanted) {
            const T value = exists ? *from : T(0.0f);
            asm volatile("st.shared.b16 [%0], %1;\n"
                         :: "r"(to), "h"(*reinterpret_cast<const unsigned short*>(&value)) : "memory");
        }
    } else if constexpr (VEC * sizeof(T) == 16) {
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0;\n"
                     "@p cp.async.cg.shared.global [%0], [%1], 16, %2; }\n"
                     :: "r"(to), "l"(from), "r"(exists ? 16 : 0), "r"((int)is_wanted));
    } else {
        constexpr int BYTES = VEC * sizeof(T);
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0;\n"
                     "@p cp.async.ca.shared.global [%0], [%1], %4, %2; }\n"
                     :: "r"(to), "l"(from), "r"(exists ? BYTES : 0), "r"((int)is_wanted), "n"(BYTES));
    }
}

// The load phase. A thread copies the same chunk of every STEP-th row of both tiles.
struct Loader {
    static constexpr int CHUNKS = BK / CHUNK;  // of a row
    static constexpr int STEP = THREADS / CHUNKS;
    static constexpr int PIXELS = (BM + STEP - 1) / STEP;
    static_assert(THREADS % CHUNKS == 0, "a thread stays in its column of chunks");

    const T* X;
    const T* b;            // this thread's first chunk of the filters' tile that is copied next
    Shape shape;
    int corner[PIXELS];    // each pixel's first tap: its row and column (it may lie above or left of the image) ...
    int offset[PIXELS];    // ... in 16 bits each, and its place, in pixels from the first image's first
    int b_rows_left;
    int k;                 // depth of this thread's chunk in the next tile
    int tiles_left;
    int K;

    __device__ __forceinline__ Loader(const T* X, const T* F, int row0, int col0, int tiles, int M, int N, int K,
                                      Shape shape)
        : X(X), shape(shape), tiles_left(tiles), K(K)
    {
        #pragma unroll
        for (int i = 0; i < PIXELS; ++i) {
            const int pixel = row0 + threadIdx.x / CHUNKS + i * STEP;
            const int image = pixel / (shape.P * shape.Q);
            const int row = pixel / shape.Q % shape.P * STRIDE - PAD;
            const int column = pixel % shape.Q * STRIDE - PAD;
            // A pixel that does not exist lies below every image.
            corner[i] = (pixel < M ? row : 0x7fff - R) * 65536 + (column & 0xffff);
            offset[i] = (image * shape.H + row) * shape.W + column;
        }
        k = threadIdx.x % CHUNKS * CHUNK;
        const int filter = col0 + threadIdx.x / CHUNKS;
        b = F + (size_t)filter * K + k;
        b_rows_left = N - filter;
    }

    // The next tile into a stage of the ring. Behind the last tile nothing is copied.
    __device__ __forceinline__ void copy(unsigned stage)
    {
        const int first = threadIdx.x / CHUNKS;
        const int chunk = threadIdx.x % CHUNKS;
        #pragma unroll
        for (int piece = 0; piece < CHUNK; piece += VEC_A) {
            const int tap = (k + piece) / shape.C;
            const int channel = k + piece - tap * shape.C;
            const int r = tap / S;
            const int s = tap % S;
            #pragma unroll
            for (int i = 0; i < PIXELS; ++i) {
                const int row = first + i * STEP;
                const int h = (corner[i] >> 16) + r;
                const int w = (short)(corner[i] & 0xffff) + s;
                const bool exists = (unsigned)h < (unsigned)shape.H && (unsigned)w < (unsigned)shape.W && k + piece < K;
                const T* from = X + (long long)(offset[i] + r * shape.W + s) * shape.C + channel;
                copy_piece<VEC_A>(stage + row * A_ROW_BYTES + swizzled<A_ROW_BYTES>(row, chunk) * 16
                                      + piece * (int)sizeof(T),
                                  from, exists, tiles_left > 0 && (BM % STEP == 0 || row < BM));
            }
        }
        #pragma unroll
        for (int i = 0; i < BN; i += STEP) {
            const int row = first + i;
            copy_chunk<VEC_B>(stage + A_BYTES + row * B_ROW_BYTES + swizzled<B_ROW_BYTES>(row, chunk) * 16,
                              b + (size_t)i * K, i < b_rows_left ? K - k : 0,
                              tiles_left > 0 && (BN % STEP == 0 || row < BN));
        }
        b += BK;
        k += BK;
        --tiles_left;
    }
};
