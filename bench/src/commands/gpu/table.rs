//! The table of cases.

use super::{Args, Transfer};
use anyhow::Context;
use gabion::exit::Outcome;
use gabion_bench::gpu::{
    Effort, KernelChoice, Limits, Machine, Ready, Work, compile, limits, overall, raw, variants,
};
use gabion_engine::{Code, Layout, Plan};
use gabion_gpu::GpuError;
use gabion_gpu::measure::Measured;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Shapes of the table; each is measured in both layouts.
const SHAPES: [&str; 15] = [
    "4+2", "10+4", "12+4", "16+4", "30+3", "45+2", "64+4", "10+8", "20+8", "45+8", "64+8", "16+16", "32+16",
    "64+16", "30+33",
];
const QUICK: [&str; 4] = ["4+2", "10+4", "45+8", "16+16"];
const PACKET: &str = ":packets=4096";

/// Shapes of runs from host memory.
const OVERALL: [&str; 6] =
    ["10+4", "10+4:packets=4096", "30+33", "64+4", "45+8:packets=4096", "64+16:packets=4096"];

/// One case of the table with its kernels, ready to run.
pub(super) struct Case<D: Measured> {
    pub(super) work: Work,
    pub(super) code: Code,
    pub(super) kernels: Vec<Ready<D::Kernel>>,
}

/// A kernel to be compiled.
pub(super) type Wish = (Work, Code, Vec<KernelChoice>);

impl Args {
    pub(super) fn table<D: Measured>(
        &self,
        device: &D,
        details: &str,
        effort: Effort,
    ) -> anyhow::Result<Outcome> {
        let cases = compiled(device, self.wishes()?)?;
        let limits = self.limits(device, details, effort)?;
        // The first large allocation of device memory in a process is slower than later ones (docs/notes/gpu.md), so
        // one run does not count.
        if let Some(Case { work, code, kernels }) = cases.first() {
            raw(*work, code, &kernels[..kernels.len().min(1)], limits, effort)?;
        }
        for case in &cases {
            let mut lines = raw(case.work, &case.code, &case.kernels, limits, effort)
                .with_context(|| format!("{} {}", case.work.name(), case.code))?;
            if self.tune {
                lines.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
            }
            self.print(&lines)?;
        }
        drop(cases);
        if !self.raw_only && !self.tune {
            let how = match self.transfer {
                Transfer::Copies => "",
                Transfer::Svm => " by svm",
                Transfer::Mapped => " mapped",
            };
            let asked = self.asked().remove(0);
            for code in self.overall_codes()? {
                let line = overall(device, Work::Encode, &code, asked, how, effort);
                self.print(&[line.with_context(|| format!("overall {code}"))?])?;
            }
        }
        Ok(Outcome::Fine)
    }

    /// Measured after everything is compiled, so that load and temperature of the device are those of the cases.
    pub(super) fn limits<D: Measured>(
        &self,
        device: &D,
        details: &str,
        effort: Effort,
    ) -> anyhow::Result<Limits> {
        let limits = limits(device, effort)?;
        errln!(
            "copy on the device {:.0} GB/s read and written; bus to the device {:.1}, from it {:.1} GB/s",
            limits.copy / 1e9,
            limits.bus.to_device / 1e9,
            limits.bus.from_device / 1e9
        );
        let mut machine = serde_json::to_value(Machine::of(device, details, limits))?;
        if let (Some(date), Some(fields)) = (&self.date, machine.as_object_mut()) {
            fields.insert("date".to_owned(), date.clone().into());
        }
        self.keep(&machine)?;
        Ok(limits)
    }

    fn codes(&self) -> anyhow::Result<Vec<Code>> {
        if !self.codes.is_empty() {
            return Ok(self.codes.clone());
        }
        let shapes: &[&str] = if self.quick { &QUICK } else { &SHAPES };
        let layouts: &[&str] = if self.variant().is_some() { &[""] } else { &["", PACKET] };
        let all =
            shapes.iter().flat_map(|shape| layouts.iter().map(move |layout| format!("{shape}{layout}")));
        Ok(all.map(|text| text.parse()).collect::<Result<_, _>>()?)
    }

    fn overall_codes(&self) -> anyhow::Result<Vec<Code>> {
        if !self.codes.is_empty() {
            return Ok(self.codes.clone());
        }
        let all: Vec<Code> = OVERALL.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        let only_words = self.variant().is_some();
        Ok(all.into_iter().filter(|code| !only_words || code.layout() == Layout::Words).collect())
    }

    fn wishes(&self) -> anyhow::Result<Vec<Wish>> {
        let mut wishes = Vec::new();
        for code in self.codes()? {
            if self.tune {
                for work in [Work::Encode, Work::Repair] {
                    let cuts = variants(&work.plan(&code)?).into_iter().map(KernelChoice::Tuned).collect();
                    wishes.push((work, code.clone(), cuts));
                }
                continue;
            }
            let asked = self.asked();
            wishes.push((Work::Encode, code.clone(), asked.clone()));
            // With fewer outputs, kernels are the same for any lost blocks.
            let repairs: &[Work] = match code.m() {
                ..=8 => &[Work::Repair],
                _ => &[Work::Repair, Work::RepairOfNeighbours, Work::RepairOfScattered],
            };
            wishes.extend(repairs.iter().map(|&work| (work, code.clone(), asked[..1].to_vec())));
        }
        Ok(wishes)
    }
}

/// All cases with their kernels, compiled on all threads.
pub(super) fn compiled<D: Measured>(device: &D, wishes: Vec<Wish>) -> anyhow::Result<Vec<Case<D>>>
where
    D::Kernel: Send,
{
    let mut cases = Vec::new();
    let mut wanted: Vec<(usize, Plan, KernelChoice)> = Vec::new();
    for (work, code, asked) in wishes {
        let plan = work.plan(&code)?;
        wanted.extend(asked.into_iter().map(|asked| (cases.len(), plan.clone(), asked)));
        cases.push(Case { work, code, kernels: Vec::new() });
    }
    let next = AtomicUsize::new(0);
    type Place<K> = Mutex<Option<Result<Ready<K>, GpuError>>>;
    let ready: Vec<Place<D::Kernel>> = wanted.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..Args::threads(device) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let (Some((_, plan, asked)), Some(place)) = (wanted.get(index), ready.get(index)) else {
                        return;
                    };
                    let compiled = compile(device, plan, *asked);
                    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(compiled);
                }
            });
        }
    });
    for ((case, ..), ready) in wanted.iter().zip(ready) {
        if let Some(ready) = ready.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let kernel = ready.with_context(|| format!("compiling for {}", cases[*case].code))?;
            cases[*case].kernels.push(kernel);
        }
    }
    Ok(cases)
}
