//! Invariants that are checked after every round of a history.

use crate::fixture::bytes;
use crate::history::History;
use crate::tank::{Placed, Tank, Targets};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Names in the list at `key`, of objects with a `path` or of names.
fn named(told: &str, said: &Value, key: &str) -> BTreeSet<String> {
    let items = said[key].as_array().unwrap_or_else(|| panic!("{told}: there is no list {key}: {said}"));
    let name = |item: &Value| item["path"].as_str().or(item.as_str()).unwrap().to_owned();
    items.iter().map(name).collect()
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_some_and(Vec::is_empty)
}

impl History {
    /// Looks at the pool as users do, and compares what they are told with the model and with what is on the targets.
    pub(crate) fn check(&mut self) {
        let placed = self.check_names();
        self.check_content(&placed);
        self.check_pool_status(&placed);
        self.check_status(&placed);
        self.check_whatif(&placed);
    }

    /// Names are exactly those of the model.
    pub(crate) fn check_names(&mut self) -> Vec<Placed> {
        let told = self.told("ls");
        let (placed, mut names) = self.tank.listing(&told);
        self.remember(&placed, &names);
        names.extend(placed.iter().map(|it| it.name.clone()));
        assert_eq!(names, self.model.names(), "{told}");
        placed
    }

    /// Every byte that was acknowledged is there, or was lost with too many targets. No other byte is given out.
    fn check_content(&self, placed: &[Placed]) {
        let told = self.told("get");
        let out = self.tank.fixture.path("got");
        let _ = fs::remove_dir_all(&out);
        let (code, report) = self.tank.json(&told, &["pool", "get", "tank", "/", "got"]);
        let mut unread = 0;
        for it in placed {
            let file = &self.model.files[&it.name];
            let Ok(content) = fs::read(out.join(&it.name)) else {
                unread += 1;
                assert!(!self.must_be_readable(it), "{told}: {} cannot be read: {report}", it.name);
                continue;
            };
            let (size, seed) = file.content;
            assert!(content == bytes(size, seed), "{told}: {} has other content: {report}", it.name);
            assert!(!file.doomed, "{told}: {} is there without its bytes", it.name);
        }
        assert_eq!(code, if unread == 0 { 0 } else { 2 }, "{told}: {unread} unread: {report}");
        assert_eq!(report["failed"].as_array().unwrap().len(), unread, "{told}: {report}");
        assert_eq!(report["files"].as_u64(), Some((placed.len() - unread) as u64), "{told}: {report}");
    }

    /// A protected file survives the loss of m targets. One that is not protected needs all of its own.
    fn must_be_readable(&self, placed: &Placed) -> bool {
        let file = &self.model.files[&placed.name];
        file.protected || self.tank.columns_gone(placed, &Targets::new()) == 0
    }

    /// Files that nothing can bring back once the targets in `without` are gone as well.
    fn lost(&self, placed: &[Placed], without: &Targets) -> BTreeSet<String> {
        let is_lost = |it: &&Placed| {
            let redundancy = self.tank.redundancy(it).difference(without).count();
            self.tank.columns_gone(it, without) > redundancy
        };
        placed.iter().filter(is_lost).map(|it| it.name.clone()).collect()
    }

    /// The files that are called lost are those that are.
    fn assert_lost(
        &self,
        told: &str,
        placed: &[Placed],
        without: &Targets,
        found: &BTreeSet<String>,
        said: &Value,
    ) {
        let wanted = self.lost(placed, without);
        let missing: Vec<_> = wanted.difference(found).collect();
        assert!(missing.is_empty(), "{told}: {missing:?} are lost: {said}");
        for name in found.difference(&wanted) {
            let it = placed.iter().find(|it| it.name == *name).unwrap();
            // A column that was made anew while its target was gone is there twice when that comes back, and counts
            // once.
            let twice = self.tank.redundancy(it).len() > self.tank.shape.redundancy;
            assert!(twice, "{told}: {name} is not lost: {said}");
        }
    }

