//! Operations and cases, with names that stay the same from run to run.

use super::BenchError;
use super::stage::SIGNATURE;
use gabion::size::Size;
use gabion_engine::code::Family;
use gabion_engine::kernel::{Backend, KernelSet};
use gabion_engine::{Code, Field, Layout};
use std::fmt;
use std::str::FromStr;

/// Operation of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// All redundancy of a stripe; counts the k data blocks.
    Encode,
    /// Lost data blocks from k others; counts k blocks.
    Repair,
    /// One data block changes: difference of old and new, added to all redundancy; counts that block.
    Update,
    /// One block times a constant; counts that block.
    Multiply,
    /// A signature of 64 bits of one block; counts that block.
    Sign,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 5] =
        [Operation::Encode, Operation::Repair, Operation::Update, Operation::Multiply, Operation::Sign];

    /// Its name in a case.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Encode => "encode",
            Operation::Repair => "repair",
            Operation::Update => "update",
            Operation::Multiply => "multiply",
            Operation::Sign => "sign",
        }
    }

    /// True if only the field of a code matters, not its shape.
    pub const fn needs_field_only(self) -> bool {
        matches!(self, Operation::Multiply | Operation::Sign)
    }
}

impl FromStr for Operation {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Operation, BenchError> {
        let known = Operation::ALL.into_iter().find(|operation| operation.name() == text);
        known.ok_or_else(|| {
            let known = Operation::ALL.map(Operation::name).join(", ");
            BenchError::UnknownOperation { name: text.to_owned(), known }
        })
    }
}

/// One operation on buffers of one size, for all kernels and limits.
#[derive(Debug, Clone)]
pub struct Case {
    /// The operation.
    pub operation: Operation,
    /// The code; for multiplication and signatures only its field matters.
    pub code: Code,
    /// Bytes of a block.
    pub block: usize,
    /// Threads that share the bytes.
    pub threads: usize,
    /// Blocks to repair; None for as many as the code can.
    pub lost: Option<usize>,
    /// Whether blocks start at odd addresses instead of cache lines.
    pub unaligned: bool,
    /// The kernels.
    pub rows: Vec<&'static KernelSet>,
    /// Kernels were selected by name, so that the name of the case contains them.
    pub names_kernels: bool,
}

impl Case {
    /// A case whose plan is explained, not run: empty blocks and no kernels.
    pub fn unmeasured(operation: Operation, code: Code) -> Case {
        let (lost, rows) = (None, Vec::new());
        Case { operation, code, block: 0, threads: 1, lost, unaligned: false, rows, names_kernels: false }
    }

    /// Its name with the kernel `row`: operation, shape, size, options.
    pub fn name(&self, row: &KernelSet) -> String {
        format!("{} {} {}{}", self.operation, self.shape(), Size(self.block), self.options(row))
    }

    /// The end of the name: options other than operation, shape and size, each after a space.
    pub fn options(&self, row: &KernelSet) -> String {
        let mut options = String::new();
        if let (Operation::Repair, Some(lost)) = (self.operation, self.lost) {
            options += &format!(" lost={lost}");
        }
        if self.threads != 1 {
            options += &format!(" {}threads", self.threads);
        }
        if self.unaligned {
            options += " unaligned";
        }
        if self.names_kernels {
            options += &format!(" kernel={}", row.name());
        }
        options
    }

    /// The code in the name: its shape and what differs from the default.
    pub fn shape(&self) -> String {
        if self.operation.needs_field_only() {
            return format!("w{}", self.code.field().w());
        }
        short(&self.code)
    }

    /// Number of blocks to repair.
    pub fn lost(&self) -> usize {
        self.lost.unwrap_or(self.code.m().min(self.code.k()))
    }

    /// The columns to repair: data first, which costs most.
    pub fn lost_columns(&self) -> Vec<usize> {
        (0..self.lost()).collect()
    }

    /// Counted bytes of one pass.
    pub fn counted(&self) -> usize {
        match self.operation {
            Operation::Encode | Operation::Repair => self.code.k() * self.block,
            Operation::Update | Operation::Multiply | Operation::Sign => self.block,
        }
    }

