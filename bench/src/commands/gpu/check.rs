//! The conformance suite on a device.

use super::{Args, Kernels};
use gabion::exit::Outcome;
use gabion_engine::conformance::PatternLimits;
use gabion_engine::kernel::Backend;
use gabion_gpu::check::{Effort, conformance};
use gabion_gpu::cuda::{CudaBackend, CudaDevice};
use gabion_gpu::measure::Measured;
use gabion_gpu::opencl::{OpenClBackend, OpenClDevice};
use gabion_gpu::source::method::{Method, Variant, Vector};
use gabion_gpu::{Choice, Form};
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A check in a record.
#[derive(Serialize)]
struct Checked {
    bench: &'static str,
    device: String,
    backend: String,
    part: String,
    checks: usize,
    failed: usize,
    launches: u64,
    seconds: f64,
}

impl Args {
    pub(super) fn check_cuda(&self, device: &CudaDevice) -> anyhow::Result<Outcome> {
        anyhow::ensure!(self.kernels != Some(Kernels::Methods), "methods are OpenCL's: add --api opencl");
        let mut failed = 0;
        for choice in self.choices() {
            if choice == Choice::Products && !device.has_tensor_cores() {
                anyhow::ensure!(
                    self.kernels.is_none(),
                    "{} does not multiply matrices of bits",
                    device.title()
                );
                errln!("SKIP products: {} does not multiply matrices of bits", device.title());
                continue;
            }
            let backend = CudaBackend::new(device.clone(), choice);
            let launches = || {
                let (generic, products) = (device.launches(Form::Generic), device.launches(Form::Products));
                match choice {
                    Choice::Specialised => device.launches(Form::Specialised),
                    Choice::Products => products + generic,
                    _ => generic,
                }
            };
            let effort = Effort { part: self.part, ..Effort::full(Args::threads(device)) };
            failed += self.checked(&device.title(), &backend, &launches, &effort)?;
        }
        Ok(if failed == 0 { Outcome::Fine } else { Outcome::Failed })
    }

    /// Both forms and all methods. A CPU's platform compiles with one thread at a time.
    pub(super) fn check_opencl(&self, device: &OpenClDevice) -> anyhow::Result<Outcome> {
        let threads = Args::threads(device);
        let (losses, part) = (PatternLimits { exhaustive: 0, samples: 2 }, self.part);
        let launches = || device.launches();
        let mut failed = 0;
        anyhow::ensure!(
            self.kernels != Some(Kernels::Products),
            "products are CUDA's: leave --api opencl out"
        );
        for choice in self.choices().into_iter().filter(|&choice| choice != Choice::Products) {
            let backend = OpenClBackend::new(device.clone(), choice);
            let effort = Effort { rounds: 1, losses, part, ..Effort::full(threads) };
            failed += self.checked(&device.title(), &backend, &launches, &effort)?;
        }
        if matches!(self.kernels, None | Some(Kernels::Methods)) {
            for method in Method::ALL {
                for vector in Vector::ALL {
                    let backend = OpenClBackend::by_method(device.clone(), Variant { method, vector });
                    let effort = Effort { losses, part, ..Effort::of_bytes(threads) };
                    failed += self.checked(&device.title(), &backend, &launches, &effort)?;
                }
            }
        }
        Ok(if failed == 0 { Outcome::Fine } else { Outcome::Failed })
    }

    fn choices(&self) -> Vec<Choice> {
        match self.kernels {
            None => vec![Choice::Generic, Choice::Products, Choice::Specialised],
            Some(Kernels::Generic) => vec![Choice::Generic],
            Some(Kernels::Specialised) => vec![Choice::Specialised],
            Some(Kernels::Products) => vec![Choice::Products],
            Some(Kernels::Methods) => Vec::new(),
        }
    }

    /// Runs the suite and prints every check. Returns the number of failures.
    fn checked(
        &self,
        device: &str,
        backend: &dyn Backend,
        launches: &(dyn Fn() -> u64 + Sync),
        effort: &Effort,
    ) -> anyhow::Result<usize> {
        let (name, before, began) = (backend.name(), launches(), Instant::now());
        let checks = AtomicUsize::new(0);
        let mut failed = conformance(backend, launches, effort, &|check, outcome| {
            checks.fetch_add(1, Ordering::Relaxed);
            match outcome {
                Ok(()) => errln!("ok    {name}: {check}"),
                Err(why) => errln!("FAIL  {name}: {check}: {}", why.chars().take(600).collect::<String>()),
            }
        });
        let (checks, launched) = (checks.into_inner(), launches() - before);
        if launched < checks.saturating_sub(1) as u64 {
            errln!("FAIL  {name}: {checks} checks and only {launched} launches");
            failed += 1;
        }
        let seconds = began.elapsed().as_secs_f64();
        if !self.json {
            outln!(
                "{name}: part {}, {checks} checks, {failed} failed, {launched} launches, {seconds:.0} s",
                self.part
            );
        }
        self.keep(&Checked {
            bench: "gpu-check",
            device: device.to_owned(),
            backend: name.to_owned(),
            part: self.part.to_string(),
            checks,
            failed,
            launches: launched,
            seconds: seconds.round(),
        })?;
        Ok(failed)
    }
}
