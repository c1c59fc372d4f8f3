constexpr int MMA_K = $mma_k;                  // one matrix instruction: 16 x 8 x MMA_K
constexpr int MT = WM / 16;
constexpr int NT = WN / 8;
constexpr int K_STEPS = BK / MMA_K;
static_assert(BM % (WARPS_M * 16) == 0 && BN % (WARPS_N * 16) == 0, "a warp makes whole 16 x 16 pieces");
static_assert(K_STEPS % 2 == 0, "the fragments alternate between two sets of registers");
