//! Programs after register allocation, ready for emission or interpretation.

use super::program::{Half, Location, Shuffle};
use crate::bytemap::ByteMap;
use crate::layout::Layout;
use crate::plan::{Mode, Plan};

/// Limit of the spill slots of a routine, in bytes: they are on the caller's stack.
pub(super) const MAX_SLOT_BYTES: usize = 16 << 10;

/// Shape of the blocks that a program runs over.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(all(feature = "compiler", target_arch = "x86_64")),
    allow(dead_code, reason = "the interpreter has its plan")
)]
pub(crate) struct Form {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) mode: Mode,
    /// Bytes of a symbol; positions are multiples of it.
    pub(crate) symbol_bytes: usize,
    /// For packets: bytes of a packet and of a group.
    pub(crate) packets: Option<(usize, usize)>,
}

impl Form {
    pub(super) fn of(plan: &Plan) -> Form {
        Form {
            inputs: plan.inputs().len(),
            outputs: plan.outputs().len(),
            mode: plan.mode(),
            symbol_bytes: plan.field().word_bytes().unwrap_or(1),
            packets: match plan.layout() {
                Layout::Words => None,
                Layout::Packets { bytes } => Some((bytes, plan.granule())),
            },
        }
    }
}

/// A virtual register of the allocation. If an iteration covers several columns, each is emitted as that many machine
/// registers.
pub(crate) type Register = u8;

/// The second or third input of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(Register),
    /// A memory operand in a block.
    Block(Location),
    /// A memory operand in a spill slot.
    Slot(u32),
}

/// One instruction, or two where a machine needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Load {
        to: Register,
        from: Location,
    },
    Store {
        from: Register,
        to: Location,
    },
    /// Spills a register.
    Save {
        from: Register,
        slot: u32,
    },
    Restore {
        to: Register,
        slot: u32,
    },
    Zero {
        to: Register,
    },
    Move {
        to: Register,
        from: Register,
    },
    Map {
        to: Register,
        from: Register,
        map: ByteMap,
    },
    MapEach {
        to: Register,
        from: Register,
        maps: [ByteMap; 8],
    },
    Shuffle {
        to: Register,
        from: Register,
        shuffle: Shuffle,
    },
    Nibble {
        to: Register,
        from: Register,
        half: Half,
    },
    /// `to` differs from `from`.
    Look {
        to: Register,
        from: Register,
        map: ByteMap,
        half: Half,
    },
    /// to = a + b.
    Add {
        to: Register,
        a: Register,
        b: Operand,
    },
    /// to = to + a + b.
    AddTwo {
        to: Register,
        a: Register,
        b: Operand,
    },
}

/// Steps and their spill slots.
#[derive(Debug, Clone)]
pub(crate) struct Allocated {
    pub(crate) steps: Vec<Step>,
    /// Number of spill slots.
    pub(crate) slots: u32,
}

/// Operation counts of a program per column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Reads of blocks.
    pub loads: usize,
    /// Writes of blocks.
    pub stores: usize,
    /// Byte maps.
    pub maps: usize,
    /// Nibble lookups with their preparation; shuffles.
    pub look_ups: usize,
    /// Sums of two.
    pub adds: usize,
    /// Sums of three.
    pub adds_of_three: usize,
    /// Copies between registers.
    pub moves: usize,
    /// Registers spilled and restored.
    pub spills: usize,
}

impl Allocated {
    /// Number of registers used.
    pub(crate) fn registers(&self) -> usize {
        let highest = self.steps.iter().filter_map(|step| step.result()).max();
        highest.map_or(0, |highest| highest as usize + 1)
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for step in &self.steps {
            match step {
                Step::Load { .. } => counts.loads += 1,
                Step::Store { .. } => counts.stores += 1,
                Step::Save { .. } | Step::Restore { .. } => counts.spills += 1,
                Step::Zero { .. } | Step::Move { .. } => counts.moves += 1,
                Step::Map { .. } | Step::MapEach { .. } => counts.maps += 1,
                Step::Nibble { .. } | Step::Look { .. } | Step::Shuffle { .. } => counts.look_ups += 1,
                Step::Add { b, .. } | Step::AddTwo { b, .. } => {
                    match step {
                        Step::Add { .. } => counts.adds += 1,
                        _ => counts.adds_of_three += 1,
                    }
                    match b {
                        Operand::Register(_) => {}
                        Operand::Block(_) => counts.loads += 1,
                        Operand::Slot(_) => counts.spills += 1,
                    }
                }
            }
        }
        counts
    }
}

impl Step {
    /// The register it writes.
    pub(crate) fn result(&self) -> Option<Register> {
        match *self {
            Step::Store { .. } | Step::Save { .. } => None,
            Step::Load { to, .. }
            | Step::Restore { to, .. }
            | Step::Zero { to }
            | Step::Move { to, .. }
            | Step::Map { to, .. }
            | Step::MapEach { to, .. }
            | Step::Shuffle { to, .. }
            | Step::Nibble { to, .. }
            | Step::Look { to, .. }
            | Step::Add { to, .. }
            | Step::AddTwo { to, .. } => Some(to),
        }
    }
}
