//! Machine code for x86-64: a loop over the positions of the blocks with the program as its body.
//!
//! ```text
//! fn(blocks: *const *const u8, start: usize, end: usize, constants: *const u8, slots: *mut u8)    System V
//!    rdi                       rsi           rdx         rcx                   r8
//! ```
//!
//! An iteration covers `columns` registers of every block: each step of the program is emitted that many times, on
//! neighbouring machine registers, so that a pointer or a constant is fetched once for all of them. Machine registers
//! not used by the program hold the most used constants.

mod assembler;
mod constants;
#[cfg(feature = "measure")]
pub(super) mod loops;
mod pointers;
mod remainders;
mod vocabulary;

use super::machine::{Allocated, Operand, Register as Wide, Step};
use super::program::{Half, Location, Shuffle};
use super::target::Target;
use crate::tuning::WRITE_AHEAD;
use assembler::{Assembler, memory, register};
use constants::{Constant, Constants};
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use pointers::Pointers;
use remainders::Remainders;
pub(super) use remainders::TURNS as RING_ITERATIONS;
use vocabulary::Vocabulary;

/// The sum of three bits, as the truth table that `vpternlogd` takes.
const SUM_OF_THREE: u32 = 0x96;

const BLOCKS: Register = Register::RDI;
const POSITION: Register = Register::RSI;
const END: Register = Register::RDX;
const CONSTANTS: Register = Register::RCX;
const SLOTS: Register = Register::R8;

/// Parameters of the loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) target: Target,
    /// Registers of every block per iteration.
    pub(super) columns: usize,
    pub(super) walk: Walk,
    /// Bytes from one packet of a group to the next; unused in the words layout.
    pub(super) packet: usize,
}

/// Direction and prefetching of the loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    /// Cache level in which the blocks are expected.
    pub(super) locality: Locality,
    /// Prefetch distance of inputs, in bytes, if inputs are prefetched.
    pub(super) ahead: usize,
    /// True if the loop runs from the end of the blocks to their start.
    pub(super) descends: bool,
}

impl Walk {
    /// Ascending over blocks in the L1 cache.
    pub(super) const L1: Walk = Walk { locality: Locality::L1, ahead: 0, descends: false };
}

/// Cache level in which the blocks of a call are expected, which determines what the loop prefetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locality {
    /// L1 cache: nothing is prefetched.
    L1,
    /// L2 cache: the lines of outputs are prefetched for writing (`prefetchw`, a `nop` on CPUs without it). Stores
    /// retire in order, so a store that misses L1 delays all later ones.
    L2,
    /// Memory: the lines of inputs are prefetched. Outputs are written with non-temporal stores.
    Memory,
    /// Memory, with unaligned outputs, for which non-temporal stores are not possible: the lines of inputs and outputs
    /// are prefetched.
    MemoryUnaligned,
}

impl Locality {
    fn prefetches_inputs(self) -> bool {
        matches!(self, Locality::Memory | Locality::MemoryUnaligned)
    }

    fn prefetches_outputs(self) -> bool {
        matches!(self, Locality::L2 | Locality::MemoryUnaligned)
    }
}

impl Shape {
    /// Bytes of every block per iteration.
    pub(super) fn step(self) -> usize {
        self.columns * self.target.width
    }
}

/// Machine code and its constants.
#[derive(Debug)]
pub(super) struct Emitted {
    pub(super) code: Vec<u8>,
    /// Offset of the loop in the code.
    pub(super) head: usize,
    pub(super) constants: Vec<u8>,
}

