//! Choice of program, columns per iteration and fusion parameters: candidates are compiled, their costs estimated, the
//! cheapest is used.

use super::lower::{cauchy, dense, packets};
use super::machine::{Allocated, Counts, MAX_SLOT_BYTES};
use super::pass::allocate::allocate;
use super::pass::flatten::flatten;
use super::pass::fuse::{Fusion, fuse};
use super::pass::nibbles::look_up;
use super::pass::share::share;
use super::pass::sign::sign;
use super::program::{Op, Program, Shuffle};
use super::target::Target;
use crate::division::SignaturePoints;
use crate::explanation::Stage;
use crate::field::Field;
use crate::layout::Layout;
use crate::plan::{Mode, Plan};
use crate::tuning::{
    MAX_COMPILED_COEFFICIENTS, MAX_FACTORED_BLOCKS, MAX_INPUTS_READ_TWICE, MAX_SIGNED_INPUTS,
    MIN_OUTPUTS_IN_PASSES, PASSES_IF_CONFLICTING,
};

/// The chosen program.
pub(super) struct Choice {
    pub(super) allocated: Allocated,
    pub(super) columns: usize,
    pub(super) cycles: f64,
    /// One program per part of the outputs, for shapes where several passes may be faster once stores exceed the L1
    /// cache.
    pub(super) passes: Vec<Allocated>,
}

/// True if several passes are faster than one for blocks in the L2 cache, at any alignment.
pub(super) fn always_in_passes(inputs: usize) -> bool {
    inputs <= MAX_INPUTS_READ_TWICE
}

/// True if a matrix of this size may be compiled.
pub(crate) fn is_considered(rows: usize, columns: usize) -> bool {
    rows.saturating_mul(columns) <= MAX_COMPILED_COEFFICIENTS || rows + columns <= MAX_FACTORED_BLOCKS
}

