//! Interpreter of compiled programs: each step is executed for a tile of every block before the next step, so that
//! dispatch costs little. A register of the program is a tile in the L1 cache.

use super::Buffers;
use super::planes::load_partial;
use crate::bytemap::MapForm;
use crate::compiler::{Allocated, Location, Operand, Register, Step};
use crate::kernel::vector::Vector;
use crate::layout::Layout;
use crate::tuning::INTERPRETER_TILE;

/// A program prepared for one instruction set.
pub(in crate::kernel) struct Steps<V: Vector> {
    steps: Vec<Step>,
    /// The maps of the steps, in order.
    maps: Vec<V::Map>,
    registers: usize,
    slots: usize,
    /// Bytes of a packet and of a group; in the words layout a packet is as long as the block.
    packets: Option<(usize, usize)>,
}

impl<V: Vector> Steps<V> {
    pub(in crate::kernel) fn new(allocated: &Allocated, layout: Layout, granule: usize) -> Steps<V> {
        let maps = allocated.steps.iter().filter_map(|step| match step {
            Step::Map { map, .. } => Some(V::Map::prepare(*map)),
            Step::Nibble { .. } | Step::Look { .. } | Step::MapEach { .. } | Step::Shuffle { .. } => {
                unreachable!("programs for the interpreter have maps of whole registers only")
            }
            _ => None,
        });
        Steps {
            maps: maps.collect(),
            registers: allocated.registers(),
            slots: allocated.slots as usize,
            packets: match layout {
                Layout::Words => None,
                Layout::Packets { bytes } => Some((bytes, granule)),
            },
            steps: allocated.steps.clone(),
        }
    }
}

#[inline(always)]
pub(super) unsafe fn run<V: Vector>(steps: &Steps<V>, buffers: Buffers<'_, '_>) {
    let Buffers { inputs, outputs, len, .. } = buffers;
    let mut blocks: Vec<*mut u8> = inputs.iter().map(|input| input.as_ptr().cast_mut()).collect();
    blocks.extend(outputs.iter_mut().map(|output| output.as_mut_ptr()));
    let mut tiles = vec![0u8; (steps.registers + steps.slots) * INTERPRETER_TILE];
    let (packet, group) = steps.packets.unwrap_or((len, len.max(1)));
    for first in (0..len).step_by(group) {
        for start in (first..first + packet).step_by(INTERPRETER_TILE) {
            let size = INTERPRETER_TILE.min(first + packet - start);
            let tiles = tiles.as_mut_ptr();
            let columns = Columns { blocks: &blocks, tiles, start, size, packet, registers: steps.registers };
            // SAFETY: start + size is within the first packet of the group, and so within every packet of it; registers
            // and slots are below the counts of the program.
            unsafe { columns.run::<V>(&steps.steps, &steps.maps) }
        }
    }
}

/// One tile of all blocks.
struct Columns<'a> {
    blocks: &'a [*mut u8],
    /// Registers, then slots, [`INTERPRETER_TILE`] bytes each.
    tiles: *mut u8,
    start: usize,
    size: usize,
    packet: usize,
    registers: usize,
}

impl Columns<'_> {
    #[inline(always)]
    unsafe fn run<V: Vector>(&self, steps: &[Step], maps: &[V::Map]) {
        let mut maps = maps.iter();
        // SAFETY: passed on: places are within the blocks, registers and slots within the tiles.
        unsafe {
            for step in steps {
                match *step {
                    Step::Load { to, from } => {
                        let from = self.place(from);
                        from.copy_to_nonoverlapping(self.register(to), self.size);
                    }
                    Step::Store { from, to } => {
                        let to = self.place(to);
                        self.register(from).copy_to_nonoverlapping(to, self.size);
                    }
                    Step::Save { from, slot } => {
                        self.register(from).copy_to_nonoverlapping(self.slot(slot), INTERPRETER_TILE)
                    }
                    Step::Restore { to, slot } => {
                        self.slot(slot).copy_to_nonoverlapping(self.register(to), INTERPRETER_TILE)
                    }
                    Step::Zero { to } => self.register(to).write_bytes(0, INTERPRETER_TILE),
                    Step::Move { to, from } => {
                        self.register(from).copy_to_nonoverlapping(self.register(to), INTERPRETER_TILE)
                    }
                    Step::Map { to, from, .. } => {
                        let map = maps.next().expect("as many as there are steps with maps");
                        let (to, from) = (self.register(to), self.register(from));
                        for at in (0..self.size).step_by(V::BYTES) {
                            let x = V::load(from.add(at)).operand();
                            V::zero().add_mapped(x, map).store(to.add(at));
                        }
                    }
                    Step::Nibble { .. } | Step::Look { .. } | Step::MapEach { .. } | Step::Shuffle { .. } => {
                    }
                    Step::Add { to, a, b } => self.add::<V>(to, &[a], b),
                    Step::AddTwo { to, a, b } => self.add::<V>(to, &[to, a], b),
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn add<V: Vector>(&self, to: Register, terms: &[Register], last: Operand) {
        // SAFETY: a tile holds whole registers; of a block only the remaining bytes are read.
        unsafe {
            let (whole, last) = match last {
                Operand::Register(register) => (true, self.register(register)),
                Operand::Slot(slot) => (true, self.slot(slot)),
                Operand::Block(place) => (false, self.place(place)),
            };
            for at in (0..self.size).step_by(V::BYTES) {
                let left = self.size - at;
                let mut sum = if whole || left >= V::BYTES {
                    V::load(last.add(at))
                } else {
                    load_partial::<V, 1>(last.add(at), left)[0]
                };
                for &term in terms {
                    sum = sum.xor(V::load(self.register(term).add(at)));
                }
                sum.store(self.register(to).add(at));
            }
        }
    }

    /// Start of the tile of a location.
    #[inline(always)]
    unsafe fn place(&self, place: Location) -> *mut u8 {
        // SAFETY: by contract of `run`: within the block.
        unsafe { self.blocks[place.block as usize].add(self.start + place.packet as usize * self.packet) }
    }

    #[inline(always)]
    unsafe fn register(&self, register: Register) -> *mut u8 {
        // SAFETY: by contract of `run`: one of the program's registers.
        unsafe { self.tiles.add(register as usize * INTERPRETER_TILE) }
    }

    #[inline(always)]
    unsafe fn slot(&self, slot: u32) -> *mut u8 {
        // SAFETY: by contract of `run`: one of the program's slots.
        unsafe { self.tiles.add((self.registers + slot as usize) * INTERPRETER_TILE) }
    }
}
