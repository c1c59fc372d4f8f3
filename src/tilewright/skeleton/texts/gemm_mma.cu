$ldmatrix

${helpers}// What a warp needs for one step of MMA_K: 16 rows and 32 bytes of A at a time, and as deep a piece of B.
__device__ __forceinline__ void load_fragments(unsigned (&a)[MT][4], unsigned (&b)[NT][2], unsigned stage, int warp_row,
                                               int warp_col, int step)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int m = 0; m < MT; ++m) {
        const int row = warp_row + m * 16 + lane % 16;
        const int chunk = step * 2 + lane / 16;
        ldmatrix_x4(a[m][0], a[m][1], a[m][2], a[m][3],
                    stage + row * A_ROW_BYTES + swizzled<A_ROW_BYTES>(row, chunk) * 16);
    }
$load_b}

$multiply

// The compute phase and the loads that run beside it: the sums of one warp over `tiles` tiles in K.
__device__ __forceinline__ void multiply_tiles(Sum (&sums)[MT][NT][4], unsigned ring, Loader loader, int tiles)
{
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * WM;
    const int warp_col = warp % WARPS_N * WN;
    if (tiles <= 0) {
        return;
    }
    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        loader.copy(ring + s * STAGE_BYTES);
        commit_copies();
    }
    wait_copies<STAGES - 2>();  // the oldest tile has landed ...
    __syncthreads();            // ... the copies of every thread

    unsigned a[2][MT][4];
    unsigned b[2][NT][2];
    load_fragments(a[0], b[0], ring, warp_row, warp_col, 0);

    int read = 0;
    int write = STAGES - 1;
    #pragma unroll 1
    for (; tiles > 0; --tiles) {
        const unsigned stage = ring + read * STAGE_BYTES;
        read = read + 1 == STAGES ? 0 : read + 1;
        #pragma unroll
        for (int step = 0; step < K_STEPS; ++step) {
            if (step == 0) {
                // The stage that was read last: every warp has passed the barrier behind its last read of it.
                // A group is committed also when nothing is copied, so that their count stays right.
                loader.copy(ring + write * STAGE_BYTES);
                commit_copies();
                write = write + 1 == STAGES ? 0 : write + 1;
            }
            if (step == K_STEPS - 1) {
                // The next tile has landed: its first fragments are read while this tile's last step is computed.
                // Behind the last tile there is no next one; what is read then is not used.
                wait_copies<STAGES - 2>();
                __syncthreads();
                const unsigned next = tiles > 1 ? ring + read * STAGE_BYTES : stage;
                load_fragments(a[0], b[0], next, warp_row, warp_col, 0);
            } else {
                load_fragments(a[(step + 1) % 2], b[(step + 1) % 2], stage, warp_row, warp_col, step + 1);
            }
            #pragma unroll
            for (int m = 0; m < MT; ++m) {
                #pragma unroll
                for (int n = 0; n < NT; ++n) {
                    // Back and forth over the columns, so that neighbours share a fragment.
                    const int column = m % 2 ? NT - 1 - n : n;
                    multiply(sums[m][column], a[step % 2][m], b[step % 2][column]);
                }
            }
        }
    }
    wait_copies<0>();
}

$store