/// Emits the loop; blocks from index `inputs` on are outputs.
pub(super) fn emit(allocated: &Allocated, shape: Shape, inputs: usize) -> Emitted {
    let constants = Constants::new(allocated, shape, allocated.registers() * shape.columns);
    let signs = allocated.steps.iter().filter_map(place_of).any(|place| place.as_remainder().is_some());
    let remainders = signs.then(|| Remainders::new(shape.step(), allocated.slots));
    let without_slots = allocated.slots == 0 && !signs;
    let spare = [without_slots.then_some(SLOTS), constants.are_resident().then_some(CONSTANTS)];
    let accesses = allocated.steps.iter().filter_map(place_of).filter(|place| place.as_remainder().is_none());
    let taken = if signs { Remainders::REGISTERS } else { 0 };
    let pointers = Pointers::new(accesses.map(|place| place.block), spare.into_iter().flatten(), taken);
    let mut body = Body {
        shape,
        inputs,
        words: Vocabulary::of(shape.target),
        constants,
        saved: pointers.saved(taken),
        pointers,
        remainders,
        assembler: Assembler::default(),
    };
    body.prologue();
    let head = body.assembler.here();
    if let Some(remainders) = &body.remainders {
        remainders.begin_turn(&mut body.assembler);
    }
    for &step in &allocated.steps {
        body.step(step);
    }
    body.epilogue(head);
    Emitted { code: body.assembler.finish(), head: head as usize, constants: body.constants.into_bytes() }
}

/// The location that a step reads or writes.
fn place_of(step: &Step) -> Option<Location> {
    match *step {
        Step::Load { from: place, .. }
        | Step::Store { to: place, .. }
        | Step::Add { b: Operand::Block(place), .. }
        | Step::AddTwo { b: Operand::Block(place), .. } => Some(place),
        _ => None,
    }
}

/// Machine code as text, one instruction per line.
#[cfg(feature = "measure")]
pub(super) fn disassemble(code: &[u8]) -> String {
    use iced_x86::{Decoder, DecoderOptions, Formatter as _, NasmFormatter};
    use std::fmt::Write as _;
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut formatter = NasmFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    let (mut text, mut instruction) = (String::new(), Instruction::default());
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        writeln!(text, "{:6x}  {line}", instruction.ip()).expect("a string takes any text");
    }
    text
}

struct Body {
    shape: Shape,
    inputs: usize,
    words: Vocabulary,
    constants: Constants,
    pointers: Pointers,
    /// The caller's registers that the loop writes.
    saved: Vec<Register>,
    /// State of divisions, for loops that sign.
    remainders: Option<Remainders>,
    assembler: Assembler,
}

impl Body {
    fn prologue(&mut self) {
        for &saved in &self.saved {
            self.assembler.with1(Code::Push_r64, saved);
        }
        if self.shape.walk.descends {
            // From the last iteration to the start of the range.
            self.assembler.with2_immediate(Code::Sub_rm64_imm32, END, self.shape.step() as i32);
            self.assembler.with2(Code::Xchg_rm64_r64, POSITION, END);
        }
        // Before pointers: one of them may reuse the register with the address of constants.
        for (constant, to) in self.constants.resident() {
            self.fetch_constant(constant, to);
        }
        for (block, to) in self.pointers.resident() {
            self.fetch_pointer(block, to);
        }
    }

    fn epilogue(&mut self, head: u64) {
        let step = self.shape.step() as i32;
        // A descending loop ends at a negative position.
        let (to_next, again) =
            if self.shape.walk.descends { (-step, Code::Jge_rel32_64) } else { (step, Code::Jb_rel32_64) };
        self.assembler.with2_immediate(Code::Add_rm64_imm32, POSITION, to_next);
        self.assembler.with2(Code::Cmp_r64_rm64, POSITION, END);
        self.assembler.branch(again, head);
        for &saved in self.saved.iter().rev() {
            self.assembler.with1(Code::Pop_r64, saved);
        }
        self.assembler.push(Instruction::with(Code::VEX_Vzeroupper));
        self.assembler.push(Instruction::with(Code::Retnq));
    }

