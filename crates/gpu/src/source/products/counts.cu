// Bit matrix products on tensor cores. One instruction multiplies 64 positions of 256 input bits (a slab) with 64 rows
// of the matrix and counts, for each position and row, the ones in both: the sum over GF(2) is the lowest bit of the
// count.
//
// Defined before this text: SLABS, slabs per multiplication; HALVES, halves of slabs in use, the rest is zero; TILES,
// tiles of the matrix in shared memory; ROUNDS, tiles of data per block; BLOCKS, minimum resident blocks per
// multiprocessor; ADD, true if outputs are added to; W, rows of a block.
//
// A block has 4 warps of 32 threads. Thread 4 g + t of a warp holds the bytes of its inputs at the positions of group
// g: it provides bits 32 t .. 32 t + 31 and 128 + 32 t .. of a slab to the hardware, for two positions at a time, and
// receives the counts of these two positions, for columns 8 i + 2 t and 8 i + 2 t + 1 of the tile.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char byte;

#define PRIVATE static __device__ __forceinline__
#define THREADS 128u
#define ROWS 64
#define COUNTS (ROWS / 2)
#define BYTES_OF_SLAB (ROWS * 32)
#define TILE_OF_MATRIX (SLABS * BYTES_OF_SLAB)
#define UNROLLED _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

#define ALL_COUNTS(d) \
  "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), \
  "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), \
  "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), \
  "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31])

// Starts d = counts, or d += counts, asynchronously; `settle` waits for it.
PRIVATE void multiply(u32 (&d)[COUNTS], u32 a0, u32 a1, u32 a2, u32 a3, u64 rows, int adds) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;"
    " wgmma.mma_async.sync.aligned.m64n64k256.s32.b1.b1.and.popc {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31},"
    " {%32, %33, %34, %35}, %36, p; }"
    : ALL_COUNTS(d) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(rows), "r"(adds));
}

#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define BEGIN asm volatile("wgmma.fence.sync.aligned;" ::: "memory")

// Ties the counts to the wait, so that the compiler does not read them earlier.
PRIVATE void settle(u32 (&d)[COUNTS]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" : ALL_COUNTS(d) : : "memory");
}

// Packs two counts, the second in the upper half, by a multiply-add: that pipe is idle.
PRIVATE u32 beside(u32 low, u32 high) { return high * 65536u + low; }

// Adds the lowest bits of four counts, each in its own byte and shifted by `bit`.
PRIVATE u32 collect(u32 sum, u32 a, u32 b, u32 c, u32 d, int bit) {
  const u32 four = __byte_perm(beside(a, b), beside(c, d), 0x6420);
  return sum | four << bit & 0x01010101u << bit;
}

// Word i of a half; zero for a half that is not in use.
template <int words> PRIVATE u32 of_half(const u32 (&x)[HALVES][words], int half, int i) {
  return half < HALVES ? x[half < HALVES ? half : 0][i] : 0u;
}

// Descriptor of rows of the matrix in shared memory: groups of 8 rows and 16 bytes, 128 bytes apart along a row, 256
// bytes apart along a column.
PRIVATE u64 described(const uint4* tile) {
  const u32 at = (u32)__cvta_generic_to_shared(tile);
  return (u64)(at >> 4) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
}

PRIVATE void take_matrix(uint4* to, const byte* from, u32 bytes) {
  __syncthreads();
  for (u32 i = threadIdx.x; i < bytes / 16u; i += THREADS) to[i] = __ldg((const uint4*)from + i);
  // Makes the writes of threads visible to the tensor cores.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}
