//! Everything that can happen to a tree, at random, beside a model of what was protected.
//!
//! The model is a map of names to the bytes that a file had when it was protected last. Whatever happens in between, a
//! repair gives these bytes back or says which it cannot.

use super::playground::{Playground, QUIET, Seed, rot};
use gabion_vault::catalogue::State;
use gabion_vault::repair;
use gabion_vault::scrub;
use gabion_vault::status::status;
use gabion_vault::world::{Clock, SECOND};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file as it was protected: its bytes, when they were written, and its inode.
type Protected = (Vec<u8>, std::time::SystemTime, u64);

struct World {
    ground: Playground,
    chance: Seed,
    protected: BTreeMap<String, Protected>,
    /// Redundancy was damaged too.
    hurt: bool,
    /// What happened, for who has to find out why.
    story: Vec<String>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut chance = Seed(seed);
        let code = ["1+1", "2+1", "4+2", "8+2"][chance.below(4) as usize];
        let block = 64 << chance.below(7);
        let ground = Playground::with_policy(&format!("[default]\ncode = \"{code}\"\nblock = \"{block}\"\n"));
        let story = vec![format!("seed {seed}: {code}, blocks of {block} bytes")];
        World { ground, chance, protected: BTreeMap::new(), hurt: false, story }
    }

    /// A name that may or may not be there; some are directories at one time and files at another.
    fn name(&mut self) -> String {
        let names = ["a", "a/b", "a/b/c", "a0", "b", "d/e", "d/f", "d/g/h", "z"];
        names[self.chance.below(names.len() as u64) as usize].to_owned()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = 1 << (1 + self.chance.below(15));
        let size = self.chance.below(most);
        match self.chance.below(8) {
            // Holes, and what compresses well, are content as any other.
            0 => vec![0; size as usize],
            _ => self.chance.bytes(size as usize),
        }
    }

    /// All files of the tree.
    fn files(&self) -> BTreeMap<String, Protected> {
        let (root, mut found) = (self.ground.root(), BTreeMap::new());
        let mut ahead = vec![root.clone()];
        while let Some(directory) = ahead.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    if path != root.join(".gabion") {
                        ahead.push(path);
                    }
                    continue;
                }
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                let stat = std::fs::metadata(&path).unwrap();
                let content = std::fs::read(&path).unwrap();
                found.insert(name, (content, stat.modified().unwrap(), stat.ino()));
            }
        }
        found
    }

    fn existing(&mut self) -> Option<String> {
        let files = self.files();
        let at = self.chance.below(files.len().max(1) as u64) as usize;
        files.into_keys().nth(at)
    }

    /// Something happens to the tree. What cannot be (a file in the place of a directory) does not happen.
    fn happen(&mut self) {
        let (name, bytes) = (self.name(), self.bytes());
        let path = self.ground.path(&name);
        let existing = self.existing().unwrap_or(name.clone());
        let old = self.ground.path(&existing);
        let pick = self.chance.below(14);
        self.story.push(format!("  {pick}: {name} ({} bytes), {existing}", bytes.len()));
        // Each of these may fail, as it may for anybody; then nothing has happened.
        let _ = match pick {
            0..=2 => make_room(&path).and_then(|()| std::fs::write(&path, &bytes)),
            3 => append(&old, &bytes),
            4 => cut(&old, self.chance.below(1 << 14)),
            5 => overwrite(&old, &bytes[..bytes.len() / 4], &mut self.chance),
            6 | 7 => make_room(&path).and_then(|()| std::fs::rename(&old, &path)),
            8 => std::fs::remove_file(&old),
            9 => make_room(&path).and_then(|()| std::fs::hard_link(&old, &path)),
            10 => std::fs::create_dir_all(&path),
            11 => std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o600)),
            12 => touch(&old),
            _ => std::fs::remove_dir_all(&path).or_else(|_| {
                // A directory takes another name, with everything in it.
                std::fs::rename(self.ground.path("d"), self.ground.path("a0"))
            }),
        };
    }

    /// Bytes change though nobody wrote them: at most one block of each stripe, or any.
    fn rot(&mut self) {
        let Some(name) = self.existing() else { return };
        let size = std::fs::metadata(self.ground.path(&name)).unwrap().len();
        if size == 0 {
            return;
        }
        for _ in 0..1 + self.chance.below(3) {
            let (at, byte) = (self.chance.below(size), self.chance.below(255) as u8);
            self.story.push(format!("  rot: byte {at} of {name}"));
            rot(&self.ground.path(&name), at, &[byte]);
        }
    }

    /// Bytes of redundancy change.
    fn hurt(&mut self) {
        let Some(name) = self.existing() else { return };
        let path = self.ground.redundancy(&name);
        let Ok(size) = std::fs::metadata(&path).map(|stat| stat.len()) else { return };
        let (at, byte) = (self.chance.below(size.max(1)), self.chance.below(255) as u8);
        self.story.push(format!("  rot: byte {at} of the redundancy of {name}"));
        if path.is_file() {
            rot(&path, at, &[byte]);
            self.hurt = true;
        }
    }

    /// Protects; the model is what is there now. A file that was not written to, as far as its size and time tell, is what it
    /// was: if it differs, it is left to repair.
    fn protect(&mut self) {
        self.story.push("protect".to_owned());
        let broken = |name: &str| {
            let entry = self.ground.vault.catalogue.find(name.as_bytes()).unwrap();
            entry.is_some_and(|entry| matches!(entry.state, State::Damaged | State::Lost))
        };
        self.settle_moves();
        let mut now = self.files();
        let found_now = now.clone();
        let names: Vec<String> = now.keys().cloned().collect();
        for name in names {
            let found = &now[&name];
            let same = |was: &&Protected| was.1 == found.1 && was.0.len() == found.0.len();
            // A file that took the name of another one is known by its inode, unless it still has the old name.
            let has_left = |old: &str| found_now.get(old).is_none_or(|now| now.2 != found.2);
            let renamed = || {
                let mut others = self.protected.iter().filter(|(old, was)| has_left(old) && was.2 == found.2);
                others.find(|(_, was)| same(was)).map(|(_, was)| was)
            };
            let was = match self.protected.get(&name) {
                Some(was) if was.2 != found.2 && renamed().is_some() => renamed(),
                Some(was) => Some(was).filter(|was| broken(&name) || was.2 == found.2).filter(same),
                // What only got another name is not read: its redundancy goes along.
                None => {
                    let gone = |old: &str| !self.ground.path(old).is_file();
                    let mut others = self.protected.iter().filter(|(old, was)| gone(old) && was.2 == found.2);
                    others.find(|(_, was)| same(was)).map(|(_, was)| was)
                }
            };
            if let Some(was) = was.cloned() {
                now.insert(name, was);
            }
        }
        let mut report = self.ground.protect();
        if let (true, Some(held)) = (now.is_empty(), &report.held) {
            // Nothing is left, as if it were not mounted.
            gabion_vault::guard::approve(&self.ground.vault.repository, &held.digest).unwrap();
            report = self.ground.protect();
        }
        assert!(report.done.failed.is_empty() && report.held.is_none(), "{report:?}\n{}", self.told());
        for (name, found) in found_now {
            if now[&name].0 == found.0 {
                continue;
            }
            // What only got another name was not read. Nobody can tell what it was if its redundancy is gone as well.
            let only_moved = !self.protected.contains_key(&name);
            assert!(broken(&name) || only_moved || self.hurt, "{name}\n{}", self.told());
            if !broken(&name) && !only_moved {
                now.insert(name, found);
            }
        }
        self.protected = now;
    }

    /// Of several names that a file had or has, nobody can say which became which: then it is written to.
    fn settle_moves(&self) {
        let now = self.files();
        let new = |inode: u64| {
            let new =
                now.iter().filter(|(name, found)| found.2 == inode && !self.protected.contains_key(*name));
            new.count()
        };
        let old = |inode: u64| self.protected.values().filter(|was| was.2 == inode).count();
        for (name, found) in &now {
            if new(found.2) > 0 && (new(found.2) > 1 || old(found.2) > 1) {
                touch(&self.ground.path(name)).unwrap();
            }
        }
    }

    /// Scrub finds all that differs from the model, and nothing else.
    fn scrub(&mut self) {
        self.story.push("scrub".to_owned());
        let report = self.ground.scrub();
        assert!(report.failed.is_empty(), "{report:?}\n{}", self.told());
        let now = self.files();
        for (name, (content, ..)) in &self.protected {
            let trouble = report.trouble.iter().find(|trouble| trouble.path == name.as_bytes());
            let differs = now.get(name).is_some_and(|now| now.0 != *content);
            let found = trouble.is_some() || (self.hurt && !now.contains_key(name));
            assert!(found || !differs, "{name}: {trouble:?}\n{}", self.told());
            assert!(differs || !found || self.hurt, "{name}: {trouble:?}\n{}", self.told());
        }
    }

    fn repair(&mut self) {
        self.story.push("repair".to_owned());
        let missing = self.chance.below(2) == 0;
        let options = repair::Options { missing, ..repair::Options::default() };
        let plan = repair::plan(&self.ground.vault, b"", options, QUIET).unwrap();
        assert!(plan.failed.is_empty(), "{plan:?}\n{}", self.told());
        for trouble in plan.files {
            let name = String::from_utf8(trouble.path.clone()).unwrap();
            let before = self.files().remove(&name);
            let done = {
                let _lock = self.ground.vault.lock("test").unwrap();
                repair::repair(&self.ground.vault, &trouble.path, QUIET)
            };
            let (content, ..) = &self.protected[&name];
            let after = self.files().remove(&name);
            let told = || format!("{name}: {done:?}\n{}", self.told());
            match &done {
                // Something else is in its way.
                Err(_) => assert!(before.is_none() && after.is_none(), "{}", told()),
                Ok(done) if done.state == State::Lost => match (before, after) {
                    (None, after) => assert!(after.is_none(), "{}", told()),
                    (Some(before), Some(after)) => assert_left(&before.0, &after.0, content, done, &told),
                    (Some(_), None) => panic!("{}", told()),
                },
                // Longer again, it has zeros where zeros belong: now there is enough to repair the rest.
                Ok(done) if done.state == State::Damaged && !done.lost.is_empty() => {}
                // Both copies of the header were hit: nothing tells what the file was.
                Ok(done) if done.state == State::Degraded && self.hurt => {
                    assert!(before == after, "{}", told());
                }
                Ok(done) => {
                    assert_eq!(done.state, State::Protected, "{}", told());
                    assert!(after.is_some_and(|after| after.0 == *content), "{}", told());
                }
            }
        }
    }

    fn told(&self) -> String {
        self.story.join("\n")
    }
}

