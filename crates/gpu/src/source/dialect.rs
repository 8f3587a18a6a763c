//! Dialects: the macros in which CUDA and OpenCL differ. The rest of a kernel's text is the same.

use super::{ENTRY, Launch};

/// A language that kernels are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// CUDA C++ for NVRTC, with `lop3` and streaming loads and stores.
    Cuda,
    /// OpenCL C 1.2.
    OpenCl,
}

const CUDA: &str = "\
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char byte;
#define GLOBAL
#define PRIVATE static __device__ __forceinline__
#define LOCAL_X threadIdx.x
#define GROUP_X blockIdx.x
#define GROUP_Y blockIdx.y
#define MEET __syncthreads()
PRIVATE u32 x3(u32 a, u32 b, u32 c) {
  u32 d;
  asm(\"lop3.b32 %0, %1, %2, %3, 0x96;\" : \"=r\"(d) : \"r\"(a), \"r\"(b), \"r\"(c));
  return d;
}
PRIVATE u32 choose(u32 mask, u32 yes, u32 no) {
  u32 d;
  asm(\"lop3.b32 %0, %1, %2, %3, 0xca;\" : \"=r\"(d) : \"r\"(mask), \"r\"(yes), \"r\"(no));
  return d;
}
// Compiler barrier: values in shared memory are read back, not kept in registers.
#define SETTLE asm volatile(\"\" ::: \"memory\")
#define SHARED __shared__
#define SHARED_POINTER
#define PUT1(p, a) *(unsigned int*)(p) = a
#define PUT2(p, a, b) *(uint2*)(p) = make_uint2(a, b)
#define GET1(p, a) a = *(const unsigned int*)(p)
#define GET2(p, a, b) { uint2 v = *(const uint2*)(p); a = v.x; b = v.y; }
#define PUT4(p, a, b, c, d) *(uint4*)(p) = make_uint4(a, b, c, d)
#define GET4(p, a, b, c, d) { uint4 v = *(const uint4*)(p); a = v.x; b = v.y; c = v.z; d = v.w; }
// Asynchronous copies of 16 bytes from device memory to shared memory, in groups that can be awaited.
#define BRING(to, from) asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" :: \"r\"((u32)__cvta_generic_to_shared(to)), \"l\"(from) : \"memory\")
#define BROUGHT_ALL asm volatile(\"cp.async.commit_group;\" ::: \"memory\")
#define AWAIT_BUT(groups) asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(groups) : \"memory\")
// Prefetch of a line into the L2 cache.
#define PREFETCH(p) asm volatile(\"prefetch.global.L2 [%0];\" :: \"l\"(p))
PRIVATE u32 multiprocessors() {
  u32 count;
  asm(\"mov.u32 %0, %%nsmid;\" : \"=r\"(count));
  return count;
}
#define MULTIPROCESSORS multiprocessors()
#define BYTES(a, b, places) __byte_perm(a, b, places)
#define STORE1(p, a) __stcs((unsigned int*)(p), a)
#define STORE2(p, a, b) __stcs((uint2*)(p), make_uint2(a, b))
#define STORE4(p, a, b, c, d) __stcs((uint4*)(p), make_uint4(a, b, c, d))
#define READ4(p, a, b, c, d) { uint4 v = *(const uint4*)(p); a = v.x; b = v.y; c = v.z; d = v.w; }
#define READ2(p, a, b) { uint2 v = *(const uint2*)(p); a = v.x; b = v.y; }
#define READ1(p, a) a = *(const unsigned int*)(p)
";

// Streaming loads for data that is read once.
const CUDA_LOADS: &str = "\
#define FETCH(type, p) __ldcs((const type*)(p))
#define LOAD1(p, a) a = FETCH(unsigned int, p)
#define LOAD2(p, a, b) { uint2 v = FETCH(uint2, p); a = v.x; b = v.y; }
#define LOAD4(p, a, b, c, d) { uint4 v = FETCH(uint4, p); a = v.x; b = v.y; c = v.z; d = v.w; }
";

const OPEN_CL: &str = "\
typedef uint u32;
typedef ulong u64;
typedef uchar byte;
#define GLOBAL __global
#define PRIVATE static inline
#define LOCAL_X ((u32)get_local_id(0))
#define GROUP_X ((u32)get_group_id(0))
#define GROUP_Y ((u32)get_group_id(1))
#define MEET barrier(CLK_LOCAL_MEM_FENCE)
#define x3(a, b, c) ((a) ^ (b) ^ (c))
#define choose(mask, yes, no) bitselect((u32)(no), (u32)(yes), (u32)(mask))
#define SETTLE
#define SHARED __local
#define SHARED_POINTER __local
#define PUT1(p, a) *(__local uint*)(p) = (a)
#define PUT2(p, a, b) *(__local uint2*)(p) = (uint2)(a, b)
#define GET1(p, a) a = *(__local const uint*)(p)
#define GET2(p, a, b) { uint2 v = *(__local const uint2*)(p); a = v.x; b = v.y; }
#define PUT4(p, a, b, c, d) *(__local uint4*)(p) = (uint4)(a, b, c, d)
#define GET4(p, a, b, c, d) { uint4 v = *(__local const uint4*)(p); a = v.x; b = v.y; c = v.z; d = v.w; }
#define STORE1(p, a) *(__global uint*)(p) = (a)
#define STORE2(p, a, b) *(__global uint2*)(p) = (uint2)(a, b)
#define STORE4(p, a, b, c, d) *(__global uint4*)(p) = (uint4)(a, b, c, d)
#define LOAD1(p, a) a = *(__global const uint*)(p)
#define LOAD2(p, a, b) { uint2 v = *(__global const uint2*)(p); a = v.x; b = v.y; }
#define LOAD4(p, a, b, c, d) { uint4 v = *(__global const uint4*)(p); a = v.x; b = v.y; c = v.z; d = v.w; }
#define READ1 LOAD1
#define READ2 LOAD2
#define READ4 LOAD4
";

impl Dialect {
    /// Common start of every text.
    pub(super) fn prelude(self) -> String {
        let language = match self {
            Dialect::Cuda => [CUDA, CUDA_LOADS].concat(),
            Dialect::OpenCl => OPEN_CL.to_owned(),
        };
        language + "#define TILE GROUP_X\n#define PASS GROUP_Y\n"
    }

    /// The signature of the kernel function, with extra parameters `more`. `least_blocks` is the minimum of resident
    /// blocks per multiprocessor, which bounds the registers of a thread.
    pub(super) fn head(self, launch: Launch, least_blocks: usize, more: &str) -> String {
        let threads = launch.threads;
        let (start, global) = match self {
            Dialect::Cuda => {
                (format!("extern \"C\" __global__ void __launch_bounds__({threads}, {least_blocks})"), "")
            }
            Dialect::OpenCl => {
                let size = format!("__attribute__((reqd_work_group_size({threads}, 1, 1)))");
                (format!("__kernel {size} void"), "__global ")
            }
        };
        format!(
            "{start} {ENTRY}({global}const byte* in, u64 in_stride, {global}byte* out, u64 out_stride, u32 total{more}) {{\n"
        )
    }

    /// True if one instruction selects bytes of two words.
    pub(super) fn has_byte_permute(self) -> bool {
        self == Dialect::Cuda
    }
}
