//! Fixture: a pool of plain directories, faults on them, and the placement of the columns of files.

use crate::fixture::{Fixture, PROGRAM};
use crate::test_rng::TestRng;
use gabion_testkit::kill::{Change, killed_before, was_killed};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Numbers of targets: d1 has number 1.
pub(crate) type Targets = BTreeSet<usize>;

/// Targets of a pool, its data and its redundancy columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) targets: usize,
    pub(crate) stripe: usize,
    pub(crate) redundancy: usize,
}

impl Shape {
    /// With more than 2m targets, as docs/reference/pool.md asks for, and a place for every column.
    pub(crate) fn draw(seed: &mut TestRng) -> Shape {
        let redundancy = 1 + seed.below(3) as usize;
        let least = 4.max(2 * redundancy + 1);
        let targets = least + seed.below(9 - least as u64) as usize;
        let stripe = 1 + seed.below((targets - redundancy).min(4) as u64) as usize;
        Shape { targets, stripe, redundancy }
    }
}

/// Where a file is, as `gabion pool ls` says.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) name: String,
    id: String,
    size: u64,
    block: u64,
    targets: Vec<usize>,
}

impl Placed {
    fn of(entry: &Value) -> Placed {
        let text = |key: &str| entry[key].as_str().unwrap().to_owned();
        let number = |name: &Value| name.as_str().unwrap()[1..].parse().unwrap();
        Placed {
            name: text("path"),
            id: text("id"),
            size: entry["size"].as_u64().unwrap(),
            block: entry["block"].as_u64().unwrap(),
            targets: entry["targets"].as_array().unwrap().iter().map(number).collect(),
        }
    }

    /// Bytes of the object of a column, as docs/reference/pool.md says.
    fn bytes(&self, column: usize) -> u64 {
        let (stripe, column) = (self.targets.len() as u64 * self.block, column as u64);
        let rest = self.size % stripe;
        self.size / stripe * self.block + rest.saturating_sub(column * self.block).min(self.block)
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Columns that have bytes, each with its target.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (usize, usize)> {
        self.targets.iter().copied().enumerate().filter(|(column, _)| self.bytes(*column) > 0)
    }

    fn below(&self, directory: &str, name: &str) -> String {
        format!("{directory}/{}/{name}", &self.id[..2])
    }
}

/// The pool and its targets. A target that is gone is a directory beside the others.
pub(crate) struct Tank {
    pub(crate) fixture: Fixture,
    pub(crate) shape: Shape,
    /// Targets that do not answer.
    pub(crate) gone: Targets,
    /// Targets that were given up by a rebuild, whether they answer again or not.
    pub(crate) given_up: Targets,
    /// Targets on which something is not as the program left it.
    pub(crate) spoilt: Targets,
    /// Targets that files may miss columns on: at most m.
    pub(crate) exposed: Targets,
    /// The number of the directory that each target is in, from target 1 on.
    directories: Vec<usize>,
}

/// System calls by which the commands of a pool change files; those that they make most are here more than once.
const CALLS: [&str; 9] = [
    "pwrite64",
    "pwrite64",
    "pwrite64",
    "renameat",
    "renameat",
    "unlinkat",
    "mkdirat",
    "ftruncate",
    "renameat2",
];

impl Tank {
    pub(crate) fn new(shape: Shape) -> Tank {
        let fixture = Fixture::new();
        let (k, m) = (shape.stripe.to_string(), shape.redundancy.to_string());
        let targets: Vec<String> = (1..=shape.targets).map(|number| format!("d{number}")).collect();
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        let create = ["pool", "create", "tank", "--pools", "names", "--stripe", &k, "--redundancy", &m];
        fixture.expect("at first", &[&create[..], &["--block", "4KiB", "--targets"], &targets].concat());
        let policy = "[default]\nquiet = \"0s\"\n[guard]\nat_least = 100000\n";
        fs::write(fixture.path("policy.toml"), policy).unwrap();
        fixture.expect("at first", &["protect", "tank", "--pools", "names", "--policy", "policy.toml"]);
        let none = Targets::new;
        Tank {
            fixture,
            shape,
            gone: none(),
            given_up: none(),
            spoilt: none(),
            exposed: none(),
            directories: (1..=shape.targets).collect(),
        }
    }

    /// Exit code and output of `gabion ARGS`.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String) {
        let output = self.fixture.run(&[args, &["--pools", "names"]].concat());
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (
            output.status.code().unwrap_or_else(|| panic!("gabion {}: {}", args.join(" "), output.status)),
            said.concat(),
        )
    }

