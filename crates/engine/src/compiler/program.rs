//! The small language between plans and machine code: a straight-line program over registers of bytes.
//!
//! A program says what happens to one column of registers, the same at every position of the blocks: loads, byte
//! maps (a multiplication by a constant is one), sums of any number of values. Each operation is made once;
//! asking for it again gives the same value. The order of the operations is the schedule.

use crate::bytemap::ByteMap;
use std::collections::{HashMap, HashSet};

/// The result of an operation: its place in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Value(pub(crate) u32);

impl Value {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a register of bytes lies: a block, and in the packets layout a packet of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Location {
    /// Inputs are numbered from 0, outputs follow them.
    pub(crate) block: u32,
    /// Packet in the group; 0 in the words layout.
    pub(crate) packet: u32,
}

/// How many turns of the loop ago a remainder was written, for signatures that the program divides for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// Eight: the newest one takes its place.
    Eighth,
    /// Seven.
    Seventh,
    /// One.
    Last,
}

impl Location {
    /// The number of no block: it stands for the remainders that a loop keeps.
    const REMAINDERS: u32 = u32::MAX;
    const AGES: [Age; 3] = [Age::Eighth, Age::Seventh, Age::Last];

    /// A remainder of a division. Stored is always to the place of the oldest.
    pub(crate) fn remainder(division: usize, age: Age) -> Location {
        Location {
            block: Location::REMAINDERS,
            packet: (Location::AGES.len() * division) as u32 + age as u32,
        }
    }

    /// The division and the age, where it is a remainder.
    pub(crate) fn as_remainder(self) -> Option<(usize, Age)> {
        let (packet, ages) = (self.packet as usize, Location::AGES.len());
        (self.block == Location::REMAINDERS).then(|| (packet / ages, Location::AGES[packet % ages]))
    }
}

/// Half of every byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    Low,
    High,
}

/// Where the bytes of a register go. Symbols of several bytes are gathered by byte: first the lowest bytes of all
/// symbols, then the second ones, and so on, so that eight bytes in a row mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Shuffle {
    /// From symbols of so many bytes.
    Gather(u8),
    /// Back to symbols of so many bytes.
    Scatter(u8),
    /// So many times eight bytes towards the start, around the end.
    Rotate(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// The bytes at a place, as they were before the program ran.
    Load(Location),
    /// A GF(2)-linear map of every byte.
    Map(Value, ByteMap),
    /// The same with a map for each eight bytes of the register.
    MapEach(Value, [ByteMap; 8]),
    /// The bytes of a register in another order.
    Shuffle(Value, Shuffle),
    /// The sum of the values; of none, zero.
    Sum(Vec<Value>),
    /// Half of every byte, as a number below 16.
    Nibble(Value, Half),
    /// For every byte, which is below 16: the image of it as this half of a byte.
    Look(Value, ByteMap, Half),
}

impl Op {
    /// The values it is made of.
    pub(crate) fn operands(&self) -> &[Value] {
        match self {
            Op::Load(_) => &[],
            Op::Map(of, _)
            | Op::MapEach(of, _)
            | Op::Shuffle(of, _)
            | Op::Nibble(of, _)
            | Op::Look(of, _, _) => std::slice::from_ref(of),
            Op::Sum(terms) => terms,
        }
    }

    /// The same operation on other values.
    pub(crate) fn rename(&self, mut to: impl FnMut(Value) -> Value) -> Op {
        match self {
            Op::Load(place) => Op::Load(*place),
            Op::Map(of, map) => Op::Map(to(*of), *map),
            Op::MapEach(of, maps) => Op::MapEach(to(*of), *maps),
            Op::Shuffle(of, shuffle) => Op::Shuffle(to(*of), *shuffle),
            Op::Nibble(of, half) => Op::Nibble(to(*of), *half),
            Op::Look(of, map, half) => Op::Look(to(*of), *map, *half),
            Op::Sum(terms) => Op::Sum(terms.iter().map(|&term| to(term)).collect()),
        }
    }
}

/// Operations in the order they are done, and what is stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    ops: Vec<Op>,
    known: HashMap<Op, Value>,
    outputs: Vec<(Location, Value)>,
}