    /// Fails if the case cannot be measured.
    ///
    /// # Errors
    /// A block that the layout cannot fill, a code without redundancy, more losses than it survives.
    pub fn check(&self) -> Result<(), BenchError> {
        let (code, block, granule) = (self.code.to_string(), self.block, self.granule());
        if !block.is_multiple_of(granule) {
            return Err(BenchError::Granule { code, block, granule });
        }
        if self.operation.needs_field_only() {
            self.code.field().word_bytes()?;
            return Ok(());
        }
        if self.code.m() == 0 {
            return Err(BenchError::NoRedundancy { code });
        }
        if self.operation == Operation::Repair && !(1..=self.code.m()).contains(&self.lost()) {
            return Err(BenchError::Lost { code, lost: self.lost(), limit: self.code.m() });
        }
        Ok(())
    }

    /// Fails unless the block is a whole number of units of the layout.
    pub fn fits(&self) -> bool {
        self.block.is_multiple_of(self.granule())
    }

    fn granule(&self) -> usize {
        match self.operation {
            Operation::Multiply => self.code.field().word_bytes().unwrap_or(1),
            Operation::Sign => SIGNATURE,
            _ => self.code.granule(),
        }
    }
}

/// The identity of a code without default parts.
pub fn short(code: &Code) -> String {
    let mut text = match code.family() {
        family if family == Family::default() => String::new(),
        family => format!("{}:", family.name()),
    };
    text += &format!("{}+{}", code.k(), code.m());
    if code.field() != Field::GF8 {
        text += &format!(":w{}", code.field().w());
    }
    if let Layout::Packets { bytes } = code.layout() {
        text += &format!(":packets={bytes}");
    }
    text
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::kernel::kernel_sets;

    fn case(operation: Operation, code: &str) -> Case {
        let code = code.parse().unwrap();
        let rows = vec![&kernel_sets()[0]];
        Case {
            operation,
            code,
            block: 64 << 10,
            threads: 1,
            lost: None,
            unaligned: false,
            rows,
            names_kernels: false,
        }
    }

    #[test]
    fn names_hold_what_is_not_the_default() {
        let scalar = &kernel_sets()[0];
        let mut it = case(Operation::Encode, "10+4");
        assert_eq!(it.name(scalar), "encode 10+4 64KiB");
        (it.threads, it.names_kernels, it.lost) = (2, true, Some(1));
        assert_eq!(it.name(scalar), "encode 10+4 64KiB 2threads kernel=scalar");
        (it.operation, it.unaligned) = (Operation::Repair, true);
        assert_eq!(it.name(scalar), "repair 10+4 64KiB lost=1 2threads unaligned kernel=scalar");
        let packets = case(Operation::Update, "cauchy-good:10+4:w4:packets=2048");
        assert_eq!(packets.name(scalar), "update cauchy-good:10+4:w4:packets=2048 64KiB");
        assert_eq!(case(Operation::Multiply, "3+2:w16").name(scalar), "multiply w16 64KiB");
    }

    /// The short form of a name is parsed to the same code.
    #[test]
    fn short_forms_are_identities() {
        for text in
            ["10+4", "rs-vandermonde:10+4", "raidz:8+3", "cauchy:6+3:w16", "cauchy-good:10+4:w4:packets=2048"]
        {
            let code: Code = text.parse().unwrap();
            assert_eq!(short(&code), text);
            assert_eq!(short(&code).parse::<Code>().unwrap(), code);
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let mut it = case(Operation::Repair, "4+2");
        it.lost = Some(3);
        assert!(matches!(it.check(), Err(BenchError::Lost { lost: 3, limit: 2, .. })));
        it.lost = Some(0);
        assert!(matches!(it.check(), Err(BenchError::Lost { lost: 0, .. })));
        let mut it = case(Operation::Encode, "cauchy:4+2:w4:packets=2048");
        it.block = 4096;
        assert!(matches!(it.check(), Err(BenchError::Granule { block: 4096, granule: 8192, .. })));
        let it = case(Operation::Encode, "4+0");
        assert!(matches!(it.check(), Err(BenchError::NoRedundancy { .. })));
    }
}
