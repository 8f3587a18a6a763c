//! Tunings of a kernel, to find the best for a shape.

use gabion_engine::Plan;
use gabion_gpu::shape::Shape;
use gabion_gpu::source::{Dialect, transforms};
use gabion_gpu::tuning::Tuning;

/// Tuning of a kernel.
pub type Variant = Tuning;

/// Largest number of instructions of a pass: more are far beyond the instruction cache.
const HOPELESS: usize = 14_000;

/// Tunings to try for a plan.
pub fn variants(plan: &Plan) -> Vec<Variant> {
    let shape = &Shape::of(plan);
    let model = Tuning::of(shape);
    let mut variants = vec![model];
    let transformed =
        [4, 8].into_iter().filter(|&width| transforms::source(Dialect::Cuda, plan, width).is_some());
    variants.extend(transformed.map(|transformed| Tuning { transformed, ..model }));
    let mut add = |variant: Tuning| {
        let room = 65536 / (variant.threads * variant.least_blocks).max(256);
        let fits = variant.registers(shape) <= 250.min(room + 8) && variant.instructions(shape) <= HOPELESS;
        if fits && !variants.contains(&variant) {
            variants.push(variant);
        }
    };
    let all = shape.outputs.max(1);
    let mut cuts = vec![all];
    if all > 8 {
        cuts.push(all.div_ceil(2));
    }
    for outputs_per_pass in cuts {
        for (threads, least_blocks) in [(64, 1), (64, 8), (128, 1), (128, 4), (256, 1), (512, 1)] {
            for lanes in [1, 2] {
                let cut = Tuning { threads, least_blocks, outputs_per_pass, lanes, staged: 0, ..model };
                add(cut);
                if shape.packet_words.is_none() && lanes == 1 && threads <= 128 {
                    add(Tuning { staged: 4, ..cut });
                }
            }
        }
    }
    variants
}

/// Short name of a tuning.
pub(super) fn shown(tuning: &Tuning) -> String {
    let Tuning { lanes, threads, outputs_per_pass, least_blocks, ahead, staged, transformed } = tuning;
    if *transformed > 0 {
        return format!("transformed={transformed}");
    }
    format!(
        "lanes={lanes} threads={threads} outputs={outputs_per_pass} blocks={least_blocks} ahead={ahead} staged={staged}"
    )
}
