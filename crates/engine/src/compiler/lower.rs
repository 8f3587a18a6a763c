//! Lowering of plans to programs, before optimisation.
//!
//! | where | takes | gives |
//! | --- | --- | --- |
//! | [`dense`] | any matrix over symbols | one map per coefficient |
//! | [`cauchy`] | a matrix that factors through a Cauchy matrix on cosets | additive FFTs, then the small solve |
//! | [`planar`] | a matrix over symbols whose bytes lie apart | a map per coefficient and pair of bytes |
//! | [`packets`] | a bit matrix | sums of packets |

pub(super) mod cauchy;
pub(super) mod dense;
pub(super) mod packets;
pub(super) mod planar;
mod symbols;

use super::program::{Location, Program, Value};
use crate::layout::Layout;
use crate::plan::{Mode, Plan};
use symbols::Symbols;

/// Stores `value` as an output of the plan, added to the output in the mode `Add`.
fn store(program: &mut Program, plan: &Plan, output: usize, packet: usize, value: Option<Value>) {
    let value = match plan.layout() {
        Layout::Words => Symbols::of(plan.field()).stored(program, value),
        Layout::Packets { .. } => value,
    };
    let block = plan.inputs().len() + output;
    let place = Location { block: block as u32, packet: packet as u32 };
    let value = match plan.mode() {
        Mode::Write => value,
        Mode::Add => {
            let before = program.load(block, packet);
            program.sum(value.into_iter().chain([before]))
        }
    };
    program.store(place, value);
}
