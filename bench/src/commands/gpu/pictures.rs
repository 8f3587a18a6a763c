//! Charts of data rates over k.

use super::Args;
use super::table::{Wish, compiled};
use anyhow::Context;
use gabion::exit::Outcome;
use gabion_bench::gpu::{Effort, KernelChoice, Line, Work, over_data_blocks, overall, raw};
use gabion_bench::plot::Target;
use gabion_gpu::measure::Measured;
use std::path::Path;

const OUTPUTS: [usize; 3] = [2, 4, 8];
const INPUTS: [usize; 8] = [2, 4, 8, 12, 16, 24, 32, 45];
const QUICK_INPUTS: [usize; 4] = [2, 4, 8, 16];

impl Args {
    pub(super) fn draw<D: Measured>(
        &self,
        device: &D,
        details: &str,
        effort: Effort,
        path: &Path,
    ) -> anyhow::Result<Outcome> {
        let target = Target::new(path)?;
        let asked = self.asked().first().copied().unwrap_or(KernelChoice::Fastest);
        let inputs: &[usize] = if self.quick { &QUICK_INPUTS } else { &INPUTS };
        let layout = if self.variant().is_some() { "" } else { ":packets=4096" };
        let mut wishes: Vec<Wish> = Vec::new();
        for m in OUTPUTS {
            for &k in inputs.iter().filter(|&&k| k >= m) {
                wishes.push((Work::Encode, format!("{k}+{m}{layout}").parse()?, vec![asked]));
            }
        }
        let cases = compiled(device, wishes)?;
        let limits = self.limits(device, details, effort)?;
        let mut lines: Vec<(usize, usize, Line)> = Vec::new();
        for case in cases {
            let code = case.code;
            let of = || format!("encode {code}");
            let mut found = raw(case.work, &code, &case.kernels, limits, effort).with_context(of)?;
            if !self.raw_only {
                found.push(overall(device, Work::Encode, &code, asked, "", effort).with_context(of)?);
            }
            self.print(&found)?;
            lines.extend(found.into_iter().map(|line| (code.k(), code.m(), line)));
        }
        target.write(&over_data_blocks(&device.title(), &lines))?;
        errln!("drawn into {}", path.display());
        Ok(Outcome::Fine)
    }
}
