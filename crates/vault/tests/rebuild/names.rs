//! Files with several names are rebuilt once.

use super::fixture::{Fixture, QUIET, Seed};
use gabion_vault::coder::Coders;
use gabion_vault::live::{Live, LiveEntry};
use gabion_vault::pool_rebuild::{RebuildOptions, rebuild};
use gabion_vault::run::{Progress, RunContext};
use std::sync::atomic::{AtomicU64, Ordering};

/// With two of them some target always has no column of either.
const NAMES: [&str; 2] = ["file", "a name before"];

/// A pool with one file that has several names, and the number of a target with its data.
fn fixture() -> (Fixture, usize) {
    let mut fixture = Fixture::new(&[None; 8], 3, 2);
    let content = Seed(5).bytes(200_000);
    fixture.put(NAMES[0], &content);
    let live = Live::start(fixture.pool.clone(), Coders::new().unwrap()).unwrap();
    let Some(LiveEntry::File(stub)) = live.find(NAMES[0].as_bytes()).unwrap() else { panic!("no file") };
    let file = live.open(*stub);
    for (known, name) in NAMES.iter().enumerate().skip(1) {
        let names = || NAMES[..known].iter().map(|name| name.as_bytes().to_vec()).collect();
        file.add_name(&names, name.as_bytes()).unwrap();
        fixture.files.insert((*name).to_owned(), content.clone());
    }
    drop((file, live));
    fixture.protect();
    let number = (2..=8).find(|number| fixture.data(NAMES[0]).contains(&format!("d{number}")));
    (fixture, number.unwrap())
}

#[test]
fn the_data_of_all_names_is_rebuilt_once() {
    let (mut fixture, number) = fixture();
    fixture.lose(number);
    let (planned, written) = (AtomicU64::new(0), AtomicU64::new(0));
    let progress = |progress: Progress| match progress {
        Progress::Step(_, Some((_, bytes))) => planned.store(bytes, Ordering::Relaxed),
        Progress::Done(_, bytes) => {
            written.fetch_add(bytes, Ordering::Relaxed);
        }
        Progress::Step(_, None) | Progress::Elsewhere(..) => {}
    };
    let lock = fixture.vault.lock("test").unwrap();
    let report =
        rebuild(&fixture.vault, &RebuildOptions::default(), RunContext { progress: &progress, ..QUIET })
            .unwrap();
    drop(lock);
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.files, report.data), (NAMES.len() as u64, 1), "{report:?}");
    assert_eq!(planned.into_inner(), report.bytes, "what is planned is what is done");
    assert!(written.into_inner() <= report.bytes, "nothing is done twice");
    fixture.assert_whole("without one target");
}