/// Candidate programs of a plan, with the name of the lowering; empty if the compiler does not handle the plan.
fn programs(plan: &Plan, target: Target) -> Vec<(&'static str, Program)> {
    let (rows, columns) = (plan.outputs().len(), plan.inputs().len());
    let size = rows * columns;
    if size == 0 || !is_considered(rows, columns) {
        return Vec::new();
    }
    let small = size <= MAX_COMPILED_COEFFICIENTS;
    match plan.layout() {
        Layout::Words if target.permutes || plan.field().word_bytes() == Ok(1) => {
            let mut programs = cauchy::lower(plan);
            if !small {
                programs.retain(|(_, program)| program.products() <= MAX_COMPILED_COEFFICIENTS);
                return programs;
            }
            let products = programs.iter().map(|(_, program)| program.products()).min();
            // The dense program is a candidate unless it needs more than twice the products.
            if products.is_none_or(|products| size <= 2 * products) {
                programs.extend(dense::lower(plan).map(|program| ("by matrix", program)));
            }
            programs
        }
        Layout::Packets { .. } if small => {
            packets::lower(plan).map(|program| ("by bit matrix", program)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// The cheapest program of a plan. Every pass is reported to `note`.
pub(super) fn choose(plan: &Plan, target: Target, note: &mut dyn FnMut(Stage)) -> Option<Choice> {
    let program = better(programs(plan, target), target, note)?;
    let (mut choice, fused) = cheapest(packet_of(plan), target, &program, &[1, 2, 4])?;
    choice.passes = passes(plan, target, &program, choice.columns);
    note(fused);
    note(Stage::allocated("allocate", choice.allocated.counts()));
    Some(choice)
}

/// The cheapest program of a plan over GF(2^8) that also divides its inputs for signatures at these points; `None` for
/// other plans. An iteration covers one register of every block: two would double the division state in the L1 cache.
pub(super) fn choose_signed(plan: &Plan, target: Target, points: SignaturePoints) -> Option<Choice> {
    let inputs = plan.inputs().len();
    if plan.field() != Field::GF8 || plan.layout() != Layout::Words || inputs > MAX_SIGNED_INPUTS {
        return None;
    }
    let ways = programs(plan, target).into_iter();
    let signed = ways.map(|(name, program)| (name, sign(&program, inputs, points, target.width / 8)));
    let program = better(signed.collect(), target, &mut |_| ())?;
    cheapest(packet_of(plan), target, &program, &[1]).map(|(choice, _)| choice)
}

/// The cheapest code for a program of the planar layout.
///
/// Planes are usually a multiple of 4 KiB apart, so loads suffer 4K aliasing with earlier stores. An iteration
/// therefore covers as many columns as leave registers for half of the constants, which moves loads and stores apart.
pub(super) fn choose_planar(program: Program, target: Target) -> Option<Choice> {
    let program = better(vec![("by planes", program)], target, &mut |_| ())?;
    let constants = program.products();
    let way = |columns: &[usize]| cheapest(None, target, &program, columns).map(|(choice, _)| choice);
    let fits =
        |choice: &Choice| choice.allocated.registers() * choice.columns + constants / 2 <= target.registers();
    let wide = if target.affine {
        [4, 2].into_iter().filter_map(|columns| way(&[columns])).find(fits)
    } else {
        None
    };
    wide.or_else(|| way(&[1, 2, 4]))
}

/// The cheapest schedule and register allocation of a program, with one of the given numbers of columns.
fn cheapest(
    packet: Option<usize>,
    target: Target,
    program: &Program,
    columns: &[usize],
) -> Option<(Choice, Stage)> {
    let blocks = program.blocks();
    let registers = target.registers() - kept_registers(program);
    let mut best: Option<(Choice, Stage)> = None;
    for patience in [1 << 20, 24, 4] {
        let fused = fuse(program, Fusion { arity: target.arity(), patience });
        for &columns in columns {
            if registers / columns < 4 || !fits(packet, target, columns * target.width) {
                break;
            }
            let allocated = allocate(&fused, registers / columns);
            let slots = allocated.slots as usize;
            if columns > 1 && slots > 0 || slots * target.width > MAX_SLOT_BYTES {
                break;
            }
            let cycles = cycles(allocated.counts(), target, columns, blocks);
            if best.as_ref().is_none_or(|(best, _)| cycles < best.cycles) {
                let choice = Choice { allocated, columns, cycles, passes: Vec::new() };
                best = Some((choice, Stage::fused("fuse", &fused)));
            }
            // More columns would need even more registers.
            if slots > 0 {
                break;
            }
        }
    }
    best
}

/// Two passes over the inputs, each for half of the outputs; empty for plans where they never pay.
fn passes(plan: &Plan, target: Target, program: &Program, columns: usize) -> Vec<Allocated> {
    let (inputs, outputs) = (plan.inputs().len(), plan.outputs().len());
    let many_to_store = match plan.layout() {
        Layout::Words => {
            PASSES_IF_CONFLICTING.iter().any(|&(most, fewest)| inputs <= most && outputs >= fewest)
        }
        Layout::Packets { .. } => always_in_passes(inputs) && outputs >= MIN_OUTPUTS_IN_PASSES,
    };
    if !target.native || plan.mode() != Mode::Write || !many_to_store {
        return Vec::new();
    }
    let (middle, end) = (inputs + outputs / 2, inputs + outputs);
    let pass = |blocks| cheapest(packet_of(plan), target, &program.for_blocks(blocks), &[columns]);
    let passes = [inputs..middle, middle..end].map(|blocks| pass(blocks).map(|(choice, _)| choice.allocated));
    passes.into_iter().collect::<Option<_>>().unwrap_or_default()
}

/// Registers for constants that no instruction takes from memory: the nibble mask and shuffle indices.
fn kept_registers(program: &Program) -> usize {
    let has = |wanted: fn(&Op) -> bool| usize::from(program.ops().iter().any(wanted));
    has(|op| matches!(op, Op::Nibble(..)))
        + has(|op| matches!(op, Op::Shuffle(_, Shuffle::Gather(_))))
        + has(|op| matches!(op, Op::Shuffle(_, Shuffle::Scatter(_))))
}

/// Runs the passes before register allocation; returns the program with the fewest instructions.
fn better(programs: Vec<(&str, Program)>, target: Target, note: &mut dyn FnMut(Stage)) -> Option<Program> {
    let flat = programs.into_iter().map(|(name, program)| {
        note(Stage::of(name, &program));
        flatten(&program)
    });
    let mut program = flat.min_by_key(|program| rough_cost(program, target))?;
    note(Stage::of("flatten", &program));
    if !target.affine && program.products() > 0 {
        program = flatten(&look_up(&program));
        note(Stage::of("nibbles", &program));
    }
    let shared = share(&program, target.arity());
    if rough_cost(&shared, target) < rough_cost(&program, target) {
        program = shared;
        note(Stage::of("share", &program));
    }
    Some(program)
}

/// Bytes of a packet, where there are packets.
fn packet_of(plan: &Plan) -> Option<usize> {
    match plan.layout() {
        Layout::Words => None,
        Layout::Packets { bytes } => Some(bytes),
    }
}

/// For machine code a packet must be a multiple of the step: a longer step would write into the next packet.
fn fits(packet: Option<usize>, target: Target, step: usize) -> bool {
    packet.is_none_or(|bytes| !target.native || bytes.is_multiple_of(step))
}

/// Estimated instructions of a program before register allocation, for comparing programs.
fn rough_cost(program: &Program, target: Target) -> usize {
    let cost = |op: &Op| match op {
        // A product occupies its only port; sums have two.
        Op::Map(..) | Op::MapEach(..) => {
            if target.affine {
                3
            } else {
                8
            }
        }
        Op::Sum(terms) => terms.len().saturating_sub(1).div_ceil(target.arity() - 1) * 2,
        _ => 0,
    };
    program.ops().iter().map(cost).sum()
}

/// Estimated cycles per column by port limits: two ports for arithmetic, one of them for byte maps, two loads and one
/// store per cycle.
fn cycles(counts: Counts, target: Target, columns: usize, blocks: usize) -> f64 {
    let Counts { loads, stores, maps, look_ups, adds, adds_of_three, moves, spills } = counts;
    let columns = columns as f64;
    let per_column = |count: usize| count as f64;
    let arithmetic =
        per_column(maps + look_ups + adds + adds_of_three) / if target.width == 64 { 2.0 } else { 3.0 };
    let maps_alone = per_column(maps);
    let pointers = if blocks > 10 { per_column(blocks) / columns } else { 0.0 };
    let reads = (per_column(loads + spills) + per_column(maps) / columns + pointers) / 2.0;
    let writes = per_column(stores) + per_column(spills) / 2.0;
    let all = per_column(maps + look_ups + adds + adds_of_three + loads + stores + spills + moves) + pointers;
    let bound = arithmetic.max(maps_alone).max(reads).max(writes);
    // Instructions off the bottleneck still cost a little.
    bound + 0.02 * all + 0.05 * columns
}
