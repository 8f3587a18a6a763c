//! Every kind of code, and codes that cannot be.

use super::playground::Playground;
use std::fs;

#[test]
fn all_kinds_of_codes() {
    for (code, n, m) in [
        ("5+3:w4", 8, 3),
        ("5+3:w16", 8, 3),
        ("3+2:w32", 5, 2),
        ("3+2:w64", 5, 2),
        ("cauchy-good:4+2:w4:packets=8", 6, 2),
        ("cauchy:4+3:w7:packets=16", 7, 3),
        ("subspace:6+3:w5:packets=16", 9, 3),
        ("3+7", 10, 7),
        ("rs-vandermonde:5+3", 8, 3),
        ("rs-isal:6+3", 9, 3),
        ("cauchy-isal:6+3", 9, 3),
        ("raidz:5+3", 8, 3),
        ("4+0", 4, 0),
        ("1+3", 4, 3),
        ("1+0", 1, 0),
    ] {
        for size in [1, 777, 20_001] {
            let place = Playground::split(size, code, "1KiB");
            let all = place.contents();
            place.run(&["verify", "shards"]).expect(0);
            (0..m).for_each(|index| fs::remove_file(place.shard((index * 3 + 1) % n)).unwrap());
            place.joins();
            // Without redundancy no shard was removed, and there is nothing to do.
            place.run(&["repair", "shards"]).expect(0);
            assert!(place.contents() == all, "{code}");
        }
    }
}

#[test]
fn two_hundred_and_fifty_six_shards() {
    let place = Playground::split(60_000, "200+56", "64");
    (0..56).for_each(|index| fs::remove_file(place.shard(index * 4)).unwrap());
    place.joins();
    place.run(&["repair", "shards", "-q"]).expect(0);
    place.run(&["verify", "shards"]).expect(0);
}

#[test]
fn shapes_out_of_range_are_refused_with_numbers() {
    let place = Playground::new();
    fs::write(place.path("file"), "x").unwrap();
    for (code, numbers) in [
        ("0+2", ["256", "0+2"]),
        ("255+2", ["256", "255+2"]),
        ("13+4:w4", ["16", "13+4"]),
        ("1000+100:w16", ["1024", "1000+100"]),
        ("raidz:4+4", ["3", "4"]),
    ] {
        let ran = place.run(&["split", "file", "--code", code, "--out", "shards"]).expect(2);
        numbers.iter().for_each(|number| assert!(ran.err.contains(number), "{}", ran.err));
        assert!(!place.path("shards").exists());
    }
    for code in ["4", "a+b", "4+2:w9"] {
        place.run(&["split", "file", "--code", code, "--out", "shards"]).expect(2);
    }
}