    /// Whether what is found on targets is what the program knows to be there, so that its answers are known exactly.
    fn is_exact(&self) -> bool {
        self.tank.spoilt.is_empty() && self.tank.given_up.is_empty() && !self.half_done
    }

    /// Whether all targets are there and as the program left them, so that nothing can be wrong.
    pub(crate) fn is_calm(&self) -> bool {
        let Tank { gone, given_up, exposed, .. } = &self.tank;
        gone.is_empty() && given_up.is_empty() && exposed.is_empty() && !self.half_done
    }

    /// Targets are what they are, and the exit code says how bad that is.
    fn check_pool_status(&mut self, placed: &[Placed]) {
        let told = self.told("pool status");
        let (code, said) = self.tank.json(&told, &["pool", "status", "tank"]);
        let status = &said["status"];
        self.tank.given_up.clear();
        self.mirrors.clear();
        for target in status["targets"].as_array().unwrap() {
            let number: usize = target["name"].as_str().unwrap()[1..].parse().unwrap();
            let gone = self.tank.gone.contains(&number);
            if target["mirror"] == "current" && !gone {
                self.mirrors.insert(number);
            }
            match target["state"].as_str().unwrap() {
                "offline" => assert!(gone, "{told}: d{number} answers: {said}"),
                "online" => assert!(!gone, "{told}: d{number} is gone: {said}"),
                "returned" => {
                    assert!(!gone && self.may_be_given_up.contains(&number), "{told}: d{number}: {said}");
                    self.tank.given_up.insert(number);
                }
                other => panic!("{told}: d{number} is {other}"),
            }
        }
        let lost = match said["files"].is_null() {
            true => BTreeSet::new(),
            false => named(&told, &said["files"], "lost"),
        };
        let wanted = match (lost.is_empty(), is_empty(&status["warnings"])) {
            (false, _) => 3,
            (true, false) => 1,
            (true, true) => 0,
        };
        assert_eq!(code, wanted, "{told}: {said}");
        assert!(code > 0 || (self.tank.gone.is_empty() && self.tank.given_up.is_empty()), "{told}: {said}");
        if self.tank.exposed.is_empty() && self.tank.gone.is_empty() && self.tank.given_up.is_empty() {
            assert_eq!(code, 0, "{told}: nothing is wrong: {said}");
        }
        if self.is_exact() && !self.tank.gone.is_empty() {
            self.assert_lost(&told, placed, &Targets::new(), &lost, &said);
        }
    }

    /// Lost, degraded and pending files are those that are, and the exit code says how bad that is.
    fn check_status(&mut self, placed: &[Placed]) {
        let told = self.told("status");
        let (code, said) = self.tank.json(&told, &["status", "tank"]);
        let [lost, degraded, damaged] = ["lost", "degraded", "damaged"].map(|key| named(&told, &said, key));
        let pending = said["pending"]["files"].as_u64().unwrap();
        let mirrors = &said["mirrors"];
        let whole =
            mirrors["current"].as_u64() >= mirrors["required"].as_u64() && is_empty(&mirrors["outdated"]);
        let overdue = said["scrub_overdue"]["files"].as_u64().unwrap();
        let fine = degraded.is_empty() && damaged.is_empty() && pending + overdue == 0 && whole;
        let wanted = match (lost.is_empty(), fine) {
            (false, _) => 3,
            (true, false) => 1,
            (true, true) => 0,
        };
        assert_eq!(code, wanted, "{told}: {said}");
        for name in lost.iter().chain(&degraded).chain(&damaged) {
            assert!(self.model.files.contains_key(name), "{told}: there is no {name}: {said}");
        }
        let unprotected = self.model.files.values().filter(|file| !file.protected).count();
        assert!(code > 0 || unprotected == 0, "{told}: {unprotected} files are not protected: {said}");
        for name in &lost {
            let it = placed.iter().find(|it| it.name == *name).unwrap();
            assert!(!self.must_be_readable(it), "{told}: {name} is not lost: {said}");
        }
        let calm = self.is_calm() && self.model == self.protected_model;
        assert!(!calm || code == 0, "{told}: nothing is wrong: {said}");
        if self.is_exact() {
            self.assert_lost(&told, placed, &Targets::new(), &lost, &said);
            for it in placed.iter().filter(|it| !lost.contains(&it.name)) {
                let redundancy = self.tank.redundancy(it).len();
                // A catalogue that went with its target is made from headers: without any, a file counts as pending.
                let protected = self.model.files[&it.name].protected;
                if redundancy == 0 && !self.tank.gone.is_empty() || redundancy > 0 && !protected {
                    continue;
                }
                let left = redundancy - self.tank.columns_gone(it, &Targets::new());
                let wanted = left < self.tank.shape.redundancy && protected;
                let found = degraded.contains(&it.name) || damaged.contains(&it.name);
                let right = found == wanted || (found && self.examined);
                assert!(right, "{told}: {} has {left} to spare: {said}", it.name);
            }
        }
        if self.seed.below(8) == 0 {
            let (text, said) = self.tank.run(&["status", "tank"]);
            assert_eq!(text, code, "{told}, without --json: {said}");
        }
    }

