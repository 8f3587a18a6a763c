use super::{HELD_BYTES, LARGE_PAGE, WriteBuffer, due};
use crate::redundancy::{Draft, PartPath, STAGING};
use crate::tree::Tree;

/// Consecutive and separate runs, as produced by threads that share a file.
#[test]
fn records_are_written_at_their_offsets() {
    let directory = tempfile::tempdir().unwrap();
    let tree = Tree::open(directory.path()).unwrap();
    tree.make_directories(STAGING, 0o700).unwrap();
    let draft = Draft::new(PartPath { tree, path: b"made".to_vec() }).unwrap();
    let byte = |at: u64| (at * 31 + (at >> 8) * 7) as u8 | 1;
    let runs = [192..300_000u64, 300_000..2_500_000, 9_000_000..9_000_001, 2_500_000..9_000_000];
    let mut write_buffer = WriteBuffer::default();
    for run in &runs {
        write_buffer.begin(run.start, (run.end - run.start) as usize, Some(&draft)).unwrap();
        write_buffer.fresh().iter_mut().zip(run.start..).for_each(|(to, at)| *to = byte(at));
        write_buffer.end(Some(&draft), 1).unwrap();
        assert!(write_buffer.held < LARGE_PAGE);
    }
    write_buffer.flush(Some(&draft)).unwrap();
    draft.publish().unwrap();
    let made = std::fs::read(directory.path().join("made")).unwrap();
    assert_eq!(made.len(), 9_000_001);
    assert!(made[..192].iter().all(|&byte| byte == 0));
    assert!(made.iter().zip(0..).skip(192).all(|(&is, at)| is == byte(at)));
}

#[test]
fn writes_end_at_piece_boundaries_and_buffers_are_bounded() {
    let page = LARGE_PAGE;
    assert_eq!(due(0, page - 1, 1), 0);
    assert_eq!(due(0, page, 1), page);
    assert_eq!(due(192, 2 * page, 1), 2 * page - 192);
    assert_eq!(due(page as u64 + 5, 7, 1), 0);
    for buffers in [1, 2, 8, 9, 100, 1024, 1 << 30] {
        let held = (0..3 * page).step_by(4099).map(|held| held - due(192, held, buffers)).max();
        let all = held.unwrap() as u64 * buffers as u64;
        assert!(all <= HELD_BYTES, "{buffers}: {all}");
    }
}
