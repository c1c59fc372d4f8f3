constexpr int TM = WM / 4;                 // a warp's lanes stand 4 x 8; a thread makes TM x TN sums:
constexpr int TN = WN / 8;                 // every fourth row, and four columns of every 32

static_assert(BM % (WARPS_M * 4) == 0 && BN % (WARPS_N * 32) == 0, "a warp makes whole 4 x 32 pieces");
static_assert(BK % 4 == 0, "four steps in K are read at once");