impl Program {
    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }

    pub(crate) fn op(&self, value: Value) -> &Op {
        &self.ops[value.index()]
    }

    /// What is stored where.
    pub(crate) fn outputs(&self) -> &[(Location, Value)] {
        &self.outputs
    }

    /// The value of an operation, made now if it was not before.
    pub(crate) fn make(&mut self, op: Op) -> Value {
        if let Some(&value) = self.known.get(&op) {
            return value;
        }
        let value =
            Value(u32::try_from(self.ops.len()).expect("programs are bounded far below 2^32 operations"));
        self.ops.push(op.clone());
        self.known.insert(op, value);
        value
    }

    pub(crate) fn load(&mut self, block: usize, packet: usize) -> Value {
        self.make(Op::Load(Location { block: block as u32, packet: packet as u32 }))
    }

    /// The image of a value, `None` for zero; the identity costs nothing.
    pub(crate) fn map(&mut self, of: Value, map: ByteMap) -> Option<Value> {
        if map.is_zero() {
            None
        } else if map.is_identity() {
            Some(of)
        } else {
            Some(self.make(Op::Map(of, map)))
        }
    }

    /// The sum of terms, `None` for zero. Equal terms cancel in pairs; one term is its own sum.
    pub(crate) fn sum(&mut self, terms: impl IntoIterator<Item = Value>) -> Option<Value> {
        let mut odd: Vec<Value> = Vec::new();
        for term in terms {
            match odd.iter().position(|&other| other == term) {
                Some(place) => drop(odd.remove(place)),
                None => odd.push(term),
            }
        }
        // One order, so that equal sums are one value.
        odd.sort_unstable();
        match odd[..] {
            [] => None,
            [only] => Some(only),
            _ => Some(self.make(Op::Sum(odd))),
        }
    }

    /// Stores a value, or zeros.
    pub(crate) fn store(&mut self, place: Location, value: Option<Value>) {
        let value = value.unwrap_or_else(|| self.make(Op::Sum(Vec::new())));
        self.outputs.push((place, value));
    }

    /// Appends the outputs of another program, whose values are found by `to`.
    pub(crate) fn store_renamed(&mut self, from: &Program, to: impl Fn(Value) -> Value) {
        self.outputs.extend(from.outputs.iter().map(|&(place, value)| (place, to(value))));
    }

    /// How often each value is used, as an operand or as an output.
    pub(crate) fn uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.ops.len()];
        let operands = self.ops.iter().flat_map(|op| op.operands());
        operands
            .chain(self.outputs.iter().map(|(_, value)| value))
            .for_each(|value| uses[value.index()] += 1);
        uses
    }

    /// How many blocks it reads and writes.
    pub(crate) fn blocks(&self) -> usize {
        let loads = self.ops.iter().filter_map(|op| match op {
            Op::Load(place) => Some(place),
            _ => None,
        });
        let places = loads.chain(self.outputs.iter().map(|(place, _)| place));
        let blocks = places.filter(|place| place.as_remainder().is_none()).map(|place| place.block);
        blocks.collect::<HashSet<_>>().len()
    }

    /// How many maps it has.
    pub(crate) fn products(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op, Op::Map(..) | Op::MapEach(..))).count()
    }

    /// The program without what no output needs.
    pub(crate) fn without_dead_code(&self) -> Program {
        let mut needed = vec![false; self.ops.len()];
        self.outputs.iter().for_each(|(_, value)| needed[value.index()] = true);
        for index in (0..self.ops.len()).rev() {
            if needed[index] {
                self.ops[index].operands().iter().for_each(|value| needed[value.index()] = true);
            }
        }
        let mut kept = Program::default();
        let mut renamed = vec![Value(u32::MAX); self.ops.len()];
        for (index, op) in self.ops.iter().enumerate().filter(|(index, _)| needed[*index]) {
            renamed[index] = kept.make(op.rename(|value| renamed[value.index()]));
        }
        kept.store_renamed(self, |value| renamed[value.index()]);
        kept
    }

    /// The program that stores only what goes to these blocks.
    pub(crate) fn for_blocks(&self, blocks: std::ops::Range<usize>) -> Program {
        let mut part = self.clone();
        part.outputs.retain(|(place, _)| blocks.contains(&(place.block as usize)));
        part.without_dead_code()
    }

    /// What the outputs are where every place holds the byte `load(place)`: what programs mean.
    #[cfg(test)]
    pub(crate) fn evaluate(&self, load: impl Fn(Location) -> u8) -> Vec<(Location, u8)> {
        let mut values: Vec<u8> = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let of = |value: &Value| values[value.index()];
            values.push(match op {
                Op::Load(place) => load(*place),
                Op::Map(x, map) => map.apply(of(x)),
                Op::MapEach(..) | Op::Shuffle(..) => unreachable!("these know positions, a byte has none"),
                Op::Sum(terms) => terms.iter().fold(0, |sum, term| sum ^ of(term)),
                Op::Nibble(x, Half::Low) => of(x) & 15,
                Op::Nibble(x, Half::High) => of(x) >> 4,
                Op::Look(x, map, Half::Low) => map.apply(of(x)),
                Op::Look(x, map, Half::High) => map.apply(of(x) << 4),
            });
        }
        self.outputs.iter().map(|&(place, value)| (place, values[value.index()])).collect()
    }
}
