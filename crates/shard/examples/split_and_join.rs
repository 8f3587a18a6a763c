//! Splits a file into 6 shards, removes two of them and joins the file from the other four.
//!
//! `cargo run -p gabion-shard --example split_and_join -- FILE DIRECTORY`

use gabion_engine::backends::{Backends, CpuOnly};
use gabion_shard::{Run, join, split};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(file), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("usage: split_and_join FILE DIRECTORY".into());
    };
    let backends: Arc<dyn Backends> = Arc::new(CpuOnly);
    let stop = AtomicBool::new(false);
    let run = Run { threads: 0, stop: &stop, progress: &|_| {}, backends: &backends };

    let options = split::Options {
        source: Some(file.clone()),
        code: "4+2".parse()?,
        out: directory.join("shards"),
        block: split::DEFAULT_BLOCK,
        name: None,
        force: true,
    };
    let plan = split::Plan::new(&options)?;
    let shards = plan.shards.clone();
    let made = plan.run(&run)?;
    println!("{} bytes in {} shards of {} bytes", made.content.size, made.shards.len(), made.shard_len);

    for shard in &shards[1..3] {
        std::fs::remove_file(shard)?;
        println!("removed {}", shard.display());
    }
    let target = join::Target::File { path: directory.join("joined"), force: true };
    let report = join::join(&directory.join("shards"), None, &target, &run)?;
    println!("joined {} bytes without the shards {:?}", report.content.size, report.missing);
    Ok(())
}
