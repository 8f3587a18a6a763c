// Words layout with symbols of 8 bits: a position is a byte. A thread has 16 positions of four inputs out of every 16;
// after a transposition, the bytes of four inputs at one position are a 32-bit word of a slab.

PRIVATE uint4 load_once(const byte* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// Transposes four words of four positions to four words of four inputs.
PRIVATE void turn(u32* to, u32 a, u32 b, u32 c, u32 d) {
  const u32 ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);
  const u32 more_ab = __byte_perm(a, b, 0x7362), more_cd = __byte_perm(c, d, 0x7362);
  to[0] = __byte_perm(ab, cd, 0x5410);
  to[1] = __byte_perm(ab, cd, 0x7632);
  to[2] = __byte_perm(more_ab, more_cd, 0x5410);
  to[3] = __byte_perm(more_ab, more_cd, 0x7632);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) gabion(
    const byte* in, u64 in_stride, byte* out, u64 out_stride, u32 total, const byte* matrix, u32 inputs, u32 outputs) {
  __shared__ __align__(128) uint4 kept[TILES * TILE_OF_MATRIX / 16];
  const u32 g = threadIdx.x % 32u / 4u, t = threadIdx.x % 4u;
  const u32 chunks = max(1u, (inputs + 32u * SLABS - 1u) / (32u * SLABS)), passes = (outputs + 7u) / 8u;
  const bool all_kept = chunks * passes <= TILES;
  if (all_kept) take_matrix(kept, matrix, chunks * passes * TILE_OF_MATRIX);
  u64 at = ((u64)blockIdx.x * (ROUNDS * 4u) + threadIdx.x / 32u) * 128u + 16u * g;
  ROLLED for (u32 round = 0; round < ROUNDS; ++round, at += 512u) {
    ROLLED for (u32 chunk = 0; chunk < chunks; ++chunk) {
      u32 x[HALVES][16];
      const u32 first = chunk * (32u * SLABS) + 4u * t, left = inputs - min(inputs, first);
      const byte* const p = in + at + first * in_stride;
      // No branches, so that all loads overlap.
      UNROLLED for (int h = 0; h < HALVES; ++h) {
        uint4 v[4];
        UNROLLED for (int i = 0; i < 4; ++i)
          v[i] = 16u * h + i < left ? load_once(p + (16u * h + i) * in_stride) : make_uint4(0, 0, 0, 0);
        turn(x[h], v[0].x, v[1].x, v[2].x, v[3].x);
        turn(x[h] + 4, v[0].y, v[1].y, v[2].y, v[3].y);
        turn(x[h] + 8, v[0].z, v[1].z, v[2].z, v[3].z);
        turn(x[h] + 12, v[0].w, v[1].w, v[2].w, v[3].w);
      }
      ROLLED for (u32 pass = 0; pass < passes; ++pass) {
        u32 tile = chunk * passes + pass;
        if (!all_kept) {
          take_matrix(kept, matrix + (u64)tile * TILE_OF_MATRIX, TILE_OF_MATRIX);
          tile = 0;
        }
        const u64 rows = described(kept) + tile * (TILE_OF_MATRIX >> 4);
        // Bytes of outputs t and 4 + t of this pass, positions j and j + 8 of each.
        u32 bytes[8];
        UNROLLED for (int j = 0; j < 8; ++j) {
          u32 d[COUNTS];
          BEGIN;
          UNROLLED for (int s = 0; s < SLABS; ++s)
            multiply(d, x[2 * s][j], x[2 * s][j + 8], of_half(x, 2 * s + 1, j), of_half(x, 2 * s + 1, j + 8), rows + (s * BYTES_OF_SLAB >> 4), s > 0);
          COMMIT;
          settle(d);
          u32 sum = 0;
          UNROLLED for (int bit = 0; bit < 8; ++bit) {
            const int i = 4 * (bit / 2) + bit % 2;
            sum = collect(sum, d[i], d[i + 2], d[i + 16], d[i + 18], bit);
          }
          bytes[j] = sum;
        }
        UNROLLED for (u32 o = 0; o < 2; ++o) {
          const u32 output = 8u * pass + 4u * o + t;
          if (output < outputs) {
            uint4* const to = (uint4*)(out + output * out_stride + at);
            const u32 pick = o ? 0x7362 : 0x5140;
            const u32 a = __byte_perm(bytes[0], bytes[1], pick), b = __byte_perm(bytes[2], bytes[3], pick);
            const u32 c = __byte_perm(bytes[4], bytes[5], pick), d = __byte_perm(bytes[6], bytes[7], pick);
            uint4 v = make_uint4(__byte_perm(a, b, 0x5410), __byte_perm(c, d, 0x5410), __byte_perm(a, b, 0x7632), __byte_perm(c, d, 0x7632));
            if (ADD || chunk > 0) {
              const uint4 old = *to;
              v = make_uint4(v.x ^ old.x, v.y ^ old.y, v.z ^ old.z, v.w ^ old.w);
            }
            __stcs(to, v);
          }
        }
      }
    }
  }
}
