//! One history: rounds of events and commands that are drawn from a seed.

use crate::fixture::{bytes, rot};
use crate::model::Model;
use crate::tank::{Placed, Shape, Tank, Targets};
use crate::test_rng::TestRng;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A change of names or content, by one command.
enum Step {
    Put(&'static str),
    Remove(&'static str),
    Move(&'static str, &'static str),
}

const FILES: [&str; 9] = ["a", "b", "c", "log", "log.1", "log.2", "dir/x", "dir/y", "other/x"];

/// Counts of what happened, to show that a history was not an idle one.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) commands: u64,
    pub(crate) killed: u64,
    pub(crate) lost: u64,
    pub(crate) spoilt: u64,
    pub(crate) settled: u64,
}

pub(crate) struct History {
    number: u64,
    pub(crate) seed: TestRng,
    pub(crate) tank: Tank,
    pub(crate) model: Model,
    /// As it was when `protect` ended with exit code 0 last.
    pub(crate) protected_model: Model,
    /// A command that protects, repairs or rebuilds was killed, and none has come to its end since.
    pub(crate) half_done: bool,
    /// Files were examined while something was wrong: what was found of them stays known until they are examined again.
    pub(crate) examined: bool,
    /// Targets that a rebuild may have given up, and that were not taken back for certain.
    pub(crate) may_be_given_up: Targets,
    /// Targets that have the current namespace and answer, by `pool status`.
    pub(crate) mirrors: Targets,
    pub(crate) counts: Counts,
    /// The names that were found last: files with their identity, directories without.
    found: BTreeMap<String, String>,
    contents: u64,
    told: Vec<String>,
}

impl History {
    pub(crate) fn new(number: u64) -> History {
        let mut seed = TestRng(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let shape = Shape::draw(&mut seed);
        let mut history = History {
            number,
            seed,
            tank: Tank::new(shape),
            model: Model::default(),
            protected_model: Model::default(),
            half_done: false,
            examined: false,
            may_be_given_up: Targets::new(),
            mirrors: Targets::new(),
            counts: Counts::default(),
            found: BTreeMap::new(),
            contents: 0,
            told: vec![format!("{shape:?}")],
        };
        // It is never removed: a pool without any file looks like one that is not mounted, and `protect` asks.
        let content = (20_000, number << 32);
        fs::write(history.tank.fixture.path("source"), bytes(content.0, content.1)).unwrap();
        history.expect(0, &["pool", "put", "tank", "source", "kept"]);
        history.model.put("kept", content);
        let (code, said) = history.tank.json("at first", &["protect", "tank"]);
        history.protected(code, &said);
        history.check();
        history
    }

    /// What happened until now, for messages of failed checks.
    pub(crate) fn told(&self, now: &str) -> String {
        let from = self.told.len().saturating_sub(40);
        format!("history {}, after {:#?}, {now}", self.number, &self.told[from..])
    }

    fn tell(&mut self, text: impl Into<String>) {
        self.told.push(text.into());
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.seed.below(list.len() as u64) as usize]
    }

    fn chance(&mut self, one_of: u64) -> bool {
        self.seed.below(one_of) == 0
    }

    pub(crate) fn remember(&mut self, placed: &[Placed], directories: &BTreeSet<String>) {
        let files = placed.iter().map(|it| (it.name.clone(), it.id().to_owned()));
        self.found = files.chain(directories.iter().map(|name| (name.clone(), String::new()))).collect();
    }

    /// One round: something happens to a target, a command is run, and everything is looked at.
    pub(crate) fn round(&mut self, round: u64) {
        self.tell(format!("-- round {round}"));
        if self.chance(2) {
            self.event();
        }
        match self.seed.below(20) {
            0..=4 => {
                let name = self.pick(&FILES);
                self.steps(&[Step::Put(name)]);
            }
            5 => self.remove(),
            6..=8 => self.rename(),
            9 => self.swap(),
            10 => self.rotate(),
            11..=13 => self.protect(),
            14 => self.scrub(),
            15 => self.repair(),
            16 => self.rebuild(),
            17 => self.heal(),
            18 => self.exchange_targets(),
            _ => self.settle(),
        }
        self.check();
        self.remove_doomed();
    }

    // ---- events

