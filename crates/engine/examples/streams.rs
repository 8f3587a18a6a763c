//! Encodes a file into six shard files and decodes it from four of them.
//!
//! Run with `cargo run -p gabion-engine --example streams -- FILE`. A real program would also store the length, the
//! block length and the code, and sign the blocks: `gabion shard` does.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;

use gabion_engine::ReedSolomon;

const BLOCK: usize = 64 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let source = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("Cargo.toml"), PathBuf::from);
    let directory = std::env::temp_dir().join(format!("gabion-streams-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let path = |shard: usize| directory.join(format!("shard.{shard}"));
    let rs = ReedSolomon::new(4, 2)?;

    let files = (0..6).map(|shard| File::create(path(shard)));
    let mut writers = files.map(|file| file.map(BufWriter::new)).collect::<Result<Vec<_>, _>>()?;
    let len = rs.encode_stream(BLOCK, File::open(&source)?, &mut writers)?;
    // Dropping a BufWriter would hide an error of its last write.
    writers.into_iter().try_for_each(|writer| writer.into_inner().map(drop))?;

    fs::remove_file(path(0))?;
    fs::remove_file(path(3))?;
    // A missing file is a missing shard.
    let mut shards: Vec<_> = (0..6).map(|shard| File::open(path(shard)).ok().map(BufReader::new)).collect();
    let mut decoded = Vec::new();
    rs.decode_stream(BLOCK, len, &mut shards, &mut decoded)?;
    assert_eq!(decoded, fs::read(&source)?);
    println!("{len} bytes of {} decoded from shards 1, 2, 4 and 5", source.display());
    fs::remove_dir_all(&directory)?;
    Ok(())
}