    fn step(&mut self, step: Step) {
        let words = self.words;
        match step {
            Step::Load { to, from } => {
                let base = self.pointer(from);
                for column in 0..self.shape.columns {
                    self.prefetch_input(base, from, column);
                    let source = self.at(base, from, column, 0);
                    self.assembler.load(words.load, self.wide(to, column), source);
                }
            }
            Step::Store { from, to } => {
                let base = self.pointer(to);
                let is_output = to.as_remainder().is_none();
                let streams = is_output && self.shape.walk.locality == Locality::Memory;
                let code = if streams { words.stream } else { words.store };
                for column in 0..self.shape.columns {
                    if is_output && self.shape.walk.locality.prefetches_outputs() {
                        let ahead = self.at(base, to, column, WRITE_AHEAD);
                        self.assembler.push_memory(Code::Prefetchw_m8, ahead);
                    }
                    let target = self.at(base, to, column, 0);
                    self.assembler.store(code, target, self.wide(from, column));
                }
            }
            Step::Save { from, slot } => {
                for column in 0..self.shape.columns {
                    let target = self.slot(slot, column);
                    self.assembler.store(words.store, target, self.wide(from, column));
                }
            }
            Step::Restore { to, slot } => {
                for column in 0..self.shape.columns {
                    let source = self.slot(slot, column);
                    self.assembler.load(words.load, self.wide(to, column), source);
                }
            }
            Step::Zero { to } => {
                for column in 0..self.shape.columns {
                    let to = self.wide(to, column);
                    self.assembler.with3(words.add, to, to, to);
                }
            }
            Step::Move { to, from } => {
                for column in 0..self.shape.columns {
                    self.assembler.with2(words.copy, self.wide(to, column), self.wide(from, column));
                }
            }
            Step::Add { to, a, b } => self.add(words.add, None, to, a, b),
            Step::AddTwo { to, a, b } => self.add(words.add_two, Some(SUM_OF_THREE), to, a, b),
            Step::Map { to, from, map } => self.map(to, from, Constant::Affine(map)),
            Step::MapEach { to, from, maps } => self.map(to, from, Constant::AffineEach(maps)),
            Step::Shuffle { to, from, shuffle } => self.shuffle(to, from, shuffle),
            Step::Nibble { to, from, half } => self.nibble(to, from, half),
            Step::Look { to, from, map, half } => self.look(to, from, Constant::Table(map, half)),
        }
    }

    fn add(&mut self, code: Code, immediate: Option<u32>, to: Wide, a: Wide, b: Operand) {
        let base = match b {
            Operand::Block(place) => Some((self.pointer(place), place)),
            _ => None,
        };
        for column in 0..self.shape.columns {
            let (to, a) = (self.wide(to, column), self.wide(a, column));
            let b = match (b, base) {
                (Operand::Register(b), _) => Err(self.wide(b, column)),
                (Operand::Slot(slot), _) => Ok(self.slot(slot, column)),
                (Operand::Block(_), Some((base, place))) => {
                    self.prefetch_input(base, place, column);
                    Ok(self.at(base, place, column, 0))
                }
                (Operand::Block(_), None) => unreachable!("its pointer was loaded above"),
            };
            self.assembler.three(code, to, a, b, immediate);
        }
    }

    fn map(&mut self, to: Wide, from: Wide, constant: Constant) {
        let matrix = self.constant(constant);
        for column in 0..self.shape.columns {
            let (to, from) = (self.wide(to, column), self.wide(from, column));
            self.assembler.three(self.words.affine, to, from, matrix, Some(0));
        }
    }

    fn shuffle(&mut self, to: Wide, from: Wide, shuffle: Shuffle) {
        for column in 0..self.shape.columns {
            let (to, from) = (self.wide(to, column), self.wide(from, column));
            if let Shuffle::Rotate(eights) = shuffle {
                self.assembler.three(self.words.rotate, to, from, Err(from), Some(eights.into()));
            } else {
                let places = self.constants.register(Constant::Places(shuffle));
                self.assembler.with3(self.words.permute, to, places, from);
            }
        }
    }

