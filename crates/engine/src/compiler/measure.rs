//! Measuring loops: the cost of the instructions used for coding, and the bandwidth and latency of memory.
//!
//! The loops are emitted as machine code, so that exactly the named instructions run: a compiler would remove loads
//! with unused results. Nothing here reads a clock; the caller does. On a CPU without the instructions of a loop its
//! constructor returns [`MeasureError::Unsupported`] with the missing feature.

#[cfg_attr(not(all(feature = "compiler", target_arch = "x86_64")), path = "measure/no_pages.rs")]
mod pages;

use pages::Pages;
use std::fmt;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Instructions per iteration of [`Repeated`].
pub const REPEATS: usize = 24;

/// Loads per iteration of [`Chase`].
pub const CHASED: usize = 16;

/// Register width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// General registers of 64 bits.
    Scalar,
    /// SSE registers, with the instructions of AVX.
    Bits128,
    /// AVX registers.
    Bits256,
    /// AVX-512 registers.
    Bits512,
}

impl Width {
    /// All widths, the narrowest first.
    pub const ALL: [Width; 4] = [Width::Scalar, Width::Bits128, Width::Bits256, Width::Bits512];

    /// Bytes of a register.
    pub const fn bytes(self) -> usize {
        match self {
            Width::Scalar => 8,
            Width::Bits128 => 16,
            Width::Bits256 => 32,
            Width::Bits512 => 64,
        }
    }

    /// The widest one that this CPU supports for loads and stores.
    pub fn widest() -> Width {
        let works = |width: &Width| missing(Operation::Load, *width).is_none();
        Width::ALL.into_iter().rev().find(works).unwrap_or(Width::Scalar)
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Width::Scalar => f.pad("scalar"),
            wide => f.pad(&format!("{} bit", 8 * wide.bytes())),
        }
    }
}

/// Instructions used for coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Load from the L1 cache.
    Load,
    /// Store to the L1 cache.
    Store,
    /// Sums in a field of characteristic 2.
    Xor,
    /// Any function of three bits, such as the sum of three.
    Ternary,
    /// By a constant number of bits.
    Shift,
    /// Byte shuffle, as used for nibble lookups.
    Shuffle,
    /// A bit matrix times every byte (GFNI).
    Affine,
    /// Multiplication of polynomials over GF(2), 64 by 64 bits in every 128.
    Multiply,
}

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 8] = [
        Operation::Load,
        Operation::Store,
        Operation::Xor,
        Operation::Ternary,
        Operation::Shift,
        Operation::Shuffle,
        Operation::Affine,
        Operation::Multiply,
    ];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Load => "load",
            Operation::Store => "store",
            Operation::Xor => "xor",
            Operation::Ternary => "ternary",
            Operation::Shift => "shift",
            Operation::Shuffle => "shuffle",
            Operation::Affine => "affine",
            Operation::Multiply => "clmul",
        }
    }
}

/// Access pattern of loads over a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// One register per iteration.
    Plain,
    /// Four registers per iteration, and at least a line.
    Unrolled,
    /// The same, with a prefetch of every line.
    Prefetched {
        /// Prefetch distance in bytes.
        ahead: usize,
    },
}

impl Access {
    /// Bytes per iteration.
    pub fn turn(self, width: Width) -> usize {
        match self {
            Access::Plain => width.bytes(),
            Access::Unrolled | Access::Prefetched { .. } => (4 * width.bytes()).max(LINE),
        }
    }
}

/// Kind of stores of outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Through the caches: a line is read for ownership before it is written.
    Ordinary,
    /// Non-temporal stores, past the caches.
    NonTemporal,
}

/// Order of the elements of a pointer chase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Descending addresses, as in lmbench; hardware prefetchers can detect it.
    Descending,
    /// Random with this seed; prefetchers cannot predict it.
    Random(u64),
}

/// Reason why a loop cannot be created or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The CPU lacks an instruction set.
    #[error("{operation} with {width} registers needs {needs}")]
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// The register width.
        width: Width,
        /// The missing instruction set.
        needs: &'static str,
    },
    /// The build or the architecture has no machine code generator.
    #[error("loops are emitted for x86-64 only, and with the engine's feature `compiler`")]
    NoMachineCode,
    /// The system provides no executable pages.
    #[error("no executable pages")]
    Pages(#[from] std::io::Error),
    /// A buffer of an unsupported size.
    #[error("{what} of {bytes} bytes: must be a positive multiple of {unit}")]
    Buffer {
        /// Which.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// The required unit.
        unit: usize,
    },
    /// A wrong number of blocks, different lengths, or outputs not aligned to cache lines.
    #[error(
        "{inputs} inputs and {outputs} outputs of equal length are needed, outputs aligned to {LINE} bytes"
    )]
    Blocks {
        /// Inputs of the loop.
        inputs: usize,
        /// Outputs of the loop.
        outputs: usize,
    },
}

/// The instruction set that this CPU lacks for an operation; `None` if it is supported.
pub fn missing(operation: Operation, width: Width) -> Option<&'static str> {
    pages::missing(operation, width)
}

fn refused(operation: Operation, width: Width) -> Result<(), MeasureError> {
    match missing(operation, width) {
        None => Ok(()),
        Some(needs) => Err(MeasureError::Unsupported { operation: operation.name(), width, needs }),
    }
}

