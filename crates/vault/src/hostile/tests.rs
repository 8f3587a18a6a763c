//! The fuzzers' functions on a limited number of seeded inputs.

use super::{Stage, header, part, pool, seal_header, stub};
use crate::coder::Coders;
use crate::format::header::{FIELDS, FIXED_BYTES};
use gabion_testkit::fuzz_inputs;

/// Reproducible random numbers.
struct TestRng(u64);

impl TestRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// A typical number of an attacker: small, large, near a power of two.
    fn number(&mut self) -> u64 {
        let power = 1u64 << self.below(64);
        match self.below(6) {
            0 => self.below(5) as u64,
            1 => u64::MAX - self.below(5) as u64,
            2 => power,
            3 => power.wrapping_sub(1),
            4 => i64::MAX as u64 - self.below(70_000) as u64,
            _ => self.next(),
        }
    }

    /// Makes one change.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.below(6) {
            0 => bytes.truncate(at),
            1 => {
                let more = self.below(300);
                bytes.extend(self.bytes(more));
            }
            2 if !bytes.is_empty() => {
                let from = self.below(bytes.len());
                let length = self.below(300).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + length, at);
            }
            3 => {
                let length = self.below(400).min(bytes.len() - at);
                bytes[at..at + length].fill(0);
            }
            _ if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            _ => {}
        }
    }

    /// Overwrites a field of the header with a number.
    fn change_field(&mut self, bytes: &mut [u8]) {
        let place = FIELDS[self.below(FIELDS.len())];
        let number = self.number().to_le_bytes();
        let count = place.bytes.min(8);
        if let Some(field) = bytes.get_mut(place.offset..place.offset + count) {
            field.copy_from_slice(&number[..count]);
        }
    }
}

fn stages(sizes: &[(&str, usize)]) -> Vec<(tempfile::TempDir, Stage, Vec<u8>)> {
    let stage = |&(code, size): &(&str, usize)| {
        let directory = tempfile::tempdir().unwrap();
        let content = TestRng(size as u64).bytes(size);
        let stage = Stage::new(directory.path(), code, &content).unwrap();
        (directory, stage, content)
    };
    sizes.iter().map(stage).collect()
}

#[test]
fn headers_of_chance_and_malice() {
    let coders = Coders::new().unwrap();
    let mut rng = TestRng(1);
    let stages = stages(&[("4+2", 3000)]);
    let (_, stage, _) = &stages[0];
    let length = stage.header_bytes();
    let mut accepted = 0;
    for _ in 0..fuzz_inputs(20_000) {
        let mut bytes = stage.redundancy()[..length].to_vec();
        for _ in 0..1 + rng.below(3) {
            match rng.below(3) {
                0 => rng.change(&mut bytes),
                1 => rng.change_field(&mut bytes),
                _ => {
                    let at = FIXED_BYTES + rng.below(length - FIXED_BYTES);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = rng.next() as u8;
                    }
                }
            }
        }
        header(&bytes, &coders);
        seal_header(&mut bytes);
        accepted += u32::from(crate::redundancy::decode(&bytes, &coders).is_ok());
    }
    assert!(accepted > 1000, "only {accepted} were accepted: nothing was tried");
}

/// Random damage of the redundancy never changes an intact file.
#[test]
fn redundancy_of_chance_does_no_harm() {
    let mut rng = TestRng(2);
    for (_directory, stage, content) in stages(&[("4+2", 3000), ("2+1", 0), ("1+1", 700), ("8+2", 20_000)]) {
        assert!(stage.play(stage.redundancy()).unwrap() == content);
        assert!(stage.play(b"").unwrap() == content);
        for round in 0..fuzz_inputs(250) {
            let mut bytes = stage.redundancy().to_vec();
            (0..1 + rng.below(4)).for_each(|_| rng.change(&mut bytes));
            assert!(stage.play(&bytes).unwrap() == content, "round {round}");
        }
    }
}

/// As before, for redundancy that is shared: damage of the reference, of the body, and of both.
#[test]
fn shared_redundancy_of_chance_does_no_harm() {
    let mut rng = TestRng(5);
    for (_directory, stage, content) in stages(&[("4+2", 3000), ("1+1", 700), ("8+2", 20_000)]) {
        let (reference, body) = stage.shared();
        assert!(stage.play_shared(&reference, &body).unwrap() == content);
        assert!(stage.play_shared(&reference, b"").unwrap() == content);
        for round in 0..fuzz_inputs(150) {
            let (mut reference, mut body) = (reference.clone(), body.clone());
            if round % 3 != 0 {
                (0..1 + rng.below(4)).for_each(|_| rng.change(&mut body));
            }
            if round % 3 != 1 {
                (0..1 + rng.below(2)).for_each(|_| rng.change(&mut reference));
            }
            assert!(stage.play_shared(&reference, &body).unwrap() == content, "round {round}");
        }
    }
}

