//! Variants of a kernel, to see which cut is best for a shape.

use gabion_gpu::shape::Shape;
use gabion_gpu::tuning::Tuning;

/// A way to cut a kernel.
pub type Variant = Tuning;

/// The variants worth a try for a shape.
pub fn variants(shape: &Shape) -> Vec<Variant> {
    let model = Tuning::of(shape);
    let mut variants = vec![model];
    let mut add = |variant: Tuning| {
        let registers = variant.registers(shape);
        let room = 65536 / (variant.threads * variant.groups(shape.outputs).len() * variant.least_blocks);
        if registers <= 250.min(room + 8) && !variants.contains(&variant) {
            variants.push(variant);
        }
    };
    let lanes: &[usize] = if shape.packet_words.is_some() { &[1, 2, 4] } else { &[1, 2] };
    let all = shape.outputs.max(1);
    let mut cuts = vec![all];
    if all * shape.w > 48 {
        cuts.extend([all.div_ceil(2), all.div_ceil(4)]);
    }
    for &lanes in lanes {
        for &outputs_per_group in &cuts {
            for (threads, blocks) in [(128, 1), (128, 5), (256, 2), (512, 1)] {
                for (ahead, meet_every) in [(1, 0), (2, 0), (1, 2)] {
                    add(Tuning { lanes, threads, outputs_per_group, least_blocks: blocks, ahead, meet_every });
                }
            }
        }
    }
    variants
}

/// A cut in few letters.
pub(super) fn shown(tuning: &Tuning) -> String {
    let Tuning { lanes, threads, outputs_per_group, least_blocks, ahead, meet_every } = tuning;
    format!("lanes={lanes} threads={threads} outputs={outputs_per_group} blocks={least_blocks} ahead={ahead} meet={meet_every}")
}