/// Throughput of one instruction: independent repetitions in a loop.
#[derive(Debug)]
pub struct Repeated {
    pages: Pages,
    place: Box<Lines>,
    width: Width,
}

/// Target of loads and stores.
#[derive(Debug)]
#[repr(C, align(64))]
struct Lines([u8; REPEATS * LINE]);

impl Repeated {
    /// Creates the loop for an instruction.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn new(operation: Operation, width: Width) -> Result<Repeated, MeasureError> {
        refused(operation, width)?;
        let place = Box::new(Lines([0x5a; REPEATS * LINE]));
        Ok(Repeated { pages: Pages::repeated(operation, width)?, place, width })
    }

    /// Bytes per iteration over all registers.
    pub fn turn_bytes(&self) -> usize {
        REPEATS * self.width.bytes()
    }

    /// Runs the given number of iterations, at least one.
    pub fn run(&mut self, turns: u32) {
        self.pages.over_lines(&mut self.place.0, turns.max(1) as usize);
    }
}

/// Sequential loads over a buffer.
#[derive(Debug)]
pub struct Loads {
    pages: Pages,
    unit: usize,
}

impl Loads {
    /// Creates the loop.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn new(width: Width, access: Access) -> Result<Loads, MeasureError> {
        refused(Operation::Load, width)?;
        Ok(Loads { pages: Pages::loads(width, access)?, unit: access.turn(width) })
    }

    /// Unit of the buffer length.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Loads the buffer `passes` times, at least once.
    ///
    /// # Errors
    /// [`MeasureError::Buffer`].
    pub fn run(&self, buffer: &[u8], passes: u32) -> Result<(), MeasureError> {
        if buffer.is_empty() || !buffer.len().is_multiple_of(self.unit) {
            return Err(MeasureError::Buffer { what: "a buffer", bytes: buffer.len(), unit: self.unit });
        }
        self.pages.over_buffer(buffer, self.unit, passes.max(1) as usize);
        Ok(())
    }
}

/// Concurrent streams like those of an encoder: k inputs are loaded, m outputs stored, without computation.
#[derive(Debug)]
pub struct Streams {
    pages: Pages,
    inputs: usize,
    outputs: usize,
}

impl Streams {
    /// Creates the loop with the widest registers. Inputs are prefetched `ahead` bytes; 0 disables prefetching.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn new(inputs: usize, outputs: usize, stores: Stores, ahead: usize) -> Result<Streams, MeasureError> {
        let width = Width::widest();
        refused(Operation::Load, width)?;
        if inputs == 0 {
            return Err(MeasureError::Blocks { inputs: 1, outputs });
        }
        Ok(Streams { pages: Pages::streams(width, (inputs, outputs), (stores, ahead))?, inputs, outputs })
    }

    /// Runs over all blocks once. Outputs then hold bytes of inputs.
    ///
    /// # Errors
    /// [`MeasureError::Blocks`], [`MeasureError::Buffer`].
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), MeasureError> {
        let lengths =
            || inputs.iter().map(|block| block.len()).chain(outputs.iter().map(|block| block.len()));
        let bytes = lengths().next().unwrap_or(0);
        let aligned = outputs.iter().all(|block| block.as_ptr().addr().is_multiple_of(LINE));
        let fitting = (inputs.len(), outputs.len()) == (self.inputs, self.outputs);
        if !fitting || !aligned || lengths().any(|length| length != bytes) {
            return Err(MeasureError::Blocks { inputs: self.inputs, outputs: self.outputs });
        }
        if bytes == 0 || !bytes.is_multiple_of(LINE) {
            return Err(MeasureError::Buffer { what: "a block", bytes, unit: LINE });
        }
        self.pages.over_blocks(inputs, outputs, bytes);
        Ok(())
    }
}

/// Pointer chase: each load depends on the address loaded before it.
#[derive(Debug)]
pub struct Chase {
    pages: Pages,
    ring: pages::Ring,
}

impl Chase {
    /// Creates a ring through `bytes` bytes with one element every `stride` bytes.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn new(bytes: usize, stride: usize, order: Order) -> Result<Chase, MeasureError> {
        let word = size_of::<usize>();
        if stride == 0 || !stride.is_multiple_of(word) {
            return Err(MeasureError::Buffer { what: "a stride", bytes: stride, unit: word });
        }
        if bytes < stride || !bytes.is_multiple_of(stride) {
            return Err(MeasureError::Buffer { what: "a working set", bytes, unit: stride });
        }
        let pages = Pages::chase()?;
        let ring = pages.ring(bytes, &stops(bytes / stride, order), stride / word);
        Ok(Chase { pages, ring })
    }

    /// Elements of the ring.
    pub fn stops(&self) -> usize {
        self.pages.stops(&self.ring)
    }

    /// Continues for [`CHASED`] loads per iteration, at least one iteration.
    pub fn run(&mut self, turns: u32) {
        self.pages.around(&mut self.ring, turns.max(1) as usize);
    }
}

/// The elements in the order of visits, each once.
fn stops(count: usize, order: Order) -> Vec<usize> {
    let mut stops: Vec<usize> = (0..count).rev().collect();
    if let Order::Random(seed) = order {
        let mut state = seed;
        for left in (1..count).rev() {
            // SplitMix64 leaves no pattern for a prefetcher.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            stops.swap(left, ((mixed ^ (mixed >> 31)) % (left as u64 + 1)) as usize);
        }
    }
    stops
}

#[cfg(test)]
mod tests;
