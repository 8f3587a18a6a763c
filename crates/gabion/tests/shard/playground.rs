//! A directory to play in, and the command.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command under test, without arguments.
pub(crate) fn gabion() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
    command.arg("shard");
    command
}

/// What a run said and how it ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Ran {
        assert!(
            self.err.contains(text) || self.out.contains(text),
            "no {text:?} in: {}{}",
            self.out,
            self.err
        );
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A temporary directory with a source file `file` and shards in `shards`.
pub(crate) struct Playground {
    dir: tempfile::TempDir,
}

impl Playground {
    pub(crate) fn new() -> Playground {
        Playground { dir: tempfile::tempdir().unwrap() }
    }

    /// A source of `len` bytes, split with these arguments.
    pub(crate) fn split(len: usize, code: &str, block: &str) -> Playground {
        let place = Playground::new();
        fs::write(place.path("file"), bytes(len, 1)).unwrap();
        place.run(&["split", "file", "--code", code, "--block", block, "--out", "shards"]).expect(0);
        place
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn shard(&self, index: usize) -> PathBuf {
        self.path(format!("shards/file.{index:03}.gabion"))
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Ran {
        gabion().args(arguments).current_dir(self.dir.path()).output().unwrap().into()
    }

    /// Joins and compares with the source; removes the result.
    #[track_caller]
    pub(crate) fn joins(&self) -> Ran {
        let ran = self.run(&["join", "shards", "-o", "joined"]).expect(0);
        let (file, joined) = (fs::read(self.path("file")).unwrap(), fs::read(self.path("joined")).unwrap());
        assert!(file == joined, "{} bytes became {}, or differ", file.len(), joined.len());
        fs::remove_file(self.path("joined")).unwrap();
        ran
    }

    /// No join, and no output.
    #[track_caller]
    pub(crate) fn is_lost(&self) -> Ran {
        let ran = self.run(&["join", "shards", "-o", "joined"]).expect(3);
        assert!(!self.path("joined").exists());
        assert_eq!(self.temps(), 0);
        ran
    }

    /// Flips bits of one byte of a shard.
    pub(crate) fn flip(&self, index: usize, offset: usize) {
        let mut bytes = fs::read(self.shard(index)).unwrap();
        bytes[offset] ^= 0x40;
        fs::write(self.shard(index), bytes).unwrap();
    }

    /// Everything in the shard directory: names and contents.
    pub(crate) fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        contents(&self.path("shards"))
    }

    /// Temporary files left anywhere in the playground.
    pub(crate) fn temps(&self) -> usize {
        let temps = |dir: &Path| fs::read_dir(dir).map_or(0, |dir| dir.flatten().filter(is_temp).count());
        temps(self.dir.path()) + temps(&self.path("shards"))
    }
}

fn is_temp(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().ends_with(".tmp")
}

pub(crate) fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|p| (p.clone(), fs::read(p).unwrap()))
        .collect();
    all.sort();
    all
}

/// Bytes without pattern, the same for the same seed (xorshift64*).
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// All ways to choose `count` of 0..n.
pub(crate) fn choices(n: usize, count: usize) -> Vec<Vec<usize>> {
    let chosen = |bits: u32| (0..n).filter(move |i| bits >> i & 1 == 1).collect();
    (0..1u32 << n).filter(|bits| bits.count_ones() as usize == count).map(chosen).collect()
}
