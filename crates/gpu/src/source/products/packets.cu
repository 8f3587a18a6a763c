// Packets layout: a position is a bit of a word. A thread has a word of 32 rows out of every 128; after a
// transposition, the bits of 32 rows at one position are a 32-bit word of a slab. With fewer than 128 rows its share is
// shorter, and the rest of its 32 bits is zero.
//
// Also defined before this text: PACKET_WORDS, words of a packet; SHARE, rows of a thread out of every four shares.

PRIVATE u32 load_once(const byte* p) {
  u32 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

PRIVATE u32 choose(u32 mask, u32 yes, u32 no) {
  u32 d;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(d) : "r"(mask), "r"(yes), "r"(no));
  return d;
}

// Zero rows are skipped before the transposition, eight at a time.
#define EIGHTS ((SHARE + 7) / 8)

template <int distance> PRIVATE void swap_bits(u32 (&y)[32], u32 mask) {
  UNROLLED for (int i = 0; i < 8 * EIGHTS; ++i) if (!(i & distance)) {
    const u32 a = y[i], b = y[i + distance];
    y[i] = choose(mask, a, b << distance);
    y[i + distance] = choose(mask, a >> distance, b);
  }
}

template <int distance> PRIVATE void swap_bytes(u32 (&y)[32], u32 low, u32 high) {
  UNROLLED for (int i = 0; i < 32; ++i) if (!(i & distance) && (distance == 16 || i < 8 * EIGHTS)) {
    const u32 a = y[i], b = y[i + distance];
    y[i] = __byte_perm(a, b, low);
    y[i + distance] = __byte_perm(a, b, high);
  }
}

PRIVATE void turn(u32 (&y)[32]) {
  swap_bits<1>(y, 0x55555555);
  swap_bits<2>(y, 0x33333333);
  swap_bits<4>(y, 0x0f0f0f0f);
  swap_bytes<8>(y, 0x6240, 0x7351);
  swap_bytes<16>(y, 0x5410, 0x7632);
}

#define PACKET (PACKET_WORDS * 4u)

// Words of rows 8 c / 2 + 2 t + c % 2 of a pass, of those below `rows`.
PRIVATE void store_rows(const u32 (&words)[16], byte* out, u64 out_stride, u32 pass, u32 t, u32 rows, bool adds) {
  const u32 first = ROWS * pass + 2u * t;
  byte* to = out + first / W * out_stride + first % W * PACKET;
  UNROLLED for (u32 c = 0; c < 16; ++c) {
    const u32 row = first + 8u * (c / 2u) + c % 2u;
    // If eight rows are whole blocks, the next words are a block distance apart.
    byte* const place = 8 % W == 0 ? to + c % 2u * PACKET : out + row / W * out_stride + row % W * PACKET;
    if (row < rows) __stcs((u32*)place, adds ? words[c] ^ *(u32*)place : words[c]);
    if (c % 2u == 1u) to += 8u / W * out_stride;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) gabion(
    const byte* in, u64 in_stride, byte* out, u64 out_stride, u32 total, const byte* matrix, u32 inputs, u32 outputs) {
  __shared__ __align__(128) uint4 kept[TILES * TILE_OF_MATRIX / 16];
  const u32 g = threadIdx.x % 32u / 4u, t = threadIdx.x % 4u;
  const u32 chunks = max(1u, (inputs * W + 256u * SLABS - 1u) / (256u * SLABS)), passes = (outputs * W + ROWS - 1u) / ROWS;
  const bool all_kept = chunks * passes <= TILES;
  if (all_kept) take_matrix(kept, matrix, chunks * passes * TILE_OF_MATRIX);
  ROLLED for (u32 round = 0; round < ROUNDS; ++round) {
    // Threads past the end repeat the work of the last one without storing: all four warps must take part.
    const u32 column = ((blockIdx.x * ROUNDS + round) * 4u + threadIdx.x / 32u) * 8u + g, mine = min(column, total - 1u);
    const u64 at = (u64)(mine / PACKET_WORDS) * (W * PACKET) + mine % PACKET_WORDS * 4u;
    ROLLED for (u32 chunk = 0; chunk < chunks; ++chunk) {
      u32 x[HALVES][32];
      UNROLLED for (int h = 0; h < HALVES; ++h) {
        // With more than one half, shares are whole.
        const u32 first = chunk * (256u * SLABS) + 128u * h + SHARE * t;
        // Uniform in a warp: no transposition if no thread has a row.
        const bool empty = first - SHARE * t >= inputs * W;
        u32 bit = first % W;
        const byte* from = in + at + first / W * in_stride + bit * PACKET;
        UNROLLED for (u32 i = 0; i < 32; ++i) {
          // If shares are whole blocks, the rows of a block exist together.
          const bool there = SHARE % W == 0 ? first / W + i / W < inputs : first + i < inputs * W;
          x[h][i] = i < SHARE && there ? load_once(from) : 0u;
          from += PACKET;
          if ((SHARE % W == 0 ? (i + 1) % W : ++bit % W) == 0) {
            bit = 0;
            from += in_stride - W * PACKET;
          }
        }
        if (!empty) turn(x[h]);
      }
      ROLLED for (u32 pass = 0; pass < passes; ++pass) {
        u32 tile = chunk * passes + pass;
        if (!all_kept) {
          take_matrix(kept, matrix + (u64)tile * TILE_OF_MATRIX, TILE_OF_MATRIX);
          tile = 0;
        }
        const u64 rows = described(kept) + tile * (TILE_OF_MATRIX >> 4);
        u32 words[16];
        UNROLLED for (int c = 0; c < 16; ++c) words[c] = 0;
        UNROLLED for (int j = 0; j < 8; ++j) {
          // Positions j and j + 16, j + 8 and j + 24. Both products are in flight together; one after the other, the
          // compilers of CUDA 12.9 and 13.0 merged them.
          u32 d[COUNTS], e[COUNTS];
          BEGIN;
          UNROLLED for (int s = 0; s < SLABS; ++s) {
            const u64 slab = rows + (s * BYTES_OF_SLAB >> 4);
            multiply(d, x[2 * s][j], x[2 * s][j + 16], of_half(x, 2 * s + 1, j), of_half(x, 2 * s + 1, j + 16), slab, s > 0);
            multiply(e, x[2 * s][j + 8], x[2 * s][j + 24], of_half(x, 2 * s + 1, j + 8), of_half(x, 2 * s + 1, j + 24), slab, s > 0);
          }
          COMMIT;
          settle(d);
          settle(e);
          UNROLLED for (int c = 0; c < 16; ++c) {
            const int i = 4 * (c / 2) + c % 2;
            words[c] = collect(words[c], d[i], e[i], d[i + 2], e[i + 2], j);
          }
        }
        store_rows(words, out + at, out_stride, pass, t, column < total ? outputs * W : 0u, ADD || chunk > 0);
      }
    }
  }
}
