//! Seeded random histories of a pool's namespace, compared with a model: changes are killed at counted points, mirrors
//! disappear, return, are set back to an earlier state, or lose their tree.
//!
//! `GABION_HISTORY_SEED` and `GABION_HISTORY_ROUNDS` choose another history or a longer one.

use super::fixture::{PoolFixture, bytes};
use super::order::{act, killed, open_any};
use gabion_testkit::chosen;
use gabion_vault::storage::pool::Pool;
use gabion_vault::storage::pool::config::{Member, Mirror};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// An entry of the model: a directory, or a file by its index in `Model::files`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Directory,
    File(usize),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    names: BTreeMap<String, Node>,
    /// Size and seed of the content of every file.
    files: Vec<(usize, u64)>,
}

struct TestRng(u64);

impl TestRng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
}

const NAMES: [&str; 10] = ["a", "b", "c", "d1", "d2", "d1/x", "d1/y", "d2/x", "d2/y", "d1/z"];

fn above(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(above, _)| above)
}

impl Model {
    fn is_directory(&self, path: &str) -> bool {
        self.names.get(path) == Some(&Node::Directory)
    }

    fn is_empty(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.names.keys().any(|name| name.starts_with(&below))
    }

    fn has_above(&self, path: &str) -> bool {
        above(path).is_none_or(|above| self.is_directory(above))
    }

    fn file(&self, path: &str) -> Option<usize> {
        match self.names.get(path) {
            Some(Node::File(file)) => Some(*file),
            _ => None,
        }
    }

    fn move_name(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moved: Vec<String> =
            self.names.keys().filter(|name| *name == from || name.starts_with(&below)).cloned().collect();
        for name in moved {
            let node = self.names.remove(&name).unwrap();
            self.names.insert(format!("{to}{}", &name[from.len()..]), node);
        }
    }

    /// A random change that is possible now, and the resulting model; none if the random choice was not possible.
    fn draw(&self, random: &mut TestRng) -> Option<(String, Model)> {
        let mut after = self.clone();
        let (one, other) = (NAMES[random.below(NAMES.len())], NAMES[random.below(NAMES.len())]);
        let (seed, size) = (random.below(1000) as u64 + 1, random.below(9000));
        let names_of = |file: usize| self.names.values().filter(|node| **node == Node::File(file)).count();
        let inside = |outer: &str, inner: &str| inner.starts_with(&format!("{outer}/"));
        let work = match random.below(10) {
            0..=2 if !self.is_directory(one) && above(one).is_none_or(|it| self.file(it).is_none()) => {
                if let Some(directory) = above(one) {
                    after.names.insert(directory.to_owned(), Node::Directory);
                }
                after.files.push((size, seed));
                after.names.insert(one.to_owned(), Node::File(after.files.len() - 1));
                format!("put {one} {seed} {size}")
            }
            3 if self.file(one).is_some() => {
                after.names.remove(one);
                format!("{} {one}", ["rm", "live-rm"][seed as usize % 2])
            }
            3 if self.is_directory(one) && self.is_empty(one) => {
                after.names.remove(one);
                format!("rm {one}")
            }
            4..=5
                if self.names.contains_key(one)
                    && one != other
                    && self.has_above(other)
                    && !inside(one, other) =>
            {
                match (self.names.get(one)?, self.names.get(other)) {
                    (Node::File(file), Some(Node::File(there))) if file == there => return None,
                    (Node::File(_), Some(Node::Directory)) | (Node::Directory, Some(Node::File(_))) => {
                        return None;
                    }
                    (Node::Directory, Some(Node::Directory)) if !self.is_empty(other) => return None,
                    _ => {}
                }
                after.names.remove(other);
                after.move_name(one, other);
                format!("{} {one} {other}", ["mv", "live-mv"][seed as usize % 2])
            }
            6 if one != other
                && self.names.contains_key(one)
                && self.names.contains_key(other)
                && !inside(one, other)
                && !inside(other, one) =>
            {
                after.move_name(one, "\0");
                after.move_name(other, one);
                after.move_name("\0", other);
                format!("swap {one} {other}")
            }
            7 if self.file(one).is_some() && !self.names.contains_key(other) && self.has_above(other) => {
                after.names.insert(other.to_owned(), Node::File(self.file(one)?));
                format!("link {one} {other}")
            }
            8 if !self.names.contains_key(one) && self.has_above(one) => {
                after.names.insert(one.to_owned(), Node::Directory);
                format!("mkdir {one}")
            }
            9 if self.file(one).is_some_and(|file| names_of(file) > 0) => {
                after.files[self.file(one)?] = (size, seed);
                format!("rewrite {one} {seed} {size}")
            }
            _ => return None,
        };
        Some((work, after))
    }
}

/// Compares a pool with the model. A file with unreachable targets is compared by its size.
fn compare(pool: &Pool, model: &Model, root: &Path) -> Result<(), String> {
    let mut found = super::fixture::all_names(pool, b"");
    found.sort();
    let slash = |(name, node): (&String, &Node)| match node {
        Node::Directory => format!("{name}/"),
        Node::File(_) => name.clone(),
    };
    let mut wanted: Vec<String> = model.names.iter().map(slash).collect();
    wanted.sort();
    if found != wanted {
        return Err(format!("names {found:?}, not {wanted:?}"));
    }
    let mut ids = BTreeMap::new();
    for (name, node) in &model.names {
        let Node::File(file) = node else { continue };
        let stub = pool.stub(name.as_bytes()).map_err(|error| format!("{name}: {error}"))?;
        let (size, seed) = model.files[*file];
        if *ids.entry(*file).or_insert(stub.id) != stub.id {
            return Err(format!("{name} is no longer a name of its file"));
        }
        if stub.targets.iter().any(|target| !root.join(target.as_str()).join("pool.toml").exists()) {
            if stub.size != size as u64 {
                return Err(format!("{name}: {} bytes, not {size}", stub.size));
            }
            continue;
        }
        let mut content = Vec::new();
        pool.get(name.as_bytes(), &mut content).map_err(|error| format!("{name}: {error}"))?;
        if content != bytes(size, seed) {
            return Err(format!("{name}: other content"));
        }
    }
    Ok(())
}

