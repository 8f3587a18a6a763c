//! What workers read after writes through mounts on two hosts into one large file.

use super::deployment::Deployment;
use crate::commands::figures::{BenchOptions, Line};
use anyhow::{Context, Result, ensure};
use gabion_vault::world::Stopwatch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const WRITES: u64 = 1000;
const WRITTEN: u64 = 4096;
const MIB: f64 = (1 << 20) as f64;

/// The code, and the bytes of its stripe.
const POLICY: &str = "[default]\ncode = \"10+4\"\nblock = \"64KiB\"\nquiet = \"0s\"\n";
const STRIPE: u64 = 10 * (64 << 10);

/// Bytes read for each byte of the stripes that were written.
const MOST: f64 = 1.1;

/// A mount on a host.
struct Mount {
    process: Child,
    at: PathBuf,
}

impl Mount {
    fn start(deployment: &Deployment, host: usize, tree: &Path) -> Result<Mount> {
        let at = deployment.path(&format!("mount{host}"));
        std::fs::create_dir(&at)?;
        let at = at.canonicalize()?;
        let mut command = deployment.gabion(host, &["mount"])?;
        command.arg(tree).arg(&at).args(["--json", "--workers", "0"]);
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(process.stdout.take().context("a mount has no output")?).lines();
        while !lines.next().context("a mount does not start")??.contains(r#""event":"mounted""#) {}
        // As it is in the mount's namespace.
        let root = PathBuf::from(format!("/proc/{}/root", process.id()));
        Ok(Mount { at: root.join(at.strip_prefix("/")?), process })
    }

    fn end(mut self) -> Result<()> {
        let process = Pid::from_raw(self.process.id() as i32).context("a process without number")?;
        kill_process(process, Signal::TERM)?;
        ensure!(self.process.wait()?.success(), "a mount failed");
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Random offsets of pages, the same in each run.
fn offsets(size: u64) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % (size / WRITTEN) * WRITTEN
    };
    std::iter::repeat_with(next).take(WRITES as usize).collect()
}

pub(super) fn two_hosts(request: &BenchOptions) -> Result<Vec<Line>> {
    let size: u64 = if request.quick { 1 << 30 } else { 10 << 30 };
    let deployment = Deployment::new(2, request.place()?)?;
    let tree = deployment.tree("tree")?;
    std::fs::write(tree.join(".gabion/policy.toml"), POLICY)?;
    // A hole, which is read as zeros.
    File::create(tree.join("file"))?.set_len(size)?;
    deployment.expect("protect", &tree, &[])?;
    let mounts = [Mount::start(&deployment, 1, &tree)?, Mount::start(&deployment, 2, &tree)?];
    let offsets = offsets(size);
    let write = |host: usize| -> Result<()> {
        let file = File::options().write(true).open(mounts[host].at.join("file"))?;
        for (number, &offset) in offsets.iter().enumerate().filter(|(number, _)| number % 2 == host) {
            file.write_all_at(&[(number % 255) as u8 + 1; WRITTEN as usize], offset)?;
        }
        Ok(file.sync_all()?)
    };
    let clock = Stopwatch::start();
    std::thread::scope(|scope| -> Result<()> {
        let second = scope.spawn(|| write(1));
        write(0)?;
        second.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?
    })?;
    let wrote = clock.seconds();
    let clock = Stopwatch::start();
    let mut read = 0;
    deployment.with_vault(&tree, |vault| {
        while vault.changelog.pending()?.entries() > 0 {
            let output = deployment.expect("work", &tree, &["--json"])?;
            let said = String::from_utf8(output.stdout)?;
            let last: Value = serde_json::from_str(said.lines().last().context("a worker said nothing")?)?;
            read += last["encoded_bytes"].as_u64().with_context(|| last.to_string())?;
        }
        Ok(())
    })?;
    let worked = clock.seconds();
    mounts.into_iter().try_for_each(Mount::end)?;
    // It fails if a block does not match its redundancy.
    deployment.expect("scrub", &tree, &[])?;
    let stripes: BTreeSet<u64> = offsets.iter().map(|offset| offset / STRIPE).collect();
    let touched = stripes.len() as u64 * STRIPE;
    let conditions = format!(
        "{WRITES} random writes of {WRITTEN} bytes through mounts on two hosts at once into a sparse file of {} GiB, 10+4, \
         synced after {wrote:.1} s; {} stripes of {STRIPE} bytes touched; {:.3} bytes read for each of them in \
         {worked:.1} s; no damage found after it",
        size >> 30,
        stripes.len(),
        read as f64 / touched as f64
    );
    let (value, reference) = ((read as f64 / MIB, "MiB read"), touched as f64 / MIB);
    let line = Line::new(
        "hosts",
        "ranges of two hosts",
        value,
        ("stripes touched", reference),
        1.0 / MOST,
        conditions,
    );
    Ok(vec![line.inverted()])
}
