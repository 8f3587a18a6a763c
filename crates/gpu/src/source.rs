//! Generator of kernel source text for plans, in two dialects.
//!
//! Multiplication by a constant of GF(2^w) is linear over GF(2), so a plan is a matrix of bits between *rows*: row b of
//! a block holds bit b of every symbol. In the packets layout rows are stored in the block; in the words layout a
//! thread computes them from w words by a transposition in registers (`transpose`) and transposes its results back.
//!
//! A thread of the specialised kernel ([`specialised`]) executes, for its word of every row:
//!
//! ```text
//! for every input:                      unrolled: the matrix is in the code, not in memory
//!     load w rows
//!     for every four rows:              (1) the sums of their subsets, one operation each, at most 11
//!         c[s] = sum of the rows in s
//!     for every row of every output:
//!         a = a + c[low] + c[high]      (2) one instruction with three operands
//! store, or add to what is there
//! ```
//!
//! 1. Subsets are shared by all rows of all outputs ("four Russians"); only those that some row needs are computed.
//! 2. NVIDIA's `lop3` adds three words at once.
//! 3. Inputs are prefetched while the previous one is processed.
//! 4. Outputs that need more registers than available, or more code than the instruction cache holds, are split into
//!    several passes over the inputs ([`tuning`](crate::tuning)).
//! 5. In the words layout with many outputs, inputs are copied to shared memory four at a time, bypassing registers; a
//!    loop transposes them there, so that the code of the transposition exists once per stage and not once per input.
//!
//! The generic kernel ([`generic`]) runs the same algorithm with the matrix as data: one text for all plans of a width
//! and layout, slower, but without compilation per plan. On tensor cores for bit matrices, [`products`] is another such
//! kernel, faster with many outputs. [`stages`] contains its development steps for an experiment. [`method`] has
//! kernels that multiply symbols instead, for OpenCL.

mod additions;
mod blocks;
pub mod dialect;
pub mod generic;
pub mod method;
pub mod products;
pub mod specialised;
pub mod stages;
mod text;
pub mod transforms;
mod transpose;

pub use dialect::Dialect;

/// The text of a kernel and how to launch it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Source for the device's compiler.
    pub text: String,
    /// Launch parameters.
    pub launch: Launch,
    /// Operation counts of one thread.
    pub counts: Counts,
}

/// The name of the kernel's function in every text.
pub const ENTRY: &str = "gabion";

/// Division of a kernel's work into blocks of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Threads per block.
    pub threads: usize,
    /// Passes over the inputs, each for some of the outputs.
    pub passes: usize,
    /// Bytes of every device block that one thread covers.
    pub bytes_per_thread: usize,
}

impl Launch {
    /// The grid of thread blocks for `tiles` tiles.
    pub fn grid(&self, tiles: usize) -> [usize; 2] {
        // Passes are the outer dimension: the code of one pass stays in the instruction cache.
        [tiles, self.passes]
    }
}

/// Instructions of one thread that follow from the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Additions of two or three words.
    pub additions: usize,
    /// Shifts and selections of transpositions.
    pub transposing: usize,
    /// Words read from device memory or its caches.
    pub loaded: usize,
    /// Words written.
    pub stored: usize,
}

impl Counts {
    /// Total arithmetic instructions.
    pub fn arithmetic(&self) -> usize {
        self.additions + self.transposing
    }
}
