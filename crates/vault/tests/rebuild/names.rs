//! Files with several names are rebuilt once.

use super::playground::{Ground, QUIET, Seed};
use gabion_vault::coder::Coders;
use gabion_vault::live::{Found, Live};
use gabion_vault::pool_rebuild::{Options, rebuild};
use gabion_vault::run::{Progress, RunContext};
use std::sync::atomic::{AtomicU64, Ordering};

/// With two of them there is always a target that has nothing of either.
const NAMES: [&str; 2] = ["file", "a name before"];

/// A pool with one file that has several names, and the number of a target with data of it.
fn ground() -> (Ground, usize) {
    let mut ground = Ground::new(&[None; 8], 3, 2);
    let content = Seed(5).bytes(200_000);
    ground.put(NAMES[0], &content);
    let live = Live::start(ground.pool.clone(), Coders::new().unwrap()).unwrap();
    let Some(Found::File(stub)) = live.find(NAMES[0].as_bytes()).unwrap() else { panic!("no file") };
    let file = live.open(*stub);
    for (known, name) in NAMES.iter().enumerate().skip(1) {
        let names = || NAMES[..known].iter().map(|name| name.as_bytes().to_vec()).collect();
        file.add_name(&names, name.as_bytes()).unwrap();
        ground.files.insert((*name).to_owned(), content.clone());
    }
    drop((file, live));
    ground.protect();
    let number = (2..=8).find(|number| ground.data(NAMES[0]).contains(&format!("d{number}")));
    (ground, number.unwrap())
}

#[test]
fn the_data_of_all_names_is_made_once() {
    let (mut ground, number) = ground();
    ground.lose(number);
    let (planned, written) = (AtomicU64::new(0), AtomicU64::new(0));
    let progress = |progress: Progress| match progress {
        Progress::Step(_, Some((_, bytes))) => planned.store(bytes, Ordering::Relaxed),
        Progress::Done(_, bytes) => {
            written.fetch_add(bytes, Ordering::Relaxed);
        }
        Progress::Step(_, None) => {}
    };
    let lock = ground.vault.lock("test").unwrap();
    let report =
        rebuild(&ground.vault, &Options::default(), RunContext { progress: &progress, ..QUIET }).unwrap();
    drop(lock);
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.files, report.data), (NAMES.len() as u64, 1), "{report:?}");
    assert_eq!(planned.into_inner(), report.bytes, "what is planned is what is done");
    assert!(written.into_inner() <= report.bytes, "nothing is done twice");
    ground.assert_whole("without one target");
}
