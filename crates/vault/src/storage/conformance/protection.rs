//! Layouts, placement of redundancy, repair.

use super::{Fixture, cells, pattern};
use crate::format::Metadata;
use crate::redundancy::{Draft, STAGING, read_up_to};
use crate::storage::{Repairable, TargetState};
use crate::tree::Kind;
use crate::world::Timestamp;
use std::collections::BTreeSet;

pub(super) fn layouts_fit_their_codes(fixture: &Fixture) {
    (fixture.put)(b"file", &pattern(10_000, 1));
    for m in 0..4 {
        let layout = fixture.storage.layout(b"file", &fixture.code(m), fixture.block);
        let layout = layout.unwrap_or_else(|error| panic!("{m} redundancy columns: {error}"));
        assert_eq!(layout.geometry.k(), fixture.k);
        let known: Vec<Vec<u8>> = fixture.storage.targets().into_iter().map(|target| target.name).collect();
        assert!(layout.targets.iter().all(|name| known.contains(name)), "columns are on existing targets");
        let different: BTreeSet<_> = layout.targets.iter().collect();
        assert_eq!(different.len(), layout.targets.len(), "every column is on a separate target");
        assert!(layout.targets.is_empty() || layout.targets.len() == fixture.k);
    }
}

pub(super) fn placements_are_in_separate_domains(fixture: &Fixture) {
    let targets = fixture.storage.targets();
    let domain = |name: &[u8]| {
        let target = targets.iter().find(|target| target.name == name);
        let target = target.unwrap_or_else(|| panic!("no target {name:?}"));
        assert_eq!(target.state, TargetState::Online, "only online targets receive new data");
        target.domain.clone()
    };
    for number in 0..20 {
        let path = format!("dir/file {number}").into_bytes();
        (fixture.put)(&path, &pattern(number * 1000, number));
        for m in 0..5 {
            let code = fixture.code(m);
            let layout = fixture.storage.layout(&path, &code, fixture.block);
            let layout = layout.unwrap_or_else(|error| panic!("no layout: {error}"));
            let placements = fixture.storage.parity_placements(&path, &code, &layout);
            let placements = placements.unwrap_or_else(|error| panic!("no placements: {error}"));
            let mut columns = BTreeSet::new();
            let mut domains: BTreeSet<String> = layout.targets.iter().map(|name| domain(name)).collect();
            assert_eq!(domains.len(), layout.targets.len(), "data columns are in separate domains");
            for placement in &placements {
                assert!(placement.first + placement.columns <= m, "{placement:?}: columns that the code has");
                assert!(
                    (0..placement.columns).all(|column| columns.insert(placement.first + column)),
                    "{placement:?}: each column once"
                );
                if !layout.targets.is_empty() {
                    assert_eq!(placement.columns, 1, "{placement:?}: one column per target");
                    assert!(domains.insert(domain(&placement.target)), "{placement:?}: a separate domain");
                }
            }
            if layout.targets.is_empty() {
                assert_eq!(columns.len(), m, "all columns are placed");
            } else {
                let all: BTreeSet<_> = targets.iter().map(|target| &target.domain).collect();
                assert_eq!(columns.len(), m.min(all.len() - fixture.k), "one column per free domain");
            }
        }
    }
}

pub(super) fn repositories_take_drafts(fixture: &Fixture) {
    let path = b"dir/sub/file";
    (fixture.put)(path, &pattern(10_000, 1));
    let code = fixture.code(2);
    let layout = fixture.storage.layout(path, &code, fixture.block);
    let layout = layout.unwrap_or_else(|error| panic!("no layout: {error}"));
    let placements = fixture
        .storage
        .parity_placements(path, &code, &layout)
        .unwrap_or_else(|error| panic!("no placements: {error}"));
    assert!(!placements.is_empty(), "the fixture has space for redundancy");
    let repositories = fixture.storage.repositories();
    for placement in &placements {
        let repository = repositories.iter().find(|repository| repository.target == placement.target);
        let repository = repository.unwrap_or_else(|| panic!("{placement:?} is in no repository"));
        let locations = fixture
            .storage
            .redundancy_locations(path)
            .unwrap_or_else(|error| panic!("no locations: {error}"));
        assert!(
            locations.iter().any(|it| it.place.is(&placement.place)),
            "the placement is among the locations"
        );
        let draft = |bytes: &[u8]| {
            let draft =
                Draft::new(placement.place.clone()).unwrap_or_else(|error| panic!("no draft: {error}"));
            draft.write_whole(bytes).and_then(|()| draft.sync()).unwrap_or_else(|error| panic!("{error}"));
            draft
        };
        draft(b"first").publish().unwrap_or_else(|error| panic!("not published: {error}"));
        draft(b"other").publish().unwrap_or_else(|error| panic!("not replaced: {error}"));
        drop(draft(b"never"));
        let file = repository.tree.read(&placement.place.path).unwrap_or_else(|error| panic!("{error}"));
        let mut bytes = [0; 8];
        let got = read_up_to(&file, &mut bytes, 0).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(&bytes[..got], b"other");
        let staging = repository.tree.directory(STAGING).and_then(|directory| directory.names());
        let staging = staging.unwrap_or_else(|error| panic!("no staging directory: {error}"));
        assert!(staging.get(0).is_none(), "drafts that were dropped are gone");
    }
    assert!(
        fixture.storage.find(b"redundancy").is_ok_and(|found| found.is_none()),
        "it is not in the namespace"
    );
}

