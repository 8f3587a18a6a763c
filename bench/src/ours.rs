//! Gabion's own engine, as a contender.

use anyhow::Context as _;
use gabion_engine::kernel::Backend as _;
use gabion_engine::{Code, Compiled, Engine, Field, Mode, Plan};

/// The engine as a user gets it without asking for anything but a number of threads.
pub(crate) struct Ours(Engine);

impl Ours {
    pub(crate) fn on_threads(count: usize) -> anyhow::Result<Self> {
        Ok(Self(Engine::new(count)?))
    }

    /// The kernels it chose, for records.
    pub(crate) fn kernel_name(&self) -> &str {
        self.0.row().name()
    }

    /// All redundancy of the code of this identity.
    pub(crate) fn encoder(&self, identity: &str) -> anyhow::Result<Compiled> {
        Ok(self.0.compile(&code(identity)?.encode_plan()?)?)
    }

    /// The lost columns of a code from surviving ones.
    pub(crate) fn repairer(
        &self,
        code: &Code,
        lost: &[usize],
        surviving: &[usize],
    ) -> anyhow::Result<Compiled> {
        Ok(self.0.compile(&code.repair_plan(lost, surviving)?)?)
    }

    /// One block times a constant of GF(2^w), added to another.
    pub(crate) fn multiplier(&self, w: usize, constant: u64) -> anyhow::Result<Compiled> {
        let field = Field::new(u32::try_from(w)?)?;
        Ok(self.0.compile(&Plan::multiply(field, constant, Mode::Add)?)?)
    }
}

/// A code by its identity.
pub(crate) fn code(identity: &str) -> anyhow::Result<Code> {
    identity.parse().with_context(|| identity.to_owned())
}

/// One pass of what ran well when its output was verified.
pub(crate) fn run_again(compiled: &Compiled, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    compiled.run(inputs, outputs).expect("the same call went well before the race");
}