/// Headers of references with any fields and a valid checksum, beside the body that they name.
#[test]
fn references_of_malice_do_no_harm() {
    let mut rng = TestRng(6);
    for (_directory, stage, content) in stages(&[("4+2", 3000)]) {
        let (reference, body) = stage.shared();
        let length = reference.len() / 2;
        let mut accepted = 0;
        for round in 0..fuzz_inputs(300) {
            let mut header = reference[..length].to_vec();
            match rng.below(2) {
                0 => rng.change_field(&mut header),
                _ => header[FIXED_BYTES + rng.below(length - FIXED_BYTES)] = rng.next() as u8,
            }
            seal_header(&mut header);
            accepted += u32::from(crate::redundancy::decode(&header, &Coders::new().unwrap()).is_ok());
            let played = stage.play_shared(&[&header[..], &header].concat(), &body).unwrap();
            // A valid header may describe another size of the file, and repair believes it.
            assert!(played == content || played.len() != content.len(), "round {round}");
        }
        assert!(accepted > 30, "only {accepted} were accepted: nothing was tried");
    }
}

/// Sizes beyond any disk, and codes that would need all memory.
#[test]
fn claims_that_cannot_be_true_are_refused_at_once() {
    let stages = stages(&[("4+2", 3000)]);
    let (_, stage, content) = &stages[0];
    let coders = Coders::new().unwrap();
    let length = stage.header_bytes();
    for (code, k, m) in
        [("4+2", 4, 2), ("1+1023", 1, 1023), ("1000+24", 1000, 24), ("30000+30000", 30000, 30000)]
    {
        let identity = code.parse::<gabion_engine::Code>().map(|code| code.to_string());
        let identity = identity.unwrap_or_else(|_| format!("subspace:{code}:w16"));
        for size in [3000, 1 << 40, i64::MAX as u64] {
            let mut bytes = stage.redundancy().to_vec();
            let mut set = |name: &str, number: u64| {
                let place = FIELDS.iter().find(|place| place.name == name).unwrap();
                let number = number.to_le_bytes();
                bytes[place.offset..][..place.bytes].copy_from_slice(&number[..place.bytes]);
            };
            set("file size", size);
            set("block size", 64);
            set("rows", 1 << 18);
            set("columns", m);
            set("columns in use", m);
            set("code identity length", identity.len() as u64);
            bytes[FIXED_BYTES..length - 36].fill(0);
            bytes[FIXED_BYTES..][..identity.len()].copy_from_slice(identity.as_bytes());
            seal_header(&mut bytes[..length]);
            let found = crate::redundancy::decode(&bytes[..length], &coders);
            let fits = k + m <= 1024 && size < 1 << 60;
            assert_eq!(found.is_ok(), fits, "{code}, {size} bytes: {found:?}");
            assert!(stage.play_sealed(&bytes).unwrap() == *content, "{code}, {size} bytes");
        }
    }
}

/// Regression: a header with 1024 columns of 64 MiB would need 64 GiB per stripe. A sparse file made it plausible.
#[test]
fn a_stripe_that_takes_all_memory_is_refused() {
    let stages = stages(&[("4+2", 3000)]);
    let (_, stage, content) = &stages[0];
    let coders = Coders::new().unwrap();
    let length = stage.header_bytes();
    for (k, m, block, fits) in [
        (1000, 24, 1u64 << 26, false),
        (14, 2, 1 << 26, true),
        (15, 2, 1 << 26, false),
        (1000, 24, 1 << 20, true),
    ] {
        let width = if k + m > 256 { 16 } else { 8 };
        let identity = format!("subspace:{k}+{m}:w{width}");
        let mut bytes = stage.redundancy()[..length].to_vec();
        let mut set = |name: &str, number: u64| {
            let place = FIELDS.iter().find(|place| place.name == name).unwrap();
            bytes[place.offset..][..place.bytes].copy_from_slice(&number.to_le_bytes()[..place.bytes]);
        };
        set("file size", 4 * k * block);
        set("block size", block);
        set("rows", 1);
        set("columns", m);
        set("columns in use", m);
        set("code identity length", identity.len() as u64);
        bytes[FIXED_BYTES..length - 36].fill(0);
        bytes[FIXED_BYTES..][..identity.len()].copy_from_slice(identity.as_bytes());
        seal_header(&mut bytes);
        let found = crate::redundancy::decode(&bytes, &coders);
        assert_eq!(found.is_ok(), fits, "{k}+{m}, {block}: {found:?}");
        if !fits {
            let sparse = [&bytes[..], &[0; 4096], &bytes[..]].concat();
            assert!(stage.play(&sparse).unwrap() == *content);
        }
    }
}

