//! Processes that burn processor time.

use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result};

/// Name of the hidden task that a process of the load runs.
pub(super) const TASK: &str = "burn";

/// The running processes. They end with this value, and also with this process if it is killed: each reads from a
/// pipe that only this process can write to, and ends with the pipe.
pub(super) struct Load(Vec<Child>);

impl Load {
    pub(super) fn start(count: u32) -> Result<Load> {
        let program = std::env::current_exe().context("path of this program")?;
        // Collected one by one, so that an error ends those that were started.
        let mut load = Load(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(&program);
            command.arg(TASK).stdin(Stdio::piped()).stdout(Stdio::null());
            load.0.push(command.spawn().with_context(|| format!("starting {}", program.display()))?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
            // It ends at the end of its input; there is nothing to do about one that cannot be waited for.
            let _ = child.wait();
        }
    }
}

/// Computes until standard input ends; the caller then ends the process.
pub(super) fn burn() -> ExitCode {
    std::thread::spawn(|| {
        let mut value = 1u64;
        loop {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    });
    // The end of the input and an error both mean that the parent is gone.
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}