    fn event(&mut self) {
        let number = 1 + self.seed.below(self.tank.shape.targets as u64) as usize;
        let answers = !self.tank.gone.contains(&number);
        match self.seed.below(10) {
            0..=4 if answers && self.tank.may_fail(number) => {
                let leave_directory = self.chance(3);
                self.tell(format!("d{number} goes, an empty directory stays: {leave_directory}"));
                self.tank.lose(number, leave_directory);
                self.counts.lost += 1;
            }
            5 | 6 => {
                if let Some(number) = self.tank.gone.first().copied() {
                    self.tell(format!("d{number} comes back"));
                    self.tank.bring_back(number);
                }
            }
            7 if answers => {
                self.tell(format!("d{number} is copied"));
                self.tank.keep(number);
            }
            8 => {
                let kept =
                    self.tank.answering().filter(|it| self.tank.has_copy(*it) && self.tank.may_fail(*it));
                let kept: Vec<usize> = kept.collect();
                if !kept.is_empty() {
                    let number = self.pick(&kept);
                    self.tell(format!("d{number} is put back to its copy"));
                    self.tank.put_back(number);
                    self.counts.spoilt += 1;
                    self.doom();
                }
            }
            9 if answers && self.tank.may_fail(number) => self.corrupt(number),
            _ => {}
        }
    }

    /// Files that are not protected and lost bytes with a target.
    fn doom(&mut self) {
        let (placed, _) = self.tank.listing(&self.told("doom"));
        for it in &placed {
            let is_there = |(column, target): (usize, usize)| {
                self.tank.gone.contains(&target) || self.tank.object(it, column).is_some()
            };
            let file = self.model.files.get_mut(&it.name).unwrap();
            file.doomed |= !file.protected && !it.columns().all(is_there);
        }
    }

    /// What cannot be brought back is removed by its owner.
    fn remove_doomed(&mut self) {
        let doomed: Vec<String> =
            self.model.files.iter().filter(|(_, file)| file.doomed).map(|(name, _)| name.clone()).collect();
        for name in doomed {
            self.tell(format!("{name} is lost and removed"));
            self.expect(0, &["pool", "rm", "tank", &name]);
            self.model.files.remove(&name);
            self.check_names();
        }
    }

    /// Bytes of an object or of a redundancy file of a protected file on a target change silently.
    fn corrupt(&mut self, number: usize) {
        let (placed, _) = self.tank.listing(&self.told("corrupt"));
        let protected = |it: &&Placed| self.model.files[&it.name].protected;
        let mut found = Vec::new();
        for it in placed.iter().filter(protected) {
            let columns = it.columns().filter(|(_, target)| *target == number);
            found.extend(columns.filter_map(|(column, _)| self.tank.object(it, column)));
            found.push(self.tank.redundancy_file(it, number));
        }
        found.retain(|path| path.metadata().is_ok_and(|it| it.len() > 0));
        let Some(path) = found.get(self.seed.below(found.len().max(1) as u64) as usize) else { return };
        let length = path.metadata().unwrap().len();
        let (offset, count) = (self.seed.below(length), 1 + self.seed.below(300));
        self.tell(format!("{} is corrupt from {offset}", path.display()));
        rot(path, offset, count.min(length - offset) as usize);
        self.tank.spoilt.insert(number);
        self.tank.exposed.insert(number);
        self.counts.spoilt += 1;
    }

    // ---- commands

    /// Runs a command that must end with this exit code.
    fn expect(&mut self, code: i32, args: &[&str]) {
        self.counts.commands += 1;
        let (found, said) = self.tank.run(args);
        assert_eq!(found, code, "{}: {said}", self.told(&args.join(" ")));
    }

    /// Runs a command, killed at times: its exit code and what it said with `--json`, if it came to its end.
    fn run(&mut self, args: &[&str]) -> Option<(i32, Value)> {
        self.counts.commands += 1;
        if self.chance(3) {
            let args = &[args, &["--json"]].concat()[..];
            let (code, said) = self.tank.run_killed(&mut self.seed, args);
            self.tell(format!("{} {said}", args.join(" ")));
            self.counts.killed += u64::from(code.is_none());
            let object = said.lines().find(|line| line.starts_with('{') || line.contains(": {"));
            let object = object.and_then(|line| serde_json::from_str(&line[line.find('{')?..]).ok());
            return code.map(|code| (code, object.unwrap_or_default()));
        }
        let (code, said) = self.tank.json(&self.told(""), args);
        self.tell(format!("{}: {code}", args.join(" ")));
        Some((code, said))
    }