    /// Exit code and object of `gabion ARGS --json`.
    pub(crate) fn json(&self, told: &str, args: &[&str]) -> (i32, Value) {
        let output = self.fixture.run(&[args, &["--pools", "names", "--json"]].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let object = serde_json::from_str(&text)
            .unwrap_or_else(|why| panic!("{told}: gabion {}: {why}: {text}{error}", args.join(" ")));
        (output.status.code().unwrap(), object)
    }

    /// Runs `gabion ARGS` and kills it before a change of files that is drawn; its exit code if it came to its end.
    pub(crate) fn run_killed(&self, seed: &mut TestRng, args: &[&str]) -> (Option<i32>, String) {
        let call = CALLS[seed.below(CALLS.len() as u64) as usize];
        // Some commands make few changes, others hundreds.
        let most = 1 << seed.below(if call == "pwrite64" { 7 } else { 3 });
        let nth = 1 + seed.below(most) as u32;
        let command = killed_before(&Change { call, nth }, PROGRAM);
        let output = self.fixture.with(command, &[args, &["--pools", "names"]].concat()).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let before = format!("before {call} {nth}: {}", said.concat());
        if was_killed(output.status) { (None, before) } else { (Some(output.status.code().unwrap()), before) }
    }

    pub(crate) fn target(&self, number: usize) -> PathBuf {
        self.fixture.path(&format!("d{}", self.directories[number - 1]))
    }

    fn aside(&self, number: usize) -> PathBuf {
        self.fixture.path(&format!("away{number}"))
    }

    /// Targets that answer.
    pub(crate) fn answering(&self) -> impl Iterator<Item = usize> {
        (1..=self.shape.targets).filter(|number| !self.gone.contains(number))
    }

    /// Targets that answer and count: those that came back count once they were verified.
    pub(crate) fn counting(&self) -> Targets {
        self.answering().filter(|number| !self.given_up.contains(number)).collect()
    }

    /// Whether one more target may fail: files stay readable, the namespace too, and new files find a place.
    pub(crate) fn may_fail(&self, number: usize) -> bool {
        let counting = self.counting();
        let exposed = self.exposed.len() + usize::from(!self.exposed.contains(&number));
        counting.contains(&number) && exposed <= self.shape.redundancy && counting.len() > self.shape.stripe
    }

    /// Takes a target away; in its place is nothing, or the empty directory that a disk was mounted on.
    pub(crate) fn lose(&mut self, number: usize, leave_directory: bool) {
        fs::rename(self.target(number), self.aside(number)).unwrap();
        if leave_directory {
            fs::create_dir(self.target(number)).unwrap();
        }
        self.gone.insert(number);
        self.exposed.insert(number);
    }

    pub(crate) fn bring_back(&mut self, number: usize) {
        let _ = fs::remove_dir(self.target(number));
        fs::rename(self.aside(number), self.target(number)).unwrap();
        self.gone.remove(&number);
    }

    /// Exchanges the directories of two targets.
    pub(crate) fn exchange(&mut self, one: usize, other: usize) {
        let between = self.fixture.path("between");
        for (from, to) in [
            (self.target(one), between.clone()),
            (self.target(other), self.target(one)),
            (between, self.target(other)),
        ] {
            fs::rename(from, to).unwrap();
        }
        self.directories.swap(one - 1, other - 1);
    }

    fn copy(from: &PathBuf, to: &PathBuf) {
        let _ = fs::remove_dir_all(to);
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
    }

    /// Makes a copy of a target, as a snapshot or a clone of a disk does.
    pub(crate) fn keep(&self, number: usize) {
        Tank::copy(&self.target(number), &self.fixture.path(&format!("kept{number}")));
    }

    pub(crate) fn has_copy(&self, number: usize) -> bool {
        self.fixture.path(&format!("kept{number}")).exists()
    }

    /// Puts a target back to the copy.
    pub(crate) fn put_back(&mut self, number: usize) {
        Tank::copy(&self.fixture.path(&format!("kept{number}")), &self.target(number));
        self.spoilt.insert(number);
        self.exposed.insert(number);
    }

    /// Where all files are, and the names of directories with a slash behind them.
    pub(crate) fn listing(&self, told: &str) -> (Vec<Placed>, BTreeSet<String>) {
        let (code, listed) = self.json(told, &["pool", "ls", "tank", "-R"]);
        assert_eq!(code, 0, "{told}: {listed}");
        let entries = listed["entries"].as_array().unwrap();
        let (directories, files): (Vec<_>, Vec<_>) = entries.iter().partition(|it| it["kind"] == "directory");
        let directories = directories.iter().map(|it| format!("{}/", it["path"].as_str().unwrap()));
        (files.into_iter().map(Placed::of).collect(), directories.collect())
    }

    /// The object of a column, if it is there with all of its bytes.
    pub(crate) fn object(&self, placed: &Placed, column: usize) -> Option<PathBuf> {
        let number = placed.targets[column];
        let path = self.target(number).join(placed.below("objects", &format!("{}.{column}", placed.id)));
        fs::metadata(&path).is_ok_and(|it| it.len() == placed.bytes(column)).then_some(path)
    }

    /// Data columns with bytes that are not there, counted among the targets in `without` and those that do not have
    /// them.
    pub(crate) fn columns_gone(&self, placed: &Placed, without: &Targets) -> usize {
        let is_gone = |&(column, target): &(usize, usize)| {
            without.contains(&target) || self.object(placed, column).is_none()
        };
        placed.columns().filter(is_gone).count()
    }

    /// Targets that answer and have a redundancy file of a file.
    pub(crate) fn redundancy(&self, placed: &Placed) -> Targets {
        let path = placed.below("parity", &placed.id);
        self.answering().filter(|number| self.target(*number).join(&path).exists()).collect()
    }

    /// The redundancy file that a target has of a file.
    pub(crate) fn redundancy_file(&self, placed: &Placed, number: usize) -> PathBuf {
        self.target(number).join(placed.below("parity", &placed.id))
    }
}