/// What is lost is as it was found; all else is as it was protected.
fn assert_left(
    before: &[u8],
    after: &[u8],
    content: &[u8],
    done: &repair::Repaired,
    told: &dyn Fn() -> String,
) {
    for (at, now) in after.iter().enumerate() {
        let lost = done.lost.iter().any(|range| range.contains(&(at as u64)));
        let expected = if lost { before.get(at) } else { content.get(at) };
        // Bytes behind the old end are zeros in a file that is made longer again.
        let filling = lost && expected.is_none() && *now == 0;
        let tail = at >= content.len() && before.get(at) == Some(now);
        assert!(expected == Some(now) || filling || tail, "byte {at}: {}", told());
    }
}

fn make_room(path: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap())
}

fn append(path: &PathBuf, bytes: &[u8]) -> std::io::Result<()> {
    std::io::Write::write_all(&mut std::fs::File::options().append(true).open(path)?, bytes)
}

fn cut(path: &PathBuf, size: u64) -> std::io::Result<()> {
    std::fs::File::options().write(true).open(path)?.set_len(size)
}

fn overwrite(path: &PathBuf, bytes: &[u8], chance: &mut Seed) -> std::io::Result<()> {
    let file = std::fs::File::options().write(true).open(path)?;
    let at = chance.below(file.metadata()?.len().max(1));
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, at)
}