    /// Changes names or content, one command after the other; a killed one is made or not made, and the others are
    /// left out.
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            let mut after = self.model.clone();
            let done = match step {
                Step::Put(name) => {
                    self.contents += 1;
                    let size = match self.seed.below(6) {
                        0 => 0,
                        1 => 1 + self.seed.below(500),
                        _ => self.seed.below(50_000),
                    };
                    let content = (size as usize, self.number << 32 | self.contents);
                    fs::write(self.tank.fixture.path("source"), bytes(content.0, content.1)).unwrap();
                    after.put(name, content);
                    self.run(&["pool", "put", "tank", "source", name])
                }
                Step::Remove(name) => {
                    after.files.remove(*name);
                    self.run(&["pool", "rm", "tank", name])
                }
                Step::Move(from, to) => {
                    after.rename(from, to);
                    self.run(&["pool", "mv", "tank", from, to])
                }
            };
            match done {
                Some((code, said)) => {
                    assert_eq!(code, 0, "{}: {said}", self.told("the last command"));
                    self.model = after;
                    self.check_names();
                }
                None => {
                    let before = std::mem::take(&mut self.found);
                    let (placed, directories) = self.tank.listing(&self.told("after a kill"));
                    self.remember(&placed, &directories);
                    if before != self.found {
                        self.model = after;
                    }
                    self.check_names();
                    return;
                }
            }
        }
    }

    fn files(&self) -> Vec<&'static str> {
        FILES.into_iter().filter(|name| self.model.files.contains_key(*name)).collect()
    }

    fn remove(&mut self) {
        let there = self.files();
        if !there.is_empty() {
            let name = self.pick(&there);
            self.steps(&[Step::Remove(name)]);
        }
    }

    /// A file to a new name or over another one, or a directory.
    fn rename(&mut self) {
        let directories = [("dir", "moved"), ("moved", "dir"), ("other", "last"), ("last", "other")];
        let fits = |it: &(&str, &str)| {
            self.model.directories.contains(it.0) && !self.model.directories.contains(it.1)
        };
        let possible: Vec<_> = directories.into_iter().filter(fits).collect();
        if !possible.is_empty() && self.chance(3) {
            let (from, to) = self.pick(&possible);
            return self.steps(&[Step::Move(from, to)]);
        }
        let there = self.files();
        let has_place = |name: &&str| {
            name.rsplit_once('/').is_none_or(|(directory, _)| self.model.directories.contains(directory))
        };
        let places: Vec<&'static str> = FILES.into_iter().filter(has_place).collect();
        if there.is_empty() {
            return;
        }
        let (from, to) = (self.pick(&there), self.pick(&places));
        if from != to {
            self.steps(&[Step::Move(from, to)]);
        }
    }

    fn swap(&mut self) {
        let there = self.files();
        if there.len() < 2 {
            return;
        }
        let (one, other) = (self.pick(&there), self.pick(&there));
        if one != other {
            self.steps(&[Step::Move(one, "between"), Step::Move(other, one), Step::Move("between", other)]);
            // A kill leaves a file at the name between.
            if self.model.files.contains_key("between") {
                self.expect(0, &["pool", "rm", "tank", "between"]);
                self.model.files.remove("between");
                self.check_names();
            }
        }
    }

    fn rotate(&mut self) {
        let mut steps = Vec::new();
        for (from, to) in [("log.1", "log.2"), ("log", "log.1")] {
            if self.model.files.contains_key(from) {
                steps.push(Step::Move(from, to));
            }
        }
        steps.push(Step::Put("log"));
        self.steps(&steps);
    }

    fn protect(&mut self) {
        let Some((code, said)) = self.run(&["protect", "tank"]) else {
            self.half_done = true;
            return;
        };
        self.protected(code, &said);
    }

    /// Notes what `protect` says: exit code 0 is a promise for every file.
    fn protected(&mut self, code: i32, said: &Value) {
        let told = self.told("protect");
        let failed = said["failures"].as_u64().unwrap();
        let fine = said["held"].is_null()
            && said["pending"] == 0
            && said["affected"].as_object().unwrap().is_empty()
            && said["mirrors_not_healed"].as_array().unwrap().is_empty();
        let wanted = match (failed, fine) {
            (0, true) => 0,
            (0, false) => 1,
            _ => 2,
        };
        assert_eq!(code, wanted, "{told}: {said}");
        let (placed, _) = self.tank.listing(&told);
        let gone = |it: &Placed| self.tank.columns_gone(it, &Targets::new());
        let cannot = placed.iter().filter(|it| !self.model.files[&it.name].protected && gone(it) > 0).count();
        assert!(failed as usize <= cannot, "{told}: {failed} failed, {cannot} cannot be read: {said}");
        assert!(!self.is_calm() || code == 0, "{told}: nothing is wrong: {said}");
        let Tank { shape, .. } = self.tank;
        let most =
            shape.redundancy.min(self.tank.counting().len() - shape.stripe.min(self.tank.counting().len()));
        for it in &placed {
            let names: Vec<&str> =
                said["failed"].as_array().unwrap().iter().filter_map(|it| it["path"].as_str()).collect();
            let redundancy = self.tank.redundancy(it);
            let file = self.model.files.get_mut(&it.name).unwrap();
            if file.doomed || names.contains(&it.name.as_str()) {
                continue;
            }
            if !file.protected {
                assert!(
                    redundancy.len() >= most,
                    "{told}: {} has redundancy on {redundancy:?}: {said}",
                    it.name
                );
            }
            // What is gone counts as gone; what rotted is found by the next scrub.
            let whole =
                redundancy.len() >= shape.redundancy && self.tank.columns_gone(it, &Targets::new()) == 0;
            let promised = code > 0 || whole || !self.tank.spoilt.is_empty();
            assert!(promised, "{told}: {} has redundancy on {redundancy:?} only: {said}", it.name);
            file.protected = true;
        }
        if code == 0 {
            self.protected_model = self.model.clone();
        }
        if code < 2 {
            self.half_done = false;
        }
    }

    fn scrub(&mut self) {
        self.examined |= !self.is_calm();
        if let Some((code, said)) = self.run(&["scrub", "tank", "--restart"]) {
            self.check_scrub(code, &said);
        }
    }

    fn repair(&mut self) {
        self.examined |= !self.is_calm();
        match self.run(&["repair", "tank", "--yes"]) {
            Some((code, said)) => {
                assert!(!self.is_calm() || code == 0, "{}: nothing is wrong: {said}", self.told("repair"));
            }
            None => self.half_done = true,
        }
    }

    fn rebuild(&mut self) {
        let Shape { stripe, redundancy, .. } = self.tank.shape;
        let counting = self.tank.counting().len();
        if counting <= 2 * redundancy || counting < stripe {
            return;
        }
        self.examined |= !self.is_calm();
        let told = self.told("rebuild");
        let (placed, _) = self.tank.listing(&told);
        let exact = self.tank.spoilt.is_empty() && self.tank.given_up.is_empty() && !self.half_done;
        let lost = placed
            .iter()
            .any(|it| self.tank.columns_gone(it, &Targets::new()) > self.tank.redundancy(it).len());
        // Those that came back and missed changes are given up until they are verified, too.
        self.may_be_given_up.extend(&self.tank.exposed);
        let Some((code, said)) = self.run(&["pool", "rebuild", "tank"]) else {
            self.half_done = true;
            return;
        };
        let empty = |key: &str| said[key].as_array().unwrap().is_empty();
        let whole = ["unplaced", "unmoved", "failed", "unverified"].iter().all(|key| empty(key));
        let lists_lost = !said["plan"]["lost"].as_array().unwrap().is_empty()
            || said["failed"].as_array().unwrap().iter().any(|it| it["lost"] == true);
        assert_eq!(code == 3, lists_lost, "{told}: {said}");
        assert!(code != 0 || whole, "{told}: {said}");
        assert!(!exact || lost == (code == 3), "{told}: {said}");
        assert!(!self.is_calm() || code == 0, "{told}: nothing is wrong: {said}");
        if code == 0 {
            for it in self.tank.listing(&told).0 {
                let gone = self.tank.columns_gone(&it, &Targets::new());
                let whole = gone == 0 && self.tank.redundancy(&it).len() >= redundancy;
                assert!(whole || !exact, "{told}: {it:?}: {said}");
                // It protects files that have no redundancy, too.
                self.model.files.get_mut(&it.name).unwrap().protected |= whole;
            }
            let gone = self.tank.gone.clone();
            self.tank.exposed.retain(|number| !gone.contains(number));
        }
    }

    fn heal(&mut self) {
        if let Some((code, said)) = self.run(&["pool", "status", "tank", "--heal"]) {
            assert!(code != 2, "{}: {said}", self.told("heal"));
            assert!(!self.is_calm() || code == 0, "{}: nothing is wrong: {said}", self.told("heal"));
        }
        if self.chance(2) {
            self.run(&["pool", "status", "tank", "--sweep"]);
        }
    }

    /// Two disks are mounted at each other's place for a while: a command refuses and names both, or finds each where
    /// it is and is right.
    fn exchange_targets(&mut self) {
        let there: Vec<usize> = self.tank.answering().collect();
        let (one, other) = (self.pick(&there), self.pick(&there));
        if one == other {
            return;
        }
        self.tell(format!("the directories of d{one} and d{other} are exchanged for a while"));
        self.tank.exchange(one, other);
        self.check_names();
        let directory = self.tank.target(one);
        for args in [
            &["pool", "ls", directory.to_str().unwrap()][..],
            &["status", "tank"],
            &["protect", "tank"],
            &["scrub", "tank"],
            &["pool", "rebuild", "tank"],
        ] {
            let (code, said) = self.tank.run(args);
            let names_both =
                said.contains(&format!("d{one} of pool")) && said.contains(&format!("d{other} of pool"));
            assert!(code == 2 && names_both, "{}: {code}: {said}", self.told(&args.join(" ")));
        }
        self.tank.exchange(one, other);
    }

    /// Everything is put in order, as a user does who has all disks again: afterwards every command says that all is
    /// well, and it is.
    pub(crate) fn settle(&mut self) {
        while let Some(number) = self.tank.gone.first().copied() {
            self.tank.bring_back(number);
        }
        self.tell("all targets come back");
        self.doom();
        self.remove_doomed();
        for args in [
            &["pool", "rebuild", "tank"][..],
            &["protect", "tank"],
            &["scrub", "tank", "--restart"],
            &["repair", "tank", "--yes"],
            &["pool", "rebuild", "tank"],
        ] {
            let (code, said) = self.tank.run(args);
            self.tell(format!("{}: {code}", args.join(" ")));
            assert!(code < 2, "{}: {said}", self.told("settle"));
        }
        let (code, said) = self.tank.json(&self.told("settle"), &["protect", "tank"]);
        self.tank.exposed.clear();
        self.tank.spoilt.clear();
        self.tank.given_up.clear();
        self.may_be_given_up.clear();
        self.protected(code, &said);
        for args in [
            &["scrub", "tank", "--restart"][..],
            &["status", "tank"],
            &["pool", "rebuild", "tank"],
            &["pool", "status", "tank", "--sweep"],
            &["pool", "status", "tank", "--files"],
        ] {
            self.expect(0, args);
        }
        let told = self.told("settled");
        let (_, said) = self.tank.json(&told, &["pool", "status", "tank", "--sweep", "--dry-run"]);
        assert!(said["swept"]["orphans"].as_array().unwrap().is_empty(), "{told}: {said}");
        for it in self.tank.listing(&told).0 {
            let mut targets = self.tank.redundancy(&it);
            assert_eq!(targets.len(), self.tank.shape.redundancy, "{told}: {it:?} on {targets:?}");
            let columns = it.columns().filter(|(column, _)| self.tank.object(&it, *column).is_some());
            let columns: Vec<_> = columns.collect();
            assert_eq!(columns.len(), it.columns().count(), "{told}: {it:?} misses objects");
            assert!(
                columns.iter().all(|(_, target)| targets.insert(*target)),
                "{told}: {it:?} twice on a target"
            );
        }
        (self.half_done, self.examined) = (false, false);
        self.counts.settled += 1;
        self.tell("settled");
    }
}
