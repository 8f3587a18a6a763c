//! `gabion-bench paper`.

use anyhow::Context;
use gabion::exit::Outcome;
use gabion_bench::paper::{Event, Experiment, Found, Machine, comparisons, figure, page, read_record};
use gabion_bench::plot::Target;
use gabion_engine::kernel::{Backend, KernelSet};
use indicatif::ProgressBar;
use std::io::Write;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gabion-bench paper --list                     what there is
  gabion-bench paper 001 --quick                one paper, in a hurry
  gabion-bench paper 002-raidz --plot figures   one experiment, with its picture
  gabion-bench paper --record all.jsonl --date 2026-01-31
  gabion-bench paper --page papers.md --from all.jsonl --from gpu.jsonl";

/// Arguments of `gabion-bench paper`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Papers (001) or experiments (001-regions) [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the experiments and run none
    #[arg(long)]
    list: bool,
    /// Fewer points and less time for each
    #[arg(long)]
    quick: bool,
    /// Only devices whose library or name contains this, such as cuda or h200 [default: all]
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    devices: String,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Draw a chart of every experiment into this directory, as NAME.svg or NAME.png
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Format of the charts
    #[arg(long, value_name = "svg|png", default_value = "svg", value_parser = ["svg", "png"], requires = "plot")]
    format: String,
    /// Write the JSON lines to this file as well, after one about the machine
    #[arg(long, value_name = "FILE", requires = "date")]
    record: Option<PathBuf>,
    /// The date to record
    #[arg(long, value_name = "YYYY-MM-DD", requires = "record")]
    date: Option<String>,
    /// Measure nothing; write a page of Markdown from records, with charts in figures/ beside it
    #[arg(long, value_name = "FILE", requires = "from", conflicts_with_all = ["names", "quick", "json", "plot", "record", "list"])]
    page: Option<PathBuf>,
    /// A record for the page; may be repeated
    #[arg(long, value_name = "FILE", requires = "page")]
    from: Vec<PathBuf>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        if let Some(to) = &self.page {
            return write_page(to, &self.from);
        }
        let experiments = Experiment::named(&self.names)?;
        if self.list {
            for it in experiments {
                outln!("{:<16} {}\n{:<16} {}", it.name, it.title, "", it.source);
            }
            return Ok(Outcome::Fine);
        }
        if let Some(dir) = &self.plot {
            std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        let machine = this_machine(self.date.clone().unwrap_or_default())?;
        let mut record = self.record.as_deref().map(|path| Record::begin(path, &machine)).transpose()?;
        for experiment in experiments {
            let found = self.measure(experiment, &machine, record.as_mut())?;
            if let Some(dir) = &self.plot {
                draw(&found, dir, &self.format)?;
            }
        }
        Ok(Outcome::Fine)
    }

    fn measure(
        &self,
        experiment: &'static Experiment,
        machine: &Machine,
        mut record: Option<&mut Record>,
    ) -> anyhow::Result<Found> {
        let mut found =
            Found { experiment, machine: machine.clone(), points: Vec::new(), left_out: Vec::new() };
        if !self.json {
            outln!("\n{}: {}", experiment.name, experiment.title);
            outln!("  after {}; theirs: {}", experiment.source, experiment.their_machine);
        }
        // Hidden unless standard error is a terminal.
        let progress = ProgressBar::new_spinner();
        let result = experiment.run(self.quick, &self.devices, &mut |said| {
            progress.tick();
            let line = serde_json::to_string(&said)?;
            progress.suspend(|| self.show(experiment, &said, &line));
            if let Some(record) = &mut record {
                record.add(&line)?;
            }
            match said {
                Event::Point(point) => found.points.push(point),
                Event::LeftOut { reason, .. } => found.left_out.push(reason),
            }
            Ok(())
        });
        progress.finish_and_clear();
        result.with_context(|| experiment.name)?;
        if !self.json {
            show_comparisons(&found);
        }
        Ok(found)
    }

    fn show(&self, experiment: &Experiment, said: &Event, line: &str) {
        match said {
            _ if self.json => outln!("{line}"),
            Event::Point(point) => {
                let (place, y) = (experiment.form.place(&point.x), experiment.form.y());
                outln!("  {:<10} {:<32} {:>10} {:>10.3} {y}", point.panel, point.series, place, point.value)
            }
            Event::LeftOut { reason, .. } => outln!("  left out: {reason}"),
        }
    }
}

/// A record that is written line by line, so that an interrupted run keeps its results.
struct Record(std::fs::File);

impl Record {
    fn begin(path: &Path, machine: &Machine) -> anyhow::Result<Record> {
        let file = std::fs::File::create(path).with_context(|| path.display().to_string())?;
        let mut record = Record(file);
        record.add(&serde_json::to_string(machine)?).with_context(|| path.display().to_string())?;
        Ok(record)
    }

    fn add(&mut self, line: &str) -> std::io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())
    }
}

fn this_machine(date: String) -> anyhow::Result<Machine> {
    Ok(Machine {
        bench: "machine".into(),
        date,
        cpu: gabion::machine::Cpu::of_this_machine().model,
        cores: std::thread::available_parallelism()?.get(),
        kernel: KernelSet::chosen()?.name().to_owned(),
    })
}

fn show_comparisons(found: &Found) {
    let compared = comparisons(found.experiment, &found.points);
    if compared.is_empty() {
        return;
    }
    outln!("  {:<58} {:>10} {:>12}", "", "theirs", "ours");
    for (what, theirs, ours, unit) in compared {
        let ours = ours.map_or("not measured".to_owned(), |ours| format!("{ours:.3}"));
        outln!("  {what:<58} {theirs:>10.3} {ours:>12} {unit}");
    }
}

fn draw(found: &Found, dir: &Path, format: &str) -> anyhow::Result<()> {
    let target = Target::new(&dir.join(format!("{}.{format}", found.experiment.name)))?;
    Ok(target.write(&figure(found.experiment, &found.points))?)
}

fn write_page(to: &Path, records: &[PathBuf]) -> anyhow::Result<Outcome> {
    let mut all = Vec::new();
    for path in records {
        all.extend(read_record(path)?);
    }
    all.sort_by_key(|found| found.experiment.name);
    let folder = to.parent().unwrap_or(Path::new("")).join("figures");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for found in &all {
        draw(found, &folder, "svg")?;
    }
    let text = page(&all, |found| format!("figures/{}.svg", found.experiment.name));
    std::fs::write(to, text).with_context(|| to.display().to_string())?;
    Ok(Outcome::Fine)
}
