//! `gabion info`.

use anyhow::Context;
use gabion::exit::Outcome;
use gabion::machine::{Machine, Reason};
use gabion::size::Size;
use gabion_engine::kernel::KERNEL_VARIABLE;
use std::fmt::Write as _;

const EXAMPLES: &str = "\
Speeds are measured at start: encoding 10+4 in blocks of 4 KiB, in cache, on one thread, \
in 1e9 bytes of data per second. The last kernel that is about as fast as the fastest is chosen, \
unless GABION_KERNEL names another one.

Examples:
  gabion info                        CPU, caches and devices of this machine, and the chosen kernel
  GABION_KERNEL=avx2 gabion info     the same with a forced kernel, as for any other command
  gabion info --json | jq '.kernels[] | select(.chosen)'";

/// Arguments of `gabion info`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let machine = Machine::look().context("choosing a kernel")?;
        let text = if self.json { gabion::report::document(&machine) + "\n" } else { table(&machine)? };
        out!("{text}");
        Ok(Outcome::Fine)
    }
}

fn table(machine: &Machine) -> Result<String, std::fmt::Error> {
    let known = |count: Option<usize>| count.map_or("unknown".to_owned(), |count| count.to_string());
    let cpu = &machine.cpu;
    let mut text = String::new();
    writeln!(text, "gabion     {}", machine.program)?;
    writeln!(text, "cpu        {} ({})", cpu.model.as_deref().unwrap_or("unknown"), cpu.architecture)?;
    writeln!(text, "cores      {}, hardware threads {}", known(cpu.cores), known(cpu.hardware_threads))?;
    let caches = cpu.caches.iter().map(|cache| {
        let kind = if cache.kind == "unified" { String::new() } else { format!(" {}", cache.kind) };
        let shared = match cache.shared_by {
            Some(count) if count > 1 => format!(" shared by {count}"),
            _ => String::new(),
        };
        format!("L{}{kind} {}{shared}", cache.level, Size(cache.bytes as usize))
    });
    let caches = caches.collect::<Vec<_>>().join(", ");
    writeln!(text, "caches     {}", if caches.is_empty() { "unknown" } else { &caches })?;
    writeln!(text, "threads    {}", machine.threads)?;
    let limits = &machine.thresholds;
    let (near, stream) = (Size(limits.near_bytes), Size(limits.stream_bytes));
    writeln!(text, "asking     for outputs before they are written, from {near} of blocks in a call on")?;
    writeln!(text, "streaming  from {stream} of blocks in a call on")?;
    writeln!(text, "tiles      {} of inputs", Size(limits.input_tile_bytes))?;
    writeln!(text)?;

    let width = |column: fn(&gabion::machine::KernelState) -> &str, head: &str| {
        machine.kernels.iter().map(|row| column(row).len()).max().unwrap_or(0).max(head.len())
    };
    let (names, needs) = (width(|row| &row.name, "kernel"), width(|row| &row.needs, "needs"));
    writeln!(text, "{:names$}  {:needs$}  {:9}  {:>6}", "kernel", "needs", "supported", "GB/s")?;
    for row in &machine.kernels {
        let supported = if row.supported { "yes" } else { "no" };
        let speed = row.gb_per_s.map_or("-".to_owned(), |speed| format!("{speed:.1}"));
        let chosen = match (row.chosen, machine.chosen_because) {
            (false, _) => String::new(),
            (true, Reason::Measured) => "  chosen: by measurement".to_owned(),
            (true, Reason::Forced) => format!("  chosen: forced by {KERNEL_VARIABLE}"),
        };
        writeln!(text, "{:names$}  {:needs$}  {supported:9}  {speed:>6}{chosen}", row.name, row.needs)?;
    }
    for library in &machine.devices {
        writeln!(text)?;
        if let Some(reason) = &library.missing {
            writeln!(text, "{:9}  none: {reason}", library.api)?;
        }
        for device in &library.found {
            let (memory, details) = (device.memory >> 20, &device.details);
            writeln!(text, "{:9}  {}: {}, {memory} MiB, {details}", library.api, device.index, device.name)?;
        }
    }
    Ok(text)
}
