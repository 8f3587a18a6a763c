//! Contenders in other processes: a program of Python that encodes when it is told to, and measures itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::super::cases::Shape;
use super::super::race::Contender;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/worker.py");

/// The data of `worker.py`.
pub(super) fn stripe(k: usize, len: usize) -> Vec<Vec<u8>> {
    let block = |column: usize| {
        let mut block: Vec<u8> = (0..len).map(|at| (at + column) as u8).collect();
        block[len - 1] = column as u8;
        block
    };
    (0..k).map(block).collect()
}

/// A running contender.
pub(super) struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it found for the fixed data.
    pub(super) found: String,
}

impl Worker {
    /// Starts it; `libraries` is its library path.
    pub(super) fn start(
        python: &Path,
        case: &str,
        (k, m): Shape,
        len: usize,
        libraries: Option<&Path>,
    ) -> anyhow::Result<Worker> {
        let mut command = Command::new(python.join("bin/python"));
        command.args([PROGRAM, case]).args([k, m, len].map(|number| number.to_string()));
        command.env_remove("LD_LIBRARY_PATH").stdin(Stdio::piped()).stdout(Stdio::piped());
        // Large blocks stay in the process when they are freed. Otherwise allocations of a library at its start, which
        // move glibc's threshold, change the time of page faults by more than coding takes.
        command.env("MALLOC_MMAP_THRESHOLD_", "33554432").env("MALLOC_TRIM_THRESHOLD_", "1073741824");
        if let Some(libraries) = libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let input = child.stdin.take().context("no pipe")?;
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut worker = Worker { child, input, output, found: String::new() };
        worker.found = worker.line().with_context(|| format!("{command:?}"))?;
        Ok(worker)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "the program has ended");
        Ok(line.trim().to_owned())
    }

    fn time(&mut self, passes: u32) -> anyhow::Result<Duration> {
        writeln!(self.input, "{passes}")?;
        self.input.flush()?;
        let line = self.line()?;
        let seconds: f64 = line.parse().with_context(|| line.clone())?;
        Ok(Duration::from_secs_f64(seconds))
    }

    pub(super) fn contender<'a>(mut self, name: &'static str) -> Contender<'a, ()> {
        Contender::timed(name, move |passes| self.time(passes).expect("it answered before the race"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It would end by itself at the end of its input; its own end is not awaited without that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
