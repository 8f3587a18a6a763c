//! Intermediate representation between plans and machine code: a straight-line program over registers of bytes.
//!
//! A program describes the computation of one column of registers, the same at every position of the blocks: loads,
//! byte maps (such as multiplication by a constant), sums of any number of values. Equal operations are one value
//! (value numbering). The order of the operations is the schedule.

use crate::bytemap::ByteMap;
use std::collections::{HashMap, HashSet};

/// The result of an operation, as its index in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Value(pub(crate) u32);

impl Value {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Location of a register of bytes: a block and, in the packets layout, a packet of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Location {
    /// Inputs are numbered from 0, outputs follow them.
    pub(crate) block: u32,
    /// Packet in the group; 0 in the words layout.
    pub(crate) packet: u32,
}

/// Age of a quotient of a signature division, in iterations of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// Eight iterations; the newest quotient overwrites it.
    Eighth,
    /// Seven.
    Seventh,
    /// One.
    Last,
}

impl Location {
    /// Pseudo block of the division state.
    const REMAINDERS: u32 = u32::MAX;
    const AGES: [Age; 3] = [Age::Eighth, Age::Seventh, Age::Last];

    /// The quotient of a division with this age. Stores always go to the oldest.
    pub(crate) fn remainder(division: usize, age: Age) -> Location {
        Location {
            block: Location::REMAINDERS,
            packet: (Location::AGES.len() * division) as u32 + age as u32,
        }
    }

    /// The division and the age, if it is division state.
    pub(crate) fn as_remainder(self) -> Option<(usize, Age)> {
        let (packet, ages) = (self.packet as usize, Location::AGES.len());
        (self.block == Location::REMAINDERS).then(|| (packet / ages, Location::AGES[packet % ages]))
    }
}

/// A nibble of every byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    Low,
    High,
}

/// Permutation of the bytes of a register. Symbols of several bytes are gathered by byte: first the lowest bytes of all
/// symbols, then the second ones, and so on, so that eight consecutive bytes have the same significance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Shuffle {
    /// From symbols of this many bytes.
    Gather(u8),
    /// Back to symbols of this many bytes.
    Scatter(u8),
    /// Rotation by this many times eight bytes towards the start.
    Rotate(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// The bytes at a location before the program runs.
    Load(Location),
    /// A GF(2)-linear map of every byte.
    Map(Value, ByteMap),
    /// The same with a separate map for each eight bytes of the register.
    MapEach(Value, [ByteMap; 8]),
    /// A permutation of the bytes of a register.
    Shuffle(Value, Shuffle),
    /// The sum of the values; zero for an empty list.
    Sum(Vec<Value>),
    /// A nibble of every byte, as a number below 16.
    Nibble(Value, Half),
    /// Lookup of every byte, which is below 16, as this nibble of the map's argument.
    Look(Value, ByteMap, Half),
}

impl Op {
    /// Its operands.
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

/// Operations in execution order, and the stores.
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

    /// Stored values with their locations.
    pub(crate) fn outputs(&self) -> &[(Location, Value)] {
        &self.outputs
    }

    /// The value of an operation, added if it is new.
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

    /// The image of a value; `None` for the zero map, the value itself for the identity.
    pub(crate) fn map(&mut self, of: Value, map: ByteMap) -> Option<Value> {
        if map.is_zero() {
            None
        } else if map.is_identity() {
            Some(of)
        } else {
            Some(self.make(Op::Map(of, map)))
        }
    }

    /// The sum of terms; `None` for zero. Equal terms cancel in pairs; a single term is returned unchanged.
    pub(crate) fn sum(&mut self, terms: impl IntoIterator<Item = Value>) -> Option<Value> {
        let mut odd: Vec<Value> = Vec::new();
        for term in terms {
            match odd.iter().position(|&other| other == term) {
                Some(place) => drop(odd.remove(place)),
                None => odd.push(term),
            }
        }
        // Sorted, so that equal sums are one value.
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

    /// Appends the stores of another program, with values mapped by `to`.
    pub(crate) fn store_renamed(&mut self, from: &Program, to: impl Fn(Value) -> Value) {
        self.outputs.extend(from.outputs.iter().map(|&(place, value)| (place, to(value))));
    }

    /// Number of uses of each value, as an operand or an output.
    pub(crate) fn uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.ops.len()];
        let operands = self.ops.iter().flat_map(|op| op.operands());
        operands
            .chain(self.outputs.iter().map(|(_, value)| value))
            .for_each(|value| uses[value.index()] += 1);
        uses
    }

    /// Number of blocks accessed.
    pub(crate) fn blocks(&self) -> usize {
        let loads = self.ops.iter().filter_map(|op| match op {
            Op::Load(place) => Some(place),
            _ => None,
        });
        let places = loads.chain(self.outputs.iter().map(|(place, _)| place));
        let blocks = places.filter(|place| place.as_remainder().is_none()).map(|place| place.block);
        blocks.collect::<HashSet<_>>().len()
    }

    /// Number of maps.
    pub(crate) fn products(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op, Op::Map(..) | Op::MapEach(..))).count()
    }

    /// The program without operations that no output needs.
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

    /// The program reduced to the stores to these blocks.
    pub(crate) fn for_blocks(&self, blocks: std::ops::Range<usize>) -> Program {
        let mut part = self.clone();
        part.outputs.retain(|(place, _)| blocks.contains(&(place.block as usize)));
        part.without_dead_code()
    }

    /// Evaluates the program on single bytes `load(place)`: the semantics of programs.
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
