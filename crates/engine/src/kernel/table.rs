//! Table of CPU kernel sets, the only list used by dispatch, tests, benchmarks and `gabion info`.

use super::compiled::{self, Tier};
use super::generic::{Isa, Transforming, Work};
use super::lanes::{self, LaneSigner, SignatureSpec};
use super::vector::Scalar;
use super::{Backend, Explanation, Kernel, Product};
use crate::code::Code;
use crate::compiler::{self, Target};
use crate::error::Error;
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};
use crate::tuning::EQUAL_SPEED;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The environment variable that selects a kernel set by name.
pub const KERNEL_VARIABLE: &str = "GABION_KERNEL";

/// The kernels of one instruction set: name, detection, entry points.
pub struct KernelSet {
    name: &'static str,
    needs: &'static str,
    supported: fn() -> bool,
    compile: Compile,
    target: Target,
    multiply: Multiply,
    signer: PrepareSigner,
    planar: CompilePlanar,
}

/// Compiles a plan; `None` if the CPU lacks the instruction set.
type Compile = fn(&Plan, Tier) -> Option<Result<Box<dyn Kernel>, Error>>;
/// Single-use product of a matrix with blocks, or parts of blocks of the given length; `None` likewise.
type Multiply = fn(&Product<'_>, &[&[u8]], &mut [&mut [u8]], usize) -> Option<()>;
/// Prepares signatures; `None` likewise.
type PrepareSigner = fn(&SignatureSpec<'_>) -> Option<Box<dyn LaneSigner>>;

/// Compiles a matrix for the planar layout; `None` likewise, and an inner `None` if its program needs too many spill
/// slots.
type CompilePlanar = fn(&Matrix, Mode) -> Option<Option<Box<dyn Kernel>>>;

const fn kernel_set<I: Isa>() -> KernelSet {
    KernelSet {
        name: I::NAME,
        needs: I::NEEDS,
        supported: || I::detect().is_some(),
        compile: |plan, tier| I::detect().map(|isa| compiled::compile(isa, plan, tier)),
        target: I::TARGET,
        multiply: |product, inputs, outputs, total_len| {
            I::detect().map(|isa| product.run(isa, inputs, outputs, total_len))
        },
        signer: |weighing| I::detect().map(|isa| lanes::signer(isa, weighing)),
        planar: |matrix, mode| I::detect().map(|isa| compiled::compile_planar(isa, matrix, mode)),
    }
}

static TABLE: &[KernelSet] = &[
    kernel_set::<NoSimd>(),
    #[cfg(target_arch = "x86_64")]
    kernel_set::<super::x86::Ssse3>(),
    #[cfg(target_arch = "x86_64")]
    kernel_set::<super::x86::Avx2>(),
    #[cfg(target_arch = "x86_64")]
    kernel_set::<super::x86::GfniAvx2>(),
    #[cfg(target_arch = "x86_64")]
    kernel_set::<super::x86::Avx512>(),
    #[cfg(target_arch = "x86_64")]
    kernel_set::<super::x86::GfniAvx512>(),
    #[cfg(target_arch = "aarch64")]
    kernel_set::<super::neon::Neon>(),
];

/// All kernel sets of this architecture, scalar first, including those that this CPU does not support.
pub fn kernel_sets() -> &'static [KernelSet] {
    TABLE
}

impl KernelSet {
    /// Required CPU features, for messages.
    pub fn needs(&self) -> &'static str {
        self.needs
    }

    /// True if this CPU supports it.
    pub fn supported(&self) -> bool {
        (self.supported)()
    }

    /// The kernel set of this process: the one that [`KERNEL_VARIABLE`] names, else the [fastest](KernelSet::fastest).
    /// Decided once.
    ///
    /// # Errors
    /// [`Error::UnknownKernel`], [`Error::UnsupportedKernel`] for an invalid value of the variable.
    pub fn chosen() -> Result<&'static KernelSet, Error> {
        static CHOSEN: OnceLock<Result<&'static KernelSet, Error>> = OnceLock::new();
        let choose = || match forced_name() {
            Some(name) => KernelSet::named(&name),
            None => Ok(KernelSet::fastest()),
        };
        CHOSEN.get_or_init(choose).clone()
    }

    /// The last kernel set of the table that is about as fast as the best one when [measured]. Sets that are equal for
    /// the measured shape differ for others, where wider registers gain; and a preemption during the measurement must
    /// not decide for the whole process.
    pub fn fastest() -> &'static KernelSet {
        choose(measured())
    }

    /// True if [`KERNEL_VARIABLE`] is set.
    pub fn forced() -> bool {
        forced_name().is_some()
    }

    /// The kernel set of this name, if this CPU supports it.
    ///
    /// # Errors
    /// [`Error::UnknownKernel`], [`Error::UnsupportedKernel`].
    pub fn named(name: &str) -> Result<&'static KernelSet, Error> {
        let names = |rows: &mut dyn Iterator<Item = &KernelSet>| {
            rows.map(|set| set.name).collect::<Vec<_>>().join(", ")
        };
        let name = name.to_owned();
        match kernel_sets().iter().find(|set| set.name == name) {
            None => Err(Error::UnknownKernel { name, known: names(&mut kernel_sets().iter()) }),
            Some(set) if set.supported() => Ok(set),
            Some(_) => {
                let supported = names(&mut kernel_sets().iter().filter(|set| set.supported()));
                Err(Error::UnsupportedKernel { name, supported })
            }
        }
    }

    /// This kernel set with a fixed tier.
    pub fn at(&'static self, tier: Tier) -> TieredKernelSet {
        let suffix = match tier {
            Tier::Generic => "-generic",
            Tier::Code => "-code",
            Tier::Adaptive => "",
        };
        TieredKernelSet { set: self, tier, name: format!("{}{suffix}", self.name) }
    }

    fn compile_at(&self, plan: &Plan, tier: Tier) -> Result<Box<dyn Kernel>, Error> {
        (self.compile)(plan, tier).unwrap_or_else(|| Err(self.unsupported()))
    }

    /// True if programs are compiled to machine code; otherwise they are interpreted.
    pub fn emits_code(&self) -> bool {
        self.target.native
    }

    /// Report of the run-time compiler about a plan for this kernel set; `None` if the generic kernels run it.
    pub fn explain(&self, plan: &Plan) -> Option<Explanation> {
        compiler::explain(plan, self.target)
    }

    /// Multiplies blocks of equal length by a matrix over GF(2^8). They may be parts of blocks of `total_len` bytes.
    pub(crate) fn multiply(
        &self,
        product: &Product<'_>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        total_len: usize,
    ) -> Result<(), Error> {
        (self.multiply)(product, inputs, outputs, total_len).ok_or_else(|| self.unsupported())
    }

    pub(crate) fn signer(&self, weighing: &SignatureSpec<'_>) -> Result<Box<dyn LaneSigner>, Error> {
        (self.signer)(weighing).ok_or_else(|| self.unsupported())
    }

    /// A kernel for the planar layout: its blocks are the planes of the matrix's inputs, then those of its outputs.
    pub(crate) fn compile_planar(
        &self,
        matrix: &Matrix,
        mode: Mode,
    ) -> Result<Option<Box<dyn Kernel>>, Error> {
        (self.planar)(matrix, mode).ok_or_else(|| self.unsupported())
    }

    fn unsupported(&self) -> Error {
        let supported = kernel_sets().iter().filter(|set| set.supported()).map(|set| set.name);
        let supported = supported.collect::<Vec<_>>().join(", ");
        Error::UnsupportedKernel { name: self.name.to_owned(), supported }
    }
}