fn touch(path: &PathBuf) -> std::io::Result<()> {
    let time = std::fs::metadata(path)?.modified()? + std::time::Duration::from_secs(1);
    std::fs::File::options().write(true).open(path)?.set_modified(time)
}

#[test]
fn whatever_happens_a_repair_gives_back_what_was_protected() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..8 {
            for _ in 0..1 + world.chance.below(6) {
                world.happen();
            }
            if world.chance.below(2) == 0 {
                world.protect();
                (0..world.chance.below(3)).for_each(|_| world.rot());
                if seed % 3 == 0 {
                    world.hurt();
                }
            }
            match world.chance.below(3) {
                0 => world.scrub(),
                1 => world.repair(),
                _ => {}
            }
        }
        // In the end all is calm. What is damaged beyond repair is written anew by its owner.
        world.repair();
        for (name, (content, ..)) in world.files() {
            if world.protected.get(&name).is_some_and(|protected| protected.0 != content) {
                world.story.push(format!("  written anew: {name}"));
                world.ground.write(&name, &content);
                touch(&world.ground.path(&name)).unwrap();
            }
        }
        world.protect();
        world.scrub();
        assert!(world.ground.protect_all().seen.changes.is_empty(), "{}", world.told());
        assert_eq!(world.ground.vault.changelog.pending().unwrap().entries(), 0);
        assert_eq!(world.ground.vault.catalogue.count().unwrap(), world.protected.len() as u64);
    }
}