    fn nibble(&mut self, to: Wide, from: Wide, half: Half) {
        let mask = self.constants.register(Constant::NibbleMask);
        for column in 0..self.shape.columns {
            let (to, mut from) = (self.wide(to, column), self.wide(from, column));
            if half == Half::High {
                self.assembler.shift(self.words.shift_right, to, from, 4);
                from = to;
            }
            self.assembler.with3(self.words.and, to, from, mask);
        }
    }

    fn look(&mut self, to: Wide, from: Wide, constant: Constant) {
        for column in 0..self.shape.columns {
            let (to, from) = (self.wide(to, column), self.wide(from, column));
            let table = match self.constants.resident_register(constant) {
                Some(table) => table,
                None => {
                    self.fetch_constant(constant, to);
                    to
                }
            };
            self.assembler.with3(self.words.shuffle, to, table, from);
        }
    }

    /// A constant as an operand: its register, a register into which it is loaded once for all columns, or its memory
    /// location.
    fn constant(&mut self, constant: Constant) -> Result<MemoryOperand, Register> {
        if let Some(resident) = self.constants.resident_register(constant) {
            return Err(resident);
        }
        match self.constants.passing_register() {
            Some(passing) => {
                self.fetch_constant(constant, passing);
                Err(passing)
            }
            None => {
                let offset = self.constants.offset(constant);
                let broadcast = self.shape.target.width == 64 && matches!(constant, Constant::Affine(_));
                Ok(assembler::constant(CONSTANTS, offset, broadcast))
            }
        }
    }

    fn fetch_constant(&mut self, constant: Constant, to: Register) {
        let source = memory(CONSTANTS, self.constants.offset(constant));
        let code = match constant {
            Constant::Affine(_) | Constant::NibbleMask => self.words.broadcast8,
            Constant::Table(..) => self.words.broadcast16,
            Constant::AffineEach(_) | Constant::Places(_) => self.words.load,
        };
        self.assembler.load(code, to, source);
    }

    /// The register with the address of a block, loaded if needed; for a remainder, the ring index of its iteration.
    fn pointer(&mut self, place: Location) -> Register {
        if let Some((remainders, (_, age))) = self.remainders.as_ref().zip(place.as_remainder()) {
            return remainders.index(age);
        }
        let (register, fetch) = self.pointers.get(place.block);
        if fetch {
            self.fetch_pointer(place.block, register);
        }
        register
    }

    fn fetch_pointer(&mut self, block: u32, to: Register) {
        self.assembler.load(Code::Mov_r64_rm64, to, memory(BLOCKS, 8 * block as usize));
    }

    /// Memory operand of a column of a location, or of the bytes `ahead` of it in the direction of the loop.
    fn at(&self, base: Register, place: Location, column: usize, ahead: usize) -> MemoryOperand {
        if let Some((remainders, (division, _))) = self.remainders.as_ref().zip(place.as_remainder()) {
            return assembler::indexed(
                SLOTS,
                base,
                (remainders.offset(division) + column * self.shape.target.width) as isize,
            );
        }
        let offset = (place.packet as usize * self.shape.packet + column * self.shape.target.width) as isize;
        let ahead = ahead as isize;
        let offset = if self.shape.walk.descends { offset - ahead } else { offset + ahead };
        assembler::indexed(base, POSITION, offset)
    }

    fn prefetch_input(&mut self, base: Register, place: Location, column: usize) {
        if self.shape.walk.locality.prefetches_inputs() && (place.block as usize) < self.inputs {
            let ahead = self.at(base, place, column, self.shape.walk.ahead);
            self.assembler.push_memory(Code::Prefetcht0_m8, ahead);
        }
    }

    fn slot(&self, slot: u32, column: usize) -> MemoryOperand {
        memory(SLOTS, slot as usize * self.shape.step() + column * self.shape.target.width)
    }

    /// The machine register of a column.
    fn wide(&self, wide: Wide, column: usize) -> Register {
        register(self.shape.target, wide as usize * self.shape.columns + column)
    }
}
