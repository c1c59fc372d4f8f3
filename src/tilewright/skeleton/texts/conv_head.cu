// A 2D convolution as a matrix product that is never laid out, $type_words in and out, sums in FP32, with mma.sync.
// X is images x H x W x C (NHWC), F is filters x R x S x C, Y is images x P x Q x filters.
//
// The product's rows are output pixels, its columns filters, its depth R * S * C: the load phase finds the input pixel
// behind each chunk of A's tile (a tap outside the image is read as zeros), the rest is a matrix product.
//
// One block makes BM pixels of BN filters with WARPS_M x WARPS_N warps. The K-loop walks tiles of depth BK through a
// ring of STAGES buffers in shared memory, filled by asynchronous copies. Shared rows are cut into chunks of 16 bytes,
// and a chunk is kept at (chunk XOR row): eight rows that ldmatrix reads together then lie in eight groups of banks.
//
// C must be a multiple of VEC_A, the filters of VEC_C, and the pointers as well aligned. 1 fits everything.
