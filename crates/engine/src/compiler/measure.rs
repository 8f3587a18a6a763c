//! Loops that only measure: what the instructions cost that coding is made of, and what memory gives.
//!
//! The loops are emitted, so that exactly the instructions run that the names say: no compiler removes a load whose
//! value nobody reads. Nothing here reads a clock; whoever measures does. A loop exists only where the CPU has its
//! instructions: making one gives [`MeasureError::Unsupported`] elsewhere, with what is missing.

#[cfg_attr(not(all(feature = "compiler", target_arch = "x86_64")), path = "measure/no_pages.rs")]
mod pages;

use pages::Pages;
use std::fmt;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Instructions of a turn of [`Repeated`].
pub const REPEATS: usize = 24;

/// Loads of a turn of [`Chase`].
pub const CHASED: usize = 16;

/// How wide registers are.
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
    /// All of them, the narrowest first.
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

    /// The widest one with which this CPU can load and store.
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

/// What coding is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// From the nearest cache.
    Load,
    /// Into the nearest cache.
    Store,
    /// Sums in a field of characteristic 2.
    Xor,
    /// Any function of three bits, such as the sum of three.
    Ternary,
    /// By a constant number of bits.
    Shift,
    /// Bytes picked by bytes: look-ups of nibbles.
    Shuffle,
    /// A bit matrix times every byte (GFNI).
    Affine,
    /// Multiplication of polynomials over GF(2), 64 by 64 bits in every 128.
    Multiply,
}

impl Operation {
    /// All of them.
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

/// How a buffer is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// One register per turn of the loop.
    Plain,
    /// Four registers per turn, and at least a line.
    Unrolled,
    /// The same, and every line asked for so many bytes ahead.
    Prefetched {
        /// Bytes ahead.
        ahead: usize,
    },
}

impl Access {
    /// Bytes of a turn of the loop.
    pub fn turn(self, width: Width) -> usize {
        match self {
            Access::Plain => width.bytes(),
            Access::Unrolled | Access::Prefetched { .. } => (4 * width.bytes()).max(LINE),
        }
    }
}

/// How outputs are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Through the caches: a line is read before it is written.
    Ordinary,
    /// Past them.
    NonTemporal,
}

/// The order of a chase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the end to the beginning, as lmbench goes: prefetchers that look for it follow.
    Descending,
    /// By chance, from this seed: nobody can follow.
    Random(u64),
}

/// Why there is no such loop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The CPU lacks something.
    #[error("{operation} with {width} registers needs {needs}")]
    Unsupported {
        /// What was to be measured.
        operation: &'static str,
        /// With which registers.
        width: Width,
        /// What is missing.
        needs: &'static str,
    },
    /// A build, or an architecture, without machine code.
    #[error("loops are emitted for x86-64 only, and with the engine's feature `compiler`")]
    NoMachineCode,
    /// The system gives no executable pages.
    #[error("no executable pages")]
    Pages(#[from] std::io::Error),
    /// Memory that a loop cannot run over.
    #[error("{what} of {bytes} bytes: it takes a multiple of {unit}, and more than none")]
    Buffer {
        /// Which.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// What it must be a multiple of.
        unit: usize,
    },
    /// More or fewer blocks than a loop was made for, or of different lengths, or not aligned for stores past the
    /// caches.
    #[error(
        "{inputs} inputs and {outputs} outputs of equal length at addresses that {LINE} divides are needed"
    )]
    Blocks {
        /// Inputs it was made for.
        inputs: usize,
        /// Outputs it was made for.
        outputs: usize,
    },
}

/// What this CPU lacks for an operation; nothing if it can do it.
pub fn missing(operation: Operation, width: Width) -> Option<&'static str> {
    pages::missing(operation, width)
}

fn refused(operation: Operation, width: Width) -> Result<(), MeasureError> {
    match missing(operation, width) {
        None => Ok(()),
        Some(needs) => Err(MeasureError::Unsupported { operation: operation.name(), width, needs }),
    }
}

/// One instruction again and again, with nothing to wait for.
#[derive(Debug)]
pub struct Repeated {
    pages: Pages,
    place: Box<Lines>,
    width: Width,
}

/// What loads and stores go to.
#[derive(Debug)]
#[repr(C, align(64))]
struct Lines([u8; REPEATS * LINE]);

impl Repeated {
    /// A loop of this instruction.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn new(operation: Operation, width: Width) -> Result<Repeated, MeasureError> {
        refused(operation, width)?;
        let place = Box::new(Lines([0x5a; REPEATS * LINE]));
        Ok(Repeated { pages: Pages::repeated(operation, width)?, place, width })
    }

    /// Bytes that one turn goes over, all registers together.
    pub fn turn_bytes(&self) -> usize {
        REPEATS * self.width.bytes()
    }

    /// So many turns, at least one.
    pub fn run(&mut self, turns: u32) {
        self.pages.over_lines(&mut self.place.0, turns.max(1) as usize);
    }
}

/// Loads of all of a buffer.
#[derive(Debug)]
pub struct Loads {
    pages: Pages,
    unit: usize,
}

impl Loads {
    /// A loop over buffers.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn new(width: Width, access: Access) -> Result<Loads, MeasureError> {
        refused(Operation::Load, width)?;
        Ok(Loads { pages: Pages::loads(width, access)?, unit: access.turn(width) })
    }

    /// What the length of a buffer must be a multiple of.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Loads all of it so many times, at least once.
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

/// Several streams at once, as an encoder has them: k inputs are loaded, m outputs stored, nothing computed.
#[derive(Debug)]
pub struct Streams {
    pages: Pages,
    inputs: usize,
    outputs: usize,
}

impl Streams {
    /// A loop over blocks, with the widest registers there are. Inputs are asked for so many bytes `ahead`, with 0 not
    /// at all.
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

    /// Goes over all blocks once. What outputs hold then are bytes of inputs.
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

/// Loads that each wait for the one before: its value is their address.
#[derive(Debug)]
pub struct Chase {
    pages: Pages,
    ring: pages::Ring,
}

impl Chase {
    /// A ring through `bytes` bytes, a stop every `stride` bytes.
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

    /// Stops of the ring.
    pub fn stops(&self) -> usize {
        self.pages.stops(&self.ring)
    }

    /// Goes on for [`CHASED`] loads per turn, at least one turn.
    pub fn run(&mut self, turns: u32) {
        self.pages.around(&mut self.ring, turns.max(1) as usize);
    }
}

/// The stops in the order in which they are visited, each once.
fn stops(count: usize, order: Order) -> Vec<usize> {
    let mut stops: Vec<usize> = (0..count).rev().collect();
    if let Order::Random(seed) = order {
        let mut state = seed;
        for left in (1..count).rev() {
            // SplitMix64: enough to leave no pattern that a prefetcher finds.
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
