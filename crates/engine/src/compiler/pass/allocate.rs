//! Register allocation in one pass over the program.
//!
//! A load is placed at the first use of its value, and repeated rather than spilled, since the block is still in
//! memory. When registers run out, the value whose next use is farthest is evicted (Belady's rule); a value that can be
//! reloaded is evicted before one that must be spilled, unless it is needed much earlier. The last use of a value in
//! memory uses a memory operand.

use crate::compiler::machine::{Allocated, Operand, Register, Step};
use crate::compiler::program::{Location, Op, Program, Value};

/// Assigns one of `registers` registers to every value; sums have at most three terms.
pub(in crate::compiler) fn allocate(program: &Program, registers: usize) -> Allocated {
    assert!(registers >= 4, "a sum of three and its result need registers");
    let mut walk = Walk::new(program, registers);
    for index in 0..program.ops().len() {
        walk.at = index;
        walk.do_op(Value(index as u32));
    }
    Allocated { steps: walk.steps, slots: walk.slots }
}

struct Walk<'a> {
    program: &'a Program,
    at: usize,
    steps: Vec<Step>,
    /// Remaining uses of every value, the next one last.
    uses: Vec<Vec<u32>>,
    /// Locations to which every value is stored.
    stored_to: Vec<Vec<Location>>,
    register_of: Vec<Option<Register>>,
    slot_of: Vec<Option<u32>>,
    holds: Vec<Option<Value>>,
    free_slots: Vec<u32>,
    slots: u32,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program, registers: usize) -> Walk<'a> {
        let count = program.ops().len();
        let mut uses = vec![Vec::new(); count];
        for (index, op) in program.ops().iter().enumerate().rev() {
            for value in op.operands() {
                if uses[value.index()].last() != Some(&(index as u32)) {
                    uses[value.index()].push(index as u32);
                }
            }
        }
        let mut stored_to = vec![Vec::new(); count];
        program.outputs().iter().for_each(|&(place, value)| stored_to[value.index()].push(place));
        Walk {
            program,
            at: 0,
            steps: Vec::with_capacity(2 * count),
            uses,
            stored_to,
            register_of: vec![None; count],
            slot_of: vec![None; count],
            holds: vec![None; registers],
            free_slots: Vec::new(),
            slots: 0,
        }
    }

    fn do_op(&mut self, value: Value) {
        let program = self.program;
        match program.op(value) {
            // Loaded at the first use; an output is used here.
            Op::Load(_) => {
                if !self.stored_to[value.index()].is_empty() {
                    self.in_register(value, &[]);
                }
            }
            Op::Map(of, map) => self.unary(value, *of, |to, from| Step::Map { to, from, map: *map }),
            Op::MapEach(of, maps) => {
                self.unary(value, *of, |to, from| Step::MapEach { to, from, maps: *maps })
            }
            Op::Shuffle(of, shuffle) => {
                self.unary(value, *of, |to, from| Step::Shuffle { to, from, shuffle: *shuffle });
            }
            Op::Nibble(of, half) => self.unary(value, *of, |to, from| Step::Nibble { to, from, half: *half }),
            Op::Look(of, map, half) => {
                let from = self.in_register(*of, &[]);
                let to = self.take(value, &[from]);
                self.used(*of);
                self.steps.push(Step::Look { to, from, map: *map, half: *half });
            }
            Op::Sum(terms) => match terms[..] {
                [] => {
                    let to = self.take(value, &[]);
                    self.steps.push(Step::Zero { to });
                }
                [a, b] => self.add(value, a, b),
                [a, b, c] => self.add_two(value, [a, b, c]),
                _ => unreachable!("sums were cut into pieces of two or three terms"),
            },
        }
        self.store(value);
    }

    /// Operation on one value, whose register may be reused for the result.
    fn unary(&mut self, value: Value, of: Value, step: impl Fn(Register, Register) -> Step) {
        let from = self.in_register(of, &[]);
        self.used(of);
        let to = self.take(value, &[]);
        self.steps.push(step(to, from));
    }

    fn add(&mut self, value: Value, a: Value, b: Value) {
        // The operand that may stay in memory is b.
        let (a, b) = if self.only_in_memory(a) { (b, a) } else { (a, b) };
        let from = self.in_register(a, &[]);
        let operand = self.operand(b, &[from]);
        self.used(a);
        let reads_register = matches!(operand, Operand::Register(_));
        if reads_register {
            self.used(b);
        }
        let to = self.take(value, &[]);
        self.steps.push(Step::Add { to, a: from, b: operand });
        // Its slot may be reused only after it is read.
        if !reads_register {
            self.used(b);
        }
    }

    fn add_two(&mut self, value: Value, mut terms: [Value; 3]) {
        // First the term whose register becomes the result: it has a register and no further use, or is not loaded yet.
        // Last the term that may stay in memory.
        terms.sort_by_key(|&term| {
            let last = self.is_last_use(term);
            match (self.register_of[term.index()].is_some(), last) {
                (true, true) => 0,
                (false, _) if !last => 1,
                (true, false) => 2,
                (false, _) => 3,
            }
        });
        let [target, a, b] = terms;
        let pins = |registers: &[Option<Register>]| registers.iter().flatten().copied().collect::<Vec<_>>();
        let have = |walk: &Self, term: Value| walk.register_of[term.index()];
        let pinned = pins(&[have(self, target), have(self, b)]);
        let a_from = self.in_register(a, &pinned);
        let pinned = pins(&[have(self, target), Some(a_from)]);
        let b_from = self.operand(b, &pinned);
        let b_register = match b_from {
            Operand::Register(register) => Some(register),
            _ => None,
        };
        let pinned = pins(&[Some(a_from), b_register]);
        let to = if self.is_last_use(target) {
            let to = self.in_register(target, &pinned);
            self.used(target);
            self.register_of[value.index()] = Some(to);
            self.holds[to as usize] = Some(value);
            to
        } else {
            let kept = have(self, target);
            let to = self.take(value, &pins(&[Some(a_from), b_register, kept]));
            let copied = match kept {
                Some(from) => Step::Move { to, from },
                None => self.fetch(target, to),
            };
            self.steps.push(copied);
            self.used(target);
            to
        };
        self.used(a);
        self.used(b);
        self.steps.push(Step::AddTwo { to, a: a_from, b: b_from });
    }

    fn store(&mut self, value: Value) {
        let places = std::mem::take(&mut self.stored_to[value.index()]);
        let Some(from) = self.register_of[value.index()] else { return };
        self.steps.extend(places.into_iter().map(|to| Step::Store { from, to }));
        if self.uses[value.index()].is_empty() {
            self.release(value);
        }
    }

    fn is_last_use(&self, value: Value) -> bool {
        self.uses[value.index()][..] == [self.at as u32]
    }

    /// True if its last use can take it as a memory operand.
    fn only_in_memory(&self, value: Value) -> bool {
        self.register_of[value.index()].is_none() && self.is_last_use(value)
    }

    fn operand(&mut self, value: Value, pinned: &[Register]) -> Operand {
        if !self.only_in_memory(value) {
            return Operand::Register(self.in_register(value, pinned));
        }
        match (self.program.op(value), self.slot_of[value.index()]) {
            (Op::Load(place), _) => Operand::Block(*place),
            (_, slot) => Operand::Slot(slot.expect("a value is in a register, in a block or saved")),
        }
    }

    /// The register of a value, loaded if necessary.
    fn in_register(&mut self, value: Value, pinned: &[Register]) -> Register {
        if let Some(register) = self.register_of[value.index()] {
            return register;
        }
        let to = self.take(value, pinned);
        let step = self.fetch(value, to);
        self.steps.push(step);
        to
    }

    fn fetch(&self, value: Value, to: Register) -> Step {
        match (self.program.op(value), self.slot_of[value.index()]) {
            (Op::Load(from), _) => Step::Load { to, from: *from },
            (_, slot) => {
                Step::Restore { to, slot: slot.expect("a value is in a register, in a block or saved") }
            }
        }
    }

    /// A register for a value; evicts another value if none is free.
    fn take(&mut self, value: Value, pinned: &[Register]) -> Register {
        let free = (0..self.holds.len())
            .find(|&register| self.holds[register].is_none() && !pinned.contains(&(register as Register)));
        let register = free.unwrap_or_else(|| self.evict(pinned));
        self.holds[register] = Some(value);
        self.register_of[value.index()] = Some(register as Register);
        register as Register
    }

    fn evict(&mut self, pinned: &[Register]) -> usize {
        let candidates = (0..self.holds.len()).filter(|&register| !pinned.contains(&(register as Register)));
        let distance = |register: usize| {
            let value = self.holds[register].expect("all registers are taken");
            let next = self.uses[value.index()].last().map_or(u32::MAX, |&next| next) as usize;
            let saving_costs =
                !matches!(self.program.op(value), Op::Load(_)) && self.slot_of[value.index()].is_none();
            let away = next.saturating_sub(self.at);
            if saving_costs { away } else { 2 * away + 1 }
        };
        let register =
            candidates.max_by_key(|&register| distance(register)).expect("few registers are pinned");
        let value = self.holds[register].take().expect("all registers are taken");
        self.register_of[value.index()] = None;
        let is_load = matches!(self.program.op(value), Op::Load(_));
        if !is_load && self.slot_of[value.index()].is_none() {
            let slot = self.free_slots.pop().unwrap_or_else(|| {
                self.slots += 1;
                self.slots - 1
            });
            self.slot_of[value.index()] = Some(slot);
            self.steps.push(Step::Save { from: register as Register, slot });
        }
        register
    }

    /// Records the use of a value by this operation.
    fn used(&mut self, value: Value) {
        let uses = &mut self.uses[value.index()];
        if uses.last() == Some(&(self.at as u32)) {
            uses.pop();
        }
        if uses.is_empty() {
            self.release(value);
        }
    }

    fn release(&mut self, value: Value) {
        let register = self.register_of[value.index()].take();
        // The register may already belong to the result.
        if let Some(register) = register.filter(|&register| self.holds[register as usize] == Some(value)) {
            self.holds[register as usize] = None;
        }
        if let Some(slot) = self.slot_of[value.index()].take() {
            self.free_slots.push(slot);
        }
    }
}