/// Parts of a target that belong to the namespace.
const PARTS: [&str; 4] = ["tree", "shared", "sequence.0", "sequence.1"];

fn keep(target: &Path, kept: &Path) {
    let _ = fs::remove_dir_all(kept);
    fs::create_dir(kept).unwrap();
    let there = PARTS.map(|part| target.join(part)).into_iter().filter(|part| part.exists());
    assert!(Command::new("cp").arg("-a").args(there).arg(kept).status().unwrap().success());
}

fn put_back(target: &Path, kept: &Path) {
    for part in PARTS.map(|part| target.join(part)) {
        let _ = fs::remove_dir_all(&part).or_else(|_| fs::remove_file(&part));
    }
    for part in fs::read_dir(kept).unwrap() {
        let done = Command::new("cp").arg("-a").arg(part.unwrap().path()).arg(target).status().unwrap();
        assert!(done.success());
    }
}

/// True if another mirror than d`number` is reachable and current: the last one must not be damaged.
fn has_another(place: &PoolFixture, number: usize) -> bool {
    let is_other = |member: &&Member| member.mirror == Mirror::Current && member.name != format!("d{number}");
    let config = open_any(place.root()).config();
    config.target.iter().filter(is_other).any(|member| place.root().join(member.name.as_str()).exists())
}

/// Whatever the order of changes, kills and disks that come and go, a completed change persists, an interrupted one is
/// applied or not, and no disk brings back an older state.
#[test]
fn random_histories_end_as_the_model_says() {
    let (seed, rounds) = (chosen("GABION_HISTORY_SEED", 1), chosen("GABION_HISTORY_ROUNDS", 60));
    let mut random = TestRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let place = PoolFixture::in_memory(6, 2, 2);
    let kept = place.root().join("kept");
    let mut model = Model::default();
    let (mut away, mut kept_of): (Option<usize>, Option<usize>) = (None, None);
    let mut spoilt = false;
    let mut history = Vec::new();
    for round in 0..rounds {
        let (work, after) = loop {
            if let Some(drawn) = model.draw(&mut random) {
                break drawn;
            }
        };
        let told = |history: &Vec<String>| {
            let last = history.iter().rev().take(12).rev().cloned().collect::<Vec<_>>();
            format!("seed {seed}, round {round}, after {last:#?}")
        };
        // Rewriting content needs all its targets.
        let needs_all = work.starts_with("rewrite");
        if random.below(3) == 0 && !(needs_all && away.is_some()) {
            let point = random.below(40) as u64;
            history.push(format!("{work}, killed before {point}"));
            let was_killed = killed(place.root(), &work, point);
            let pool = open_any(place.root());
            // A file that is being rewritten in place may be empty or have unsynced bytes.
            if was_killed && needs_all {
                act(&pool, &work);
            }
            let (done, not) = (compare(&pool, &after, place.root()), compare(&pool, &model, place.root()));
            match (done, not) {
                (Ok(()), _) => model = after,
                (Err(_), Ok(())) if was_killed => {}
                (done, not) => panic!("{}: neither {done:?} nor {not:?}", told(&history)),
            }
        } else if !(needs_all && away.is_some()) {
            history.push(work.clone());
            act(&open_any(place.root()), &work);
            (model, spoilt) = (after, false);
        }
        let (event, number) = (random.below(12), 1 + random.below(3));
        // One disk at a time: the next one only after a change has healed it.
        let may_spoil = away.is_none() && !spoilt && has_another(&place, number);
        match event {
            0 if may_spoil => {
                place.lose(number);
                away = Some(number);
                history.push(format!("d{number} goes"));
            }
            1 | 2 => {
                if let Some(number) = away.take() {
                    place.restore_disk(number);
                    history.push(format!("d{number} comes back"));
                }
            }
            3 if may_spoil && place.target(number).join("tree").exists() => {
                keep(&place.target(number), &kept);
                kept_of = Some(number);
                history.push(format!("a copy of d{number} is made"));
            }
            4 if away.is_none() && !spoilt => {
                if let Some(number) = kept_of.filter(|number| has_another(&place, *number)) {
                    put_back(&place.target(number), &kept);
                    spoilt = true;
                    history.push(format!("d{number} is put back to its copy"));
                }
            }
            5 if may_spoil => {
                for part in PARTS.map(|part| place.target(number).join(part)) {
                    let _ = fs::remove_dir_all(&part).or_else(|_| fs::remove_file(&part));
                }
                spoilt = true;
                history.push(format!("d{number} loses its namespace"));
            }
            6 if away.is_none() => {
                let healed = open_any(place.root()).heal().unwrap();
                assert!(healed.failed.is_empty(), "{}: {healed:?}", told(&history));
                spoilt = false;
                history.push("heal".to_owned());
            }
            _ => {}
        }
        let pool = open_any(place.root());
        compare(&pool, &model, place.root()).unwrap_or_else(|why| panic!("{}: {why}", told(&history)));
        if round % 16 == 0 && away.is_none() {
            pool.sweep(true).unwrap();
            compare(&pool, &model, place.root())
                .unwrap_or_else(|why| panic!("{}, sweep: {why}", told(&history)));
        }
    }
}
