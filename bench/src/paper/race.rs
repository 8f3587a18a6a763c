//! Kernels for the same plan, checked and then timed in turn.

use super::PaperError;
use crate::engine::memory::Memory;
use crate::engine::rounds::{Pass, take_turns_for};
use crate::engine::{BenchError, Expected};
use gabion_engine::kernel::{Backend, Kernel, Threads};
use gabion_engine::{Mode, Plan};
use std::time::Duration;

/// An implementation that runs a plan.
pub(super) struct Contender<'a> {
    name: String,
    kernel: Box<dyn Kernel>,
    threads: &'a Threads,
}

impl<'a> Contender<'a> {
    /// `plan` as `backend` compiles it.
    pub(super) fn new(
        name: &str,
        backend: &dyn Backend,
        plan: &Plan,
        threads: &'a Threads,
    ) -> Result<Contender<'a>, PaperError> {
        Ok(Contender { name: name.to_owned(), kernel: backend.compile(plan)?, threads })
    }
}

/// Rate of each contender in 1e9 bytes of inputs per second, with its name. All work on the same blocks; a contender
/// with wrong outputs is an error.
pub(super) fn race(
    memory: &mut Memory,
    plan: &Plan,
    block: usize,
    contenders: Vec<Contender<'_>>,
    time: Duration,
) -> Result<Vec<(String, f64)>, PaperError> {
    assert_eq!(plan.mode(), Mode::Write, "what is added to changes from turn to turn");
    let (inputs, granule) = (plan.inputs().len(), plan.granule());
    let mut blocks = memory.blocks(inputs + plan.outputs().len(), block, inputs, false);
    let mut outputs = blocks.split_off(inputs);
    let inputs: Vec<&[u8]> = blocks.into_iter().map(|block| &*block).collect();
    let expected = Expected::of(plan, &inputs)?;
    let mut passes: Vec<Pass<'_>> = Vec::with_capacity(contenders.len());
    let mut names = Vec::with_capacity(contenders.len());
    for Contender { name, kernel, threads } in contenders {
        let mut pass: Pass<'_> =
            Box::new(move |inputs, outputs| threads.run(&*kernel, granule, inputs, outputs));
        // Outputs of the one before must not be taken for those of this one.
        outputs.iter_mut().for_each(|output| output.fill(0xa5));
        pass(&inputs, &mut outputs)?;
        let found: Vec<&[u8]> = outputs.iter().map(|output| &**output).collect();
        expected.check(&name, &found)?;
        passes.push(pass);
        names.push(name);
    }
    let timings = take_turns_for(&mut passes, &inputs, &mut outputs, time)?;
    let bytes = (inputs.len() * block) as f64;
    Ok(names.into_iter().zip(timings.iter().map(|timing| bytes / timing.best / 1e9)).collect())
}

/// Memory for the largest of some races, each by its plan and the bytes of a block.
pub(super) fn memory_for<'a>(races: impl Iterator<Item = (&'a Plan, usize)>) -> Result<Memory, BenchError> {
    Memory::for_most(races.map(|(plan, block)| (plan.inputs().len() + plan.outputs().len(), block)))
}