    /// What a loss would cost is told exactly.
    fn check_whatif(&mut self, placed: &[Placed]) {
        let count = 1 + self.seed.below(self.tank.shape.redundancy as u64 + 1) as usize;
        let mut lose = Targets::new();
        while lose.len() < count {
            lose.insert(1 + self.seed.below(self.tank.shape.targets as u64) as usize);
        }
        let names: Vec<String> = lose.iter().map(|number| format!("d{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let told = self.told(&format!("whatif {}", names.join(" ")));
        let (code, said) = self.tank.json(&told, &[&["whatif", "tank", "--lose"], &names[..]].concat());
        let lost = named(&told, &said, "lost_files");
        let namespace_lost = self.mirrors.is_subset(&lose);
        assert_eq!(said["namespace_lost"].as_bool(), Some(namespace_lost), "{told}: {said}");
        if namespace_lost {
            assert!(code == 3 && lost.len() == placed.len(), "{told}: no file could be found: {said}");
            return;
        }
        assert_eq!(code, if lost.is_empty() { 0 } else { 3 }, "{told}: {said}");
        assert_eq!(said["result"]["lost"]["files"].as_u64(), Some(lost.len() as u64), "{told}: {said}");
        if self.is_exact() {
            self.assert_lost(&told, placed, &lose, &lost, &said);
        }
    }

    /// The report of a scrub: nothing is called good that is not there, and nothing lost that can be read.
    pub(crate) fn check_scrub(&self, code: i32, said: &Value) {
        let told = self.told("scrub");
        let (placed, _) = self.tank.listing(&told);
        let trouble = named(&told, said, "damage");
        let lost = said["damage"].as_array().unwrap().iter().any(|it| it["state"] == "lost");
        let wanted = match () {
            () if lost => 3,
            () if !is_empty(&said["failed"]) => 2,
            () if !trouble.is_empty() => 1,
            () => 0,
        };
        assert_eq!(code, wanted, "{told}: {said}");
        assert!(!self.is_calm() || code == 0, "{told}: nothing is wrong: {said}");
        // A file that was moved since is looked at after the next protect, which takes note of its name.
        let is_known = |it: &&Placed| {
            let file = &self.model.files[&it.name];
            let known = self.protected_model.files.get(&it.name);
            file.protected && known.is_some_and(|known| known.content == file.content)
        };
        for it in placed.iter().filter(is_known) {
            let misses = self.tank.columns_gone(it, &Targets::new()) > 0;
            assert!(!misses || code > 0, "{told}: {} misses columns: {said}", it.name);
            let lost = said["damage"].as_array().unwrap().iter().filter(|it| it["state"] == "lost");
            for trouble in lost {
                assert_ne!(trouble["path"], it.name.as_str(), "{told}: it is protected: {said}");
            }
        }
    }
}
