//! Random sequences of events with at most m targets lost at once: every file equals its reference copy throughout.

use super::fixture::{Fixture, Seed, rot};
use std::collections::BTreeSet;

const TARGETS: usize = 8;

#[test]
fn after_any_sequence_every_file_is_what_it_was() {
    for seed in 0..6 {
        let mut chance = Seed(1000 + seed);
        let mut fixture = Fixture::filled(seed);
        let mut gone: BTreeSet<usize> = BTreeSet::new();
        // Upper limit of misplaced columns: lost and not rebuilt since.
        let mut missing: BTreeSet<usize> = BTreeSet::new();
        let mut story = Vec::new();
        for step in 0..14 {
            let number = 1 + chance.below(TARGETS as u64) as usize;
            match chance.below(8) {
                0 | 1 if !gone.contains(&number) && gone.len() < 2 && missing.len() < 2 => {
                    fixture.lose(number);
                    gone.insert(number);
                    missing.insert(number);
                    story.push(format!("lose d{number}"));
                }
                2 if gone.contains(&number) => {
                    fixture.restore_disk(number);
                    gone.remove(&number);
                    story.push(format!("bring back d{number}"));
                }
                3 | 4 => {
                    let report = fixture.rebuild();
                    assert!(
                        !report.has_losses() && report.failed.is_empty(),
                        "seed {seed}, {story:?}: {report:?}"
                    );
                    missing.clear();
                    story.push("rebuild".to_owned());
                }
                5 => {
                    let name = format!("file {}", chance.below(4));
                    let size = chance.below(90_000) as usize;
                    fixture.put(&name, &chance.bytes(size));
                    fixture.protect();
                    story.push(format!("put {name}"));
                }
                6 => {
                    let names: Vec<String> = fixture.files.keys().cloned().collect();
                    let name = &names[chance.below(names.len() as u64) as usize];
                    fixture.pool.remove(name.as_bytes()).unwrap();
                    fixture.files.remove(name);
                    story.push(format!("remove {name}"));
                }
                // Corruption where redundancy is left.
                7 if missing.is_empty() && gone.is_empty() => {
                    let names: Vec<String> = fixture.files.keys().cloned().collect();
                    let name = &names[chance.below(names.len() as u64) as usize];
                    let column = chance.below(3) as usize;
                    let path = fixture.object(name, column);
                    let size = std::fs::metadata(&path).map_or(0, |it| it.len());
                    if size > 0 {
                        rot(&path, chance.below(size));
                        fixture.assert_right(&format!("seed {seed}, {story:?}, rot in {name}"));
                        fixture.repair(name);
                        story.push(format!("rot in {name}, repaired"));
                    }
                }
                _ => {}
            }
            fixture.assert_right(&format!("seed {seed}, step {step}, {story:?}"));
        }
        for number in gone.clone() {
            fixture.restore_disk(number);
        }
        let told = format!("seed {seed}, {story:?}, all are back");
        fixture.rebuild_all(&told);
        fixture.protect();
        fixture.assert_whole(&told);
    }
}
