//! par2 and SnapRAID on the same data with the same share of redundancy.

use super::measure::{Bench, MIB, gabion, line, protect};
use crate::commands::figures::Line;
use crate::commands::files::{drop_caches, fill, sync, warm};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Fails with the command to type if a tool is missing.
fn require(tool: &str) -> Result<()> {
    let there = Command::new(tool).arg("--version").output().is_ok();
    ensure!(there, "{tool} is not installed: apt-get install {tool}");
    Ok(())
}

/// Seconds of a command, including a sync of its output.
fn timed(command: &mut Command, place: &Path) -> Result<f64> {
    let start = Instant::now();
    let done = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    sync(place)?;
    Ok(start.elapsed().as_secs_f64())
}

pub(super) fn par2(bench: &Bench) -> Result<Vec<Line>> {
    require("par2")?;
    let place = bench.request.place()?;
    let size = if bench.request.quick { 32 * MIB } else { 256 * MIB };
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree)?;
    fill(&tree.join("file"), size, 1)?;
    sync(&tree)?;
    warm(&tree)?;
    let repository = place.path().join("repository");
    // 20 % redundancy, as 10+2.
    let create = protect(&tree, &repository, &["--code", "10+2"])?.0;
    let verify = gabion(&["scrub", "--json", "--cached"], &tree, &repository)?.0;
    let set = place.path().join("set.par2");
    let mut command = Command::new("par2");
    command.current_dir(&tree).args(["create", "-qq", "-r20"]).arg("-B").arg(&tree).arg(&set).arg("file");
    let their_create = timed(&mut command, place.path())?;
    let mut command = Command::new("par2");
    command.current_dir(&tree).args(["verify", "-qq", "-B"]).arg(&tree).arg(&set);
    let their_verify = timed(&mut command, place.path())?;
    let rate = |seconds: f64| size as f64 / 1e6 / seconds;
    let conditions = format!("one file of {} MiB, 20 % redundancy, warm cache, sync included", size / MIB);
    Ok(vec![
        line(
            "create against par2",
            rate(create),
            "MB/s",
            "par2",
            rate(their_create),
            100.0,
            conditions.clone(),
        ),
        line("verify against par2", rate(verify), "MB/s", "par2", rate(their_verify), 20.0, conditions),
    ])
}

pub(super) fn snapraid(bench: &Bench) -> Result<Vec<Line>> {
    require("snapraid")?;
    let place = bench.request.place()?;
    let size = if bench.request.quick { 32 * MIB } else { 256 * MIB };
    let tree = place.path().join("tree");
    let mut settings = String::new();
    let at = |name: &str| place.path().join(name).display().to_string();
    for parity in ["p", "q"] {
        std::fs::create_dir(place.path().join(parity))?;
    }
    settings +=
        &format!("parity {}/parity\n2-parity {}/parity\ncontent {}\n", at("p"), at("q"), at("content"));
    for disk in 0..8 {
        let dir = tree.join(format!("d{disk}"));
        std::fs::create_dir_all(&dir)?;
        fill(&dir.join("file"), size, disk)?;
        settings += &format!("content {}/content\ndata d{disk} {}\n", dir.display(), dir.display());
    }
    let file = place.path().join("snapraid.conf");
    std::fs::write(&file, settings)?;
    sync(&tree)?;
    warm(&tree)?;
    let repository = place.path().join("repository");
    let create = protect(&tree, &repository, &[])?.0;
    let scrub = gabion(&["scrub", "--json", "--cached"], &tree, &repository)?.0;
    warm(&tree)?;
    let run = |args: &[&str]| {
        let mut command = Command::new("snapraid");
        // SnapRAID refuses data and parity on one disk without this.
        command.arg("--test-skip-device").arg("-c").arg(&file).args(args);
        timed(&mut command, place.path())
    };
    let their_sync = run(&["sync"])?;
    let their_scrub = run(&["-p", "full", "scrub"])?;
    drop_caches()?;
    let rate = |seconds: f64| (8 * size) as f64 / 1e6 / seconds;
    let conditions = format!("8 files of {} MiB, 8+2, warm cache, sync included", size / MIB);
    Ok(vec![
        line(
            "sync against snapraid",
            rate(create),
            "MB/s",
            "snapraid",
            rate(their_sync),
            3.0,
            conditions.clone(),
        ),
        line("scrub against snapraid", rate(scrub), "MB/s", "snapraid", rate(their_scrub), 3.0, conditions),
    ])
}
