//! Plans as source text: one generator, two dialects.
//!
//! Multiplication by a constant of GF(2^w) is linear over GF(2), so a plan is a matrix of bits between *rows*: row
//! b of a block holds bit b of every symbol. In the packets layout rows lie in the block as they are; in the words layout
//! a thread makes them of w words by a transposition in registers (`transpose`) and turns its results back.
//!
//! A thread of the specialised kernel ([`specialised`]) does, for its word of every row,
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
//! 1. Subsets are shared by all rows of all outputs ("four Russians"); only those that some row needs are made.
//! 2. NVIDIA's `lop3` adds three words at once.
//! 3. Inputs are asked for before the one in front of them is worked on.
//! 4. Outputs that need more registers than there are, or more code than the cache of instructions holds, become
//!    several passes over the inputs ([`tuning`](crate::tuning)).
//! 5. In the words layout with many outputs, inputs come four at a time into shared memory, past the registers; a loop makes rows of
//!    them there, so that the code of the transposition stands there once per stage and not once per input.
//!
//! The generic kernel ([`generic`]) is the same walk with the matrix as data: one text for every plan of a width and
//! layout, slower, and ready at once. Where there are tensor cores that multiply bits, [`products`] is another one, and faster with many
//! outputs. [`stages`] shows how such kernels get fast. [`method`] has kernels that multiply symbols instead, for OpenCL.

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
    /// What the device's compiler is given.
    pub text: String,
    /// How work is cut.
    pub launch: Launch,
    /// What one thread does, counted while writing.
    pub counts: Counts,
}

/// The name of the kernel's function in every text.
pub const ENTRY: &str = "gabion";

/// How a kernel's work is cut into blocks of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Threads side by side in a block.
    pub threads: usize,
    /// Passes over the inputs, each for some of the outputs.
    pub passes: usize,
    /// Bytes of every device block that one thread covers.
    pub bytes_per_thread: usize,
}

impl Launch {
    /// Blocks of threads in the two dimensions of the grid, for `tiles` tiles.
    pub fn grid(&self, tiles: usize) -> [usize; 2] {
        // One pass over all data, then the next: the code of one stays in the cache of instructions.
        [tiles, self.passes]
    }
}

/// Instructions of one thread, as far as the text decides.
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
    /// Arithmetic instructions in all.
    pub fn arithmetic(&self) -> usize {
        self.additions + self.transposing
    }
}