const MTIME: Timestamp = Timestamp::from_nanoseconds(1_234_567_890_123_456_000);

fn metadata() -> Metadata {
    Metadata {
        mode: 0o640,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        ..Metadata::default()
    }
}

/// Writes all cells of `content` and finishes.
fn restore(fixture: &Fixture, repair: &mut dyn Repairable, path: &[u8], content: &[u8]) {
    let geometry = match fixture.storage.find(path) {
        Ok(Some(_)) => fixture.geometry(path),
        _ => fixture.geometry(b"other"),
    };
    let size = content.len() as u64;
    for (run, row, column) in cells(&geometry, size, fixture.k) {
        let cell = run.cell(row, column);
        let bytes = &content[cell.start as usize..cell.end as usize];
        repair.write(&run, row, column, bytes).unwrap_or_else(|error| panic!("{cell:?}: {error}"));
    }
    repair.set_size(size).unwrap_or_else(|error| panic!("no size: {error}"));
    let (failed, stat) = repair
        .finish(&metadata(), Some(MTIME), &mut |_| Ok(true))
        .unwrap_or_else(|error| panic!("not finished: {error}"));
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(fixture.storage.find(path).ok().flatten(), Some(stat), "what finish gives is what is there");
    assert_eq!((stat.kind, stat.size, stat.mtime, stat.mode), (Kind::File, size, MTIME, 0o640));
    let file = fixture.storage.open(path).unwrap_or_else(|error| panic!("cannot open: {error}"));
    let given = file.metadata().unwrap_or_else(|error| panic!("no metadata: {error}"));
    let wanted = metadata();
    assert_eq!((given.mode, given.uid, given.gid), (wanted.mode, wanted.uid, wanted.gid));
    assert!(fixture.content(path) == content, "content is restored");
}

/// Content whose middle is a hole, several blocks long.
fn with_hole(fixture: &Fixture) -> Vec<u8> {
    let stripe = fixture.k * fixture.block as usize;
    let mut content = pattern(12 * stripe as u64 + 17, 5);
    content[2 * stripe..11 * stripe].fill(0);
    content
}

fn open(fixture: &Fixture, path: &[u8]) -> Box<dyn Repairable> {
    let opened = fixture.storage.open_for_repair(path, None);
    opened.unwrap_or_else(|error| panic!("cannot repair {path:?}: {error}")).0
}

pub(super) fn repair_restores_everything(fixture: &Fixture) {
    (fixture.put)(b"other", b"x");
    let content = with_hole(fixture);
    // Full where there shall be a hole.
    (fixture.put)(b"dir/file", &pattern(content.len() as u64, 6));
    restore(fixture, &mut *open(fixture, b"dir/file"), b"dir/file", &content);
    let allocated = (fixture.allocated)(b"dir/file");
    assert!(allocated < content.len() as u64 / 2, "{allocated} of {} bytes: holes are kept", content.len());
}

pub(super) fn repair_recreates_files(fixture: &Fixture) {
    (fixture.put)(b"other", b"x");
    let content = with_hole(fixture);
    restore(fixture, &mut *open(fixture, b"gone/deep/file"), b"gone/deep/file", &content);
    restore(fixture, &mut *open(fixture, b"gone/empty"), b"gone/empty", b"");
    (fixture.put)(b"removed", &content);
    (fixture.remove)(b"removed");
    restore(fixture, &mut *open(fixture, b"removed"), b"removed", &content);
    let allocated = (fixture.allocated)(b"removed");
    assert!(allocated < content.len() as u64 / 2, "{allocated} of {} bytes: holes are kept", content.len());
}

pub(super) fn repair_lengthens_and_shortens(fixture: &Fixture) {
    (fixture.put)(b"other", b"x");
    let content = pattern(3 * fixture.k as u64 * fixture.block + 100, 7);
    (fixture.put)(b"file", &content);
    (fixture.cut)(b"file", fixture.block + 1);
    restore(fixture, &mut *open(fixture, b"file"), b"file", &content);
    (fixture.put)(b"file", &content);
    restore(fixture, &mut *open(fixture, b"file"), b"file", &content[..fixture.block as usize + 5]);
    // Only what is wrong is written: the rest stays.
    (fixture.put)(b"file", &content);
    let geometry = fixture.geometry(b"file");
    let run = geometry.cut(content.len() as u64).run(0, 1);
    let mut repair = open(fixture, b"file");
    let cell = run.cell(0, 0);
    let bytes = &content[cell.start as usize..cell.end as usize];
    repair.write(&run, 0, 0, bytes).unwrap_or_else(|error| panic!("{error}"));
    repair.finish(&metadata(), Some(MTIME), &mut |_| Ok(true)).unwrap_or_else(|error| panic!("{error}"));
    assert!(fixture.content(b"file") == content, "one cell was written, all others kept");
}
