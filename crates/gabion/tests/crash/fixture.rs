//! Fixture: a directory, the program in it, and the loop over the kill points.

pub(crate) use crate::corruption::rot;
use gabion_testkit::kill::{changes_of, killed_before, recorded, sample, was_killed};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::rc::Rc;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gabion");

/// Files by name, with their content.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

#[derive(Clone)]
pub(crate) struct Fixture {
    dir: Rc<tempfile::TempDir>,
}

impl Fixture {
    /// In memory where that is possible: these tests make many changes durable.
    pub(crate) fn new() -> Fixture {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Fixture { dir: Rc::new(tempfile::tempdir_in(parent).unwrap()) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn with(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_remove("GABION_REPOSITORY").env_remove("GABION_TRUST_REPOSITORY");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.with(Command::new(PROGRAM), args).output().unwrap()
    }

    /// Runs a command and expects that it ends with exit code 0. `told` says what came before.
    pub(crate) fn expect(&self, told: &str, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{told}, then gabion {}: {text}{error}", args.join(" "));
        text
    }

    /// As [`expect`](Ground::expect), with `--json`.
    pub(crate) fn json(&self, told: &str, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.expect(told, &[args, &["--json"]].concat())).unwrap()
    }

    /// Runs `gabion ARGS` again and again, each time killed before another of its changes, about `usual` times.
    /// `prepare` makes work for the round with this number, `check` looks at what the kill left.
    pub(crate) fn kill_everywhere<S>(
        &self,
        test: &str,
        usual: usize,
        args: &[&str],
        state: &mut S,
        prepare: impl Fn(&mut S, u64),
        check: impl Fn(&mut S, u64, &str),
    ) {
        prepare(state, 0);
        let log = self.path("log");
        let output = self.with(recorded(&log, PROGRAM), args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        check(state, 0, "without a kill");
        let (mut rounds, mut killed) = (0, 0);
        for change in sample(test, changes_of(&log), usual) {
            rounds += 1;
            prepare(state, rounds);
            let told = format!("gabion {} was killed before {} {}", args.join(" "), change.call, change.nth);
            let output = self.with(killed_before(&change, PROGRAM), args).output().unwrap();
            assert!(was_killed(output.status) || output.status.success(), "{told}: {output:?}");
            killed += u64::from(was_killed(output.status));
            check(state, rounds, &told);
        }
        println!("{test}: {killed} of {rounds} were killed");
        // How threads share work out differs from run to run.
        assert!(killed > 0, "{killed} of {rounds} were killed");
    }
}

/// All files below a directory, the repository left out.
pub(crate) fn files_below(directory: &Path) -> Files {
    fn walk(directory: &Path, prefix: &str, found: &mut Files) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        for entry in entries {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if name == ".gabion" {
                continue;
            }
            match entry.file_type().unwrap().is_dir() {
                true => walk(&entry.path(), &format!("{name}/"), found),
                false => drop(found.insert(name, fs::read(entry.path()).unwrap())),
            }
        }
    }
    let mut found = Files::new();
    walk(directory, "", &mut found);
    found
}

pub(crate) fn assert_same(told: &str, found: &Files, wanted: &Files) {
    let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(wanted), "{told}");
    for (name, content) in wanted {
        assert!(found[name] == *content, "{told}: {name} has other content");
    }
}

/// Bytes that look like chance and can be repeated.
pub(crate) fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(|_| next()).collect()
}
