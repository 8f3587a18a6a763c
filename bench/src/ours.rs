//! Gabion's own engine, as a contender. What a race asks of it is one function here, so that a better
//! interface of the engine changes this file alone.

use anyhow::Context as _;
use gabion_engine::kernel::{Backend as _, KernelSet};
use gabion_engine::matrix::Matrix;
use gabion_engine::raidz::Reconstruction;
use gabion_engine::{Code, Compiled, Engine, Field, Mode, Plan, Planar, Repairer, Signature, Signer};

/// The engine as a user gets it without asking for anything but a number of threads.
pub(crate) struct Ours(Engine);

impl Ours {
    pub(crate) fn on_threads(count: usize) -> anyhow::Result<Self> {
        Ok(Self(Engine::new(count)?))
    }

    /// The kernels of this name on one thread, whatever else the CPU could do.
    pub(crate) fn with_kernel(name: &str) -> anyhow::Result<Self> {
        Ok(Self(Engine::with_kernel_set(KernelSet::named(name)?, 1)?))
    }

    /// The kernels it chose, for records.
    pub(crate) fn kernel_name(&self) -> &str {
        self.0.kernel_set().name()
    }

    /// All redundancy of a code.
    pub(crate) fn encoder(&self, code: &Code) -> anyhow::Result<Compiled> {
        Ok(self.0.compile(&code.encode_plan()?)?)
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

    /// The first data columns of a RAID-Z code from the parities that `with` names.
    pub(crate) fn reconstruction(&self, code: &Code, with: Reconstruction) -> anyhow::Result<Compiled> {
        let lost: Vec<usize> = (0..with.parities().len()).collect();
        Ok(self.0.compile(&with.plan(code, &lost)?)?)
    }

    /// One block times a constant of GF(2^w), added to another.
    pub(crate) fn multiplier(&self, w: usize, constant: u64) -> anyhow::Result<Compiled> {
        let field = Field::new(u32::try_from(w)?)?;
        Ok(self.0.compile(&Plan::multiply(field, constant, Mode::Add)?)?)
    }

    /// The same for blocks in the planar layout.
    pub(crate) fn planar_multiplier(&self, w: usize, constant: u64) -> anyhow::Result<Planar> {
        let matrix = Matrix::from_fn(Field::new(u32::try_from(w)?)?, 1, 1, |_, _| constant)?;
        Ok(self.0.planar(&matrix, Mode::Add)?)
    }

    /// Repairs of a code, whatever is lost.
    pub(crate) fn any_repair(&self, code: &Code) -> Repairer {
        self.0.repairer(code)
    }

    /// All redundancy of a code, and the signatures of all blocks, of so many components.
    pub(crate) fn signing_encoder(&self, code: &Code, components: usize) -> anyhow::Result<SigningEncoder> {
        Ok(SigningEncoder { encoder: self.encoder(code)?, signer: Signer::tower(code.field(), components)? })
    }
}

/// Encodes a stripe and signs its k + m blocks.
pub(crate) struct SigningEncoder {
    encoder: Compiled,
    signer: Signer,
}

impl SigningEncoder {
    /// The signatures by column.
    pub(crate) fn run(&self, data: &[&[u8]], redundancy: &mut [&mut [u8]]) -> anyhow::Result<Vec<Signature>> {
        let signed = self.encoder.run_signed(&self.signer, data, redundancy)?;
        Ok(signed.inputs.into_iter().chain(signed.outputs).collect())
    }
}

/// Restores the lost columns of a stripe whose loss was not known before: planning, compiling and the pass. Of
/// `stripe`, the blocks by column, only surviving ones are read.
pub(crate) fn restore(
    repairer: &Repairer,
    lost: &[usize],
    surviving: &[usize],
    stripe: &[&[u8]],
    outputs: &mut [&mut [u8]],
) -> anyhow::Result<()> {
    let mut there = vec![None; stripe.len()];
    surviving.iter().for_each(|&column| there[column] = Some(stripe[column]));
    Ok(repairer.repair(&there, lost, outputs)?)
}

/// A code by its identity.
pub(crate) fn code(identity: &str) -> anyhow::Result<Code> {
    identity.parse().with_context(|| identity.to_owned())
}

/// The redundancy matrix of a code over GF(2^8), row after row, for libraries that take any matrix.
pub(crate) fn redundancy_rows(code: &Code) -> anyhow::Result<Vec<u8>> {
    let matrix = code.redundancy()?;
    let coefficients = (0..matrix.rows()).flat_map(|row| matrix.row(row));
    coefficients.map(|&value| u8::try_from(value).context("a code over a larger field")).collect()
}

/// One pass of what ran well when its output was verified.
pub(crate) fn run_again(compiled: &Compiled, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    compiled.run(inputs, outputs).expect("the same call went well before the race");
}
