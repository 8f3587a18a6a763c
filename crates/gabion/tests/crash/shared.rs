//! `gabion protect` is killed while files begin to share redundancy, and while those that shared cease to.

use crate::fixture::{Fixture, assert_same, bytes, files_below, rot};
use gabion_testkit::kill::can_kill;
use std::cell::RefCell;
use std::fs;

const SIZE: usize = 300_000;

const PROTECT: [&str; 4] = ["protect", "tree", "--policy", "policy.toml"];

fn policy(share: bool) -> String {
    let guard = "[guard]\nat_least = 100000\n";
    format!(
        "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\nshare_duplicates = {share}\n\n{guard}"
    )
}

#[test]
fn equal_files_share_or_do_not() {
    let test = "equal_files_share_or_do_not";
    if !can_kill(test) {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("tree/sub")).unwrap();
    let wanted = RefCell::new(files_below(&fixture.path("tree")));
    fixture.kill_everywhere(
        test,
        12,
        &PROTECT,
        &mut (),
        |(), round| {
            // Those that shared in the round before get other content, and redundancy of their own.
            for (name, seed) in [("one", 2 * round), ("sub/two", 2 * round), ("three", 2 * round + 1)] {
                fs::write(fixture.path("tree").join(name), bytes(SIZE, seed)).unwrap();
            }
            fs::write(fixture.path("policy.toml"), policy(false)).unwrap();
            fixture.expect("before", &PROTECT);
            // In every other round the third one begins to share in the run that is killed, too.
            if round % 2 == 0 {
                fs::write(fixture.path("tree/three"), bytes(SIZE, 2 * round)).unwrap();
            }
            fs::write(fixture.path("policy.toml"), policy(true)).unwrap();
            *wanted.borrow_mut() = files_below(&fixture.path("tree"));
        },
        |(), round, told| {
            fixture.expect(told, &PROTECT);
            fixture.expect(told, &["scrub", "tree"]);
            let status = fixture.json(told, &["status", "tree"]);
            let sharing = if round % 2 == 0 { 3 } else { 2 };
            assert_eq!(status["shared"]["files"], sharing, "{told}: {status}");
            assert_eq!(status["pending"]["queued"], 0, "{told}: {status}");
            let staging = files_below(&fixture.path("tree/.gabion/staging"));
            assert!(staging.is_empty(), "{told}: {:?}", staging.keys());
            for name in ["one", "sub/two", "three"] {
                rot(&fixture.path("tree").join(name), 1000, 3000);
            }
            fixture.expect(told, &["repair", "tree", "--yes"]);
            assert_same(told, &files_below(&fixture.path("tree")), &wanted.borrow());
            // Nothing is left to do.
            let again = fixture.json(told, &PROTECT);
            assert_eq!(
                (&again["sharing"]["files"], &again["sharing"]["failed"]),
                (&0.into(), &[(); 0][..].into())
            );
        },
    );
}