impl Backend for KernelSet {
    fn name(&self) -> &str {
        self.name
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
        self.compile_at(plan, Tier::Adaptive)
    }
}

/// A kernel set with a fixed tier, for tests and measurements.
#[derive(Debug)]
pub struct TieredKernelSet {
    set: &'static KernelSet,
    tier: Tier,
    name: String,
}

impl Backend for TieredKernelSet {
    fn name(&self) -> &str {
        &self.name
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
        self.set.compile_at(plan, self.tier)
    }
}

impl std::fmt::Debug for KernelSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KernelSet({})", self.name)
    }
}

/// The supported kernel sets with their speed in bytes of data per second, measured once per process (some
/// milliseconds, mostly compilation): encoding 10+4 over GF(2^8), blocks of 4 KiB, in cache.
pub fn measured() -> &'static [(&'static KernelSet, f64)] {
    static MEASURED: OnceLock<Vec<(&'static KernelSet, f64)>> = OnceLock::new();
    MEASURED.get_or_init(|| {
        let supported = kernel_sets().iter().filter(|set| set.supported());
        supported.map(|set| (set, measure(set))).collect()
    })
}

fn forced_name() -> Option<String> {
    let name = std::env::var_os(KERNEL_VARIABLE)?;
    (!name.is_empty()).then(|| name.to_string_lossy().into_owned())
}

fn choose(measured: &[(&'static KernelSet, f64)]) -> &'static KernelSet {
    let best = measured.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
    let near = measured.iter().rev().find(|(_, speed)| *speed >= EQUAL_SPEED * best);
    near.map_or(&TABLE[0], |(set, _)| set)
}

fn measure(set: &KernelSet) -> f64 {
    const BLOCK: usize = 4096;
    // Enough iterations for clock frequency and caches to stabilise, with a time limit for the scalar set. A minimum in
    // any case, so that a preemption in the first one does not matter.
    const TURNS: usize = 64;
    const FEWEST_TURNS: usize = 8;
    const LONGEST: Duration = Duration::from_micros(500);
    let plan = "10+4".parse::<Code>().and_then(|code| code.encode_plan());
    // Compiled code for all sets: compilation in the middle of the measurement would distort it.
    let Ok(kernel) = plan.and_then(|plan| set.compile_at(&plan, Tier::Code)) else {
        return 0.0;
    };
    let data = vec![0x5a; 10 * BLOCK];
    let mut redundancy = vec![0; 4 * BLOCK];
    let inputs: Vec<&[u8]> = data.chunks(BLOCK).collect();
    let mut outputs: Vec<&mut [u8]> = redundancy.chunks_mut(BLOCK).collect();
    let (mut best, began) = (Duration::MAX, Instant::now());
    for turn in 1..=TURNS {
        let start = Instant::now();
        if kernel.run(&inputs, &mut outputs).is_err() {
            return 0.0;
        }
        best = best.min(start.elapsed());
        if turn >= FEWEST_TURNS && began.elapsed() > LONGEST {
            break;
        }
    }
    data.len() as f64 / best.as_secs_f64().max(1e-9)
}

/// The scalar kernel set, supported on every CPU.
#[derive(Clone, Copy)]
pub(super) struct NoSimd;

impl Isa for NoSimd {
    type V = Scalar;
    const NAME: &'static str = "scalar";
    const NEEDS: &'static str = "nothing";

    fn detect() -> Option<Self> {
        Some(NoSimd)
    }

    fn run(self, work: Work<'_, '_, Scalar>) {
        // SAFETY: `Scalar` uses only baseline instructions.
        unsafe { work.execute() }
    }

    fn transform(self, work: Transforming<'_, '_, Scalar>) {
        // SAFETY: as above.
        unsafe { work.execute() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a busy machine the widest set was once preempted during its 500 µs, and the process used a narrower one.
    #[test]
    fn the_last_of_equally_fast_kernel_sets_is_used() {
        let set = |index: usize| &TABLE[index % TABLE.len()];
        let chosen = |speeds: &[f64]| {
            let measured: Vec<_> = speeds.iter().enumerate().map(|(i, &speed)| (set(i), speed)).collect();
            choose(&measured).name
        };
        assert_eq!(chosen(&[1.0, 10.0]), set(1).name);
        assert_eq!(chosen(&[10.0, 9.0]), set(1).name);
        assert_eq!(chosen(&[10.0, 2.0]), set(0).name, "a much slower set is not used");
        assert_eq!(chosen(&[0.0]), set(0).name);
        assert_eq!(chosen(&[]), set(0).name);
    }
}
