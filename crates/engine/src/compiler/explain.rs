//! Explanation of a compilation: operations after each pass, and the machine code as text.

use super::choose::{self, Choice};
use super::kernel;
use super::machine::Counts;
use super::program::{Op, Program};
use super::target::Target;
use crate::explanation::{Explanation, Stage};
use crate::plan::Plan;

impl Stage {
    pub(super) fn of(name: impl Into<String>, program: &Program) -> Stage {
        let count = |counts: fn(&Op) -> usize| program.ops().iter().map(counts).sum();
        Stage {
            name: name.into(),
            products: count(|op| {
                usize::from(matches!(op, Op::Map(..) | Op::MapEach(..) | Op::Nibble(..) | Op::Look(..)))
            }),
            additions: count(|op| match op {
                Op::Sum(terms) => terms.len().saturating_sub(1),
                _ => 0,
            }),
            adding_instructions: None,
            moves: None,
        }
    }

    pub(super) fn fused(name: impl Into<String>, program: &Program) -> Stage {
        let sums = program.ops().iter().filter(|op| matches!(op, Op::Sum(terms) if terms.len() > 1)).count();
        Stage { adding_instructions: Some(sums), ..Stage::of(name, program) }
    }

    pub(super) fn allocated(name: impl Into<String>, counts: Counts) -> Stage {
        Stage {
            name: name.into(),
            products: counts.maps + counts.look_ups,
            additions: counts.adds + 2 * counts.adds_of_three,
            adding_instructions: Some(counts.adds + counts.adds_of_three),
            moves: Some(counts.moves + counts.spills),
        }
    }
}

/// Compiles a plan and reports the passes; `None` if the compiler does not handle it.
pub(crate) fn explain(plan: &Plan, target: Target) -> Option<Explanation> {
    let mut stages = Vec::new();
    let Choice { allocated, columns, cycles, .. } =
        choose::choose(plan, target, &mut |stage| stages.push(stage))?;
    let code = kernel::assembly(plan, target, &allocated, columns);
    let (code_bytes, assembly) = code.unzip();
    let assembly = assembly.flatten();
    Some(Explanation { stages, columns, register_bytes: target.width, cycles, code_bytes, assembly })
}