/// Files in directories of a directory were left out when a part of the tree was asked for.
#[test]
fn a_part_of_the_tree_is_all_that_is_below_it() {
    let ground = Playground::new("4+2");
    let names = ["a", "part/x", "part/sub/y", "part/sub/deep/z", "part0/x", "part-/x"];
    names.iter().for_each(|name| ground.write(name, name.as_bytes()));
    ground.protect_all();
    let options = scrub::Options { selection: scrub::Selection::All, from_medium: false, resume: false };
    for (part, files) in [("", 6), ("part", 3), ("part/sub", 2), ("part/sub/deep/z", 1), ("par", 0)] {
        let part = part.as_bytes();
        assert_eq!(scrub::scrub(&ground.vault, part, options, QUIET).unwrap().files, files);
        let plan = repair::plan(&ground.vault, part, repair::Options::default(), QUIET).unwrap();
        assert_eq!(plan.examined, files);
        let counted = status(&ground.vault, part, false, 10, QUIET).unwrap();
        assert_eq!(counted.matrix.values().map(|amount| amount.0).sum::<u64>(), files);
    }
    rot(&ground.path("part/sub/deep/z"), 0, b"!");
    assert_eq!(scrub::scrub(&ground.vault, b"part", options, QUIET).unwrap().trouble.len(), 1);
}

/// A deletion waits for an approval, and its redundancy is in the way of what was moved to a directory of that name: that file
/// is named, and the run goes on.
#[test]
fn what_is_held_stands_in_the_way_of_one_file_only() {
    let policy = "[default]\ncode = \"4+2\"\n[guard]\nat_least = 2\nremoved = \"20%\"\n";
    let ground = Playground::with_policy(policy);
    // How long redundancy was set aside is told by the clock of the file system.
    ground.clock.set(Clock::System.now() + 60 * SECOND);
    ["a", "b", "c", "d"].iter().for_each(|name| ground.write(name, name.as_bytes()));
    ground.protect_all();
    std::fs::remove_file(ground.path("a")).unwrap();
    std::fs::remove_file(ground.path("b")).unwrap();
    std::fs::create_dir(ground.path("a")).unwrap();
    std::fs::rename(ground.path("c"), ground.path("a/c")).unwrap();
    ground.write("e", b"new");
    let report = ground.protect();
    let held = report.held.unwrap();
    let [(path, why)] = &report.done.failed[..] else { panic!("{:?}", report.done) };
    assert!(path == b"a/c" && why.contains("redundancy/a/c"), "{why}");
    assert_eq!(report.done.encoded, 1);
    assert!(["a", "b"].iter().all(|name| ground.redundancy(name).exists()));
    // That of the moved file is kept for it.
    let kept = std::fs::read_dir(ground.root().join(".gabion/displaced")).unwrap();
    assert_eq!(kept.count(), 1);
    gabion_vault::guard::approve(&ground.vault.repository, &held.digest).unwrap();
    // It waits, and that is said; asked for once more by hand, it need not wait any longer.
    assert_eq!((report.pending, ground.protect_all().pending), (1, 0));
    ground.assert_clean();
    assert_eq!(ground.vault.catalogue.count().unwrap(), 3);
}