/// An attacker who can write redundancy can change file content, as documented. But only of these files, and without a
/// crash.
#[test]
fn redundancy_of_malice_stays_where_it_is() {
    let mut rng = TestRng(3);
    for (_directory, stage, _) in stages(&[("4+2", 3000), ("1+1", 700), ("2+2", 5000)]) {
        for _ in 0..fuzz_inputs(250) {
            let mut bytes = stage.redundancy().to_vec();
            for _ in 0..1 + rng.below(3) {
                match rng.below(3) {
                    0 => rng.change(&mut bytes),
                    _ => rng.change_field(&mut bytes),
                }
            }
            stage.play_sealed(&bytes).unwrap();
        }
        for _ in 0..fuzz_inputs(100) {
            let length = rng.below(60);
            part(&rng.bytes(length), &stage);
        }
    }
}

#[test]
fn stubs_of_chance_and_malice() {
    let mut rng = TestRng(4);
    let fields = ["id", "revision", "size", "stripe", "block", "mtime", "changed", "mode", "attributes"];
    for _ in 0..fuzz_inputs(20_000) {
        let mut text = "gabion pool stub 1: any\n".to_owned();
        for field in ["id = 000102030405060708090a0b0c0d0e0f", "revision = 1", "size = 100", "stripe = 2"] {
            text += &format!("{field}\n");
        }
        text += "block = 64\nmtime = 0\nchanged = 0\nmode = 644\nuid = 0\ngid = 0\nattributes = 1\n\
                 left-out = 0\nattribute = x00 xff\ntarget = d1\ntarget = d2\n";
        let field = fields[rng.below(fields.len())];
        let number = rng.number();
        let start = text.find(&format!("{field} = ")).unwrap() + field.len() + 3;
        let end = start + text[start..].find('\n').unwrap();
        if rng.below(2) == 0 {
            text.replace_range(start..end, &number.to_string());
        }
        let mut bytes = text.into_bytes();
        if rng.below(3) > 0 {
            rng.change(&mut bytes);
        }
        stub(&bytes);
    }
    // Valid as long as nothing is changed.
    stub(b"gabion pool stub");
    stub(b"");
}

#[test]
fn pools_of_chance_and_malice() {
    let mut rng = TestRng(5);
    let identity = |digit: char| String::from(digit).repeat(32);
    let target = |digit: char| {
        format!(
            "[[target]]\nname = \"d{digit}\"\nuuid = \"{}\"\npath = \"/d\"\ndomain = \"d{digit}\"\n\
             state = \"online\"\nmirror = \"current\"\n",
            identity(digit)
        )
    };
    let fields = ["format", "epoch", "stripe", "block", "redundancy"];
    let mut accepted = 0;
    for _ in 0..fuzz_inputs(3000) {
        let mut text = format!("format = 1\npool = \"{}\"\nname = \"tank\"\n", identity('0'));
        text += "epoch = 1\nstripe = 2\nblock = 4096\nredundancy = 1\n";
        text += &format!("this = \"{}\"\n", identity('1'));
        text.extend(['1', '2', '3'].map(target));
        if rng.below(2) == 0 {
            let field = fields[rng.below(fields.len())];
            let start = text.find(&format!("{field} = ")).unwrap() + field.len() + 3;
            let end = start + text[start..].find('\n').unwrap();
            text.replace_range(start..end, &rng.number().to_string());
        }
        let mut bytes = text.into_bytes();
        if rng.below(2) == 0 {
            rng.change(&mut bytes);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let sealed = format!("{text}# check {}\n", blake3::hash(text.as_bytes()).to_hex());
        accepted += u32::from(crate::storage::pool::config::Config::decode(&sealed).is_ok());
        pool(&bytes);
    }
    assert!(accepted > 300, "only {accepted} were accepted: nothing was tried");
}
