// $title
// C[z] = A[z] * B[z] for z < batch; A is M x K, B is K x N, C is M x N, all row-major.
//
// One block makes a BM x BN tile of C with WARPS_M x WARPS_N warps. The K-loop walks tiles of BK columns of A and
// BK rows of B through a ring of STAGES buffers in shared memory, filled by asynchronous copies.
//
// Shared rows are cut into chunks of 16 bytes, and a chunk is kept at (chunk XOR row): eight rows that ldmatrix reads
// together then lie in eight different groups of banks, without padding.
//
// M, N and K are free. Rows of A are read VEC_A elements at a time, rows of B VEC_B, rows of C are written VEC_C at a
// time: K must be a multiple of VEC_A, N of VEC_B and VEC_C, and the pointers as well aligned. 1 fits everything.
