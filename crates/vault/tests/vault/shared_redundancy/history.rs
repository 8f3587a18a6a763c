//! Random histories beside a model of files and of what they share.

use super::super::fixture::{Fixture, TestRng, flip, rebuild_catalogue};
use super::{POLICY, amount, bodies, body_of, protect, shared};
use gabion_vault::catalogue::State;
use gabion_vault::format::FileId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Model of a history: contents of files by name.
struct History {
    fixture: Fixture,
    model: BTreeMap<String, Vec<u8>>,
    rng: TestRng,
}

impl History {
    fn name(&mut self) -> String {
        let names = ["a", "b", "c", "d/a", "d/b", "e/a"];
        names[self.rng.below(names.len() as u64) as usize].to_owned()
    }

    fn write(&mut self, name: String, content: Vec<u8>) {
        self.fixture.write(&name, &content);
        self.model.insert(name, content);
    }

    fn step(&mut self) {
        let name = self.name();
        let known = self.model.get(&name).cloned();
        match (self.rng.below(10), known) {
            (0..4, None) | (0, Some(_)) => {
                let content = TestRng(100 + self.rng.below(3)).bytes(300_000);
                self.write(name, content);
            }
            (1, Some(mut content)) => {
                let at = self.rng.below(content.len() as u64) as usize;
                content[at] ^= 1;
                self.write(name, content);
            }
            (2, Some(_)) if self.model.len() > 2 => {
                fs::remove_file(self.fixture.path(&name)).unwrap();
                self.model.remove(&name);
            }
            (3 | 4, Some(content)) if self.model.len() > 2 => {
                let to = self.name();
                if to != name {
                    fs::create_dir_all(self.fixture.path(&to).parent().unwrap()).unwrap();
                    fs::rename(self.fixture.path(&name), self.fixture.path(&to)).unwrap();
                    self.model.remove(&name);
                    self.model.insert(to, content);
                }
            }
            (5, Some(_)) => {
                let mode = 0o600 + 0o40 * self.rng.below(2) as u32;
                fs::set_permissions(self.fixture.path(&name), fs::Permissions::from_mode(mode)).unwrap();
            }
            (6, Some(content)) => {
                // Only what is protected as it is can be repaired.
                protect(&self.fixture);
                let at = self.rng.below(content.len() as u64);
                flip(&self.fixture.path(&name), at);
                assert_eq!(self.fixture.repair(&name).state, State::Protected);
            }
            (7, _) => {
                if let Some(body) = bodies(&self.fixture).first() {
                    flip(body, self.rng.below(body.metadata().unwrap().len()));
                    // A repair of a file that changed reverts the change.
                    for found in self.fixture.scrub().damage.into_iter().filter(|found| !found.changed) {
                        self.fixture.repair(std::str::from_utf8(&found.path).unwrap());
                    }
                }
            }
            (8, _) => drop(rebuild_catalogue(&self.fixture.vault)),
            _ => {
                protect(&self.fixture);
                self.check();
            }
        }
    }

    /// After a protect: files are what the model says, bodies are what references say, and equal files share.
    fn check(&self) {
        self.fixture.assert_clean();
        let mut by_body: BTreeMap<FileId, BTreeSet<&Vec<u8>>> = BTreeMap::new();
        let mut references = 0;
        for (name, content) in &self.model {
            assert!(self.fixture.read(name) == *content, "{name}");
            let body = body_of(&self.fixture, name);
            references += u64::from(body.is_some());
            if let Some(body) = body {
                by_body.entry(body).or_default().insert(content);
            }
            let is_alone = self.model.values().filter(|other| *other == content).count() == 1;
            assert!(is_alone || body.is_some(), "{name} does not share");
        }
        assert!(by_body.values().all(|contents| contents.len() == 1), "files that differ share");
        let amount = amount(&self.fixture);
        assert_eq!((amount.files, amount.bodies), (references, by_body.len() as u64));
        assert!(bodies(&self.fixture).len() >= by_body.len());
    }
}

#[test]
fn histories_of_files_that_share() {
    for seed in 1..=5 {
        let (fixture, model) = (Fixture::with_policy(POLICY), BTreeMap::new());
        let mut history = History { fixture, model, rng: TestRng(seed) };
        println!("seed {seed}");
        (0..36).for_each(|_| history.step());
        // What is not in use is found by the next run and removed by the one after it.
        (0..3).for_each(|_| drop(protect(&history.fixture)));
        history.check();
        let bodies: BTreeSet<_> =
            history.model.keys().filter_map(|name| body_of(&history.fixture, name)).collect();
        let references =
            history.model.keys().filter(|name| body_of(&history.fixture, name).is_some()).count();
        assert_eq!(shared(&history.fixture).len(), bodies.len() + references);
    }
}
