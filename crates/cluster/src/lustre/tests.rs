use super::{layout, lov, targets};
use crate::layout::{Layout, State};

/// A mirrored file in the shape of older releases: two components per mirror, the second one of the second mirror
/// without objects.
const OLDER: &str = "  lcm_layout_gen:    6\n  lcm_mirror_count:  2\n  lcm_entry_count:   3\n\
    \x20 component0:\n    lcme_id:             65537\n    lcme_mirror_id:      1\n    lcme_flags:          init\n\
    \x20   lcme_extent.e_start: 0\n    lcme_extent.e_end:   134217728\n    sub_layout:\n\
    \x20     lmm_stripe_count:  2\n      lmm_stripe_size:   1048576\n      lmm_pattern:       raid0\n\
    \x20     lmm_layout_gen:    0\n      lmm_stripe_offset: 3\n      lmm_objects:\n\
    \x20     - l_ost_idx: 3\n        l_fid:     0x100030000:0x42:0x0\n\
    \x20     - l_ost_idx: 4\n        l_fid:     0x100040000:0x43:0x0\n\n\
    \x20 component1:\n    lcme_id:             131074\n    lcme_mirror_id:      2\n    lcme_flags:          init,stale\n\
    \x20   lcme_extent.e_start: 0\n    lcme_extent.e_end:   EOF\n    sub_layout:\n\
    \x20     lmm_stripe_count:  2\n      lmm_stripe_size:   1048576\n      lmm_pattern:       raid0,overstriped\n\
    \x20     lmm_objects:\n      - l_ost_idx: 10\n        l_fid:     0x1000a0000:0x2:0x0\n\
    \x20     - l_ost_idx: 10\n        l_fid:     0x1000a0000:0x3:0x0\n\n\
    \x20 component2:\n    lcme_id:             131075\n    lcme_mirror_id:      2\n    lcme_flags:          0\n\
    \x20   lcme_extent.e_start: 134217728\n    lcme_extent.e_end:   EOF\n    sub_layout:\n\
    \x20     lmm_stripe_count:  -1\n      lmm_stripe_size:   4194304\n      lmm_pattern:       raid0\n\
    \x20     lmm_layout_gen:    65535\n      lmm_stripe_offset: -1\n";

/// The same in the shape of later releases.
fn later() -> String {
    let unindented = OLDER.replace("  lcm_", "lcm_");
    let list = unindented.replace("  component0:\n    lcme_id:", "components:\n  - lcme_id:");
    let list = list.replace("  component1:\n    lcme_id:", "  - lcme_id:");
    list.replace("  component2:\n    lcme_id:", "  - lcme_id:")
}

const PLAIN: &str = "lmm_stripe_count:  1\nlmm_stripe_size:   1048576\nlmm_pattern:       1\nlmm_layout_gen:    0\n\
    lmm_stripe_offset: 1\nlmm_pool:          fast\nlmm_objects:\n      - l_ost_idx: 1\n        l_fid:     0x100010000:0x7:0x0\n";

fn targets_of(layout: &Layout, component: usize) -> Vec<&str> {
    layout.components[component].placements.iter().filter_map(|it| it.target.as_deref()).collect()
}

#[test]
fn both_shapes_say_the_same() {
    let found = layout(OLDER).unwrap();
    assert_eq!(layout(&later()).unwrap(), found);
    assert_eq!(found.components.len(), 3);
    assert_eq!(targets_of(&found, 0), ["OST0003", "OST0004"]);
    assert_eq!(found.components[0].placements[1].object.as_deref(), Some("0x100040000:0x43:0x0"));
    assert_eq!((found.components[0].end, found.components[1].end), (Some(128 << 20), None));
    assert_eq!(found.components.iter().map(|it| it.mirror).collect::<Vec<_>>(), [0, 1, 1]);
    // Overstriped: two columns fail with one target.
    assert_eq!(targets_of(&found, 1), ["OST000a", "OST000a"]);
    assert_eq!(found.components[1].flags, ["init", "stale", "raid0", "overstriped"]);
    assert!(found.components[2].placements.is_empty());
    assert_eq!(found.unplaced(128 << 20), (0, 0));
    assert_eq!(found.unplaced(129 << 20), (0, 1));
}

#[test]
fn a_plain_file_has_one_component() {
    let found = layout(PLAIN).unwrap();
    assert_eq!(found.components.len(), 1);
    assert_eq!(found.components[0].flags, ["raid0"]);
    assert_eq!(targets_of(&found, 0), ["OST0001"]);
}

#[test]
fn contradictions_are_refused() {
    for bad in [
        "",
        "components:\n",
        &PLAIN.replace("count:  1", "count:  2"),
        &PLAIN.replace("size:   1048576", "size:   0"),
        &PLAIN.replace("l_ost_idx: 1", "l_ost_idx: 65536"),
        &OLDER.replace("e_end:   134217728", "e_end:   0"),
        &OLDER.replace("e_start: 134217728", "e_start: many"),
    ] {
        assert!(layout(bad).is_err(), "{bad}");
    }
}

/// A plain layout as bytes.
fn plain(magic: u32, pattern: u32, osts: &[u32]) -> Vec<u8> {
    let mut value = [magic.to_le_bytes(), pattern.to_le_bytes()].concat();
    value.extend([7; 16]);
    value.extend((1u32 << 20).to_le_bytes());
    value.extend((osts.len() as u16).to_le_bytes());
    value.extend([0; 2]);
    if magic == 0x0bd3_0bd0 {
        value.extend(b"fast\0\0\0\0\0\0\0\0\0\0\0\0");
    }
    for ost in osts {
        value.extend(0x42u64.to_le_bytes());
        value.extend([0; 12]);
        value.extend(ost.to_le_bytes());
    }
    value
}

/// A composite layout as bytes.
fn composite(parts: &[(u32, u32, u64, u64, Vec<u8>)]) -> Vec<u8> {
    let mut value = 0x0bd6_0bd0u32.to_le_bytes().to_vec();
    value.extend([0; 10]);
    value.extend((parts.len() as u16).to_le_bytes());
    value.resize(32, 0);
    let mut offset = 32 + 48 * parts.len();
    for (identity, flags, start, end, part) in parts {
        value.extend(identity.to_le_bytes());
        value.extend(flags.to_le_bytes());
        value.extend(start.to_le_bytes());
        value.extend(end.to_le_bytes());
        value.extend((offset as u32).to_le_bytes());
        value.extend((part.len() as u32).to_le_bytes());
        value.extend([0; 16]);
        offset += part.len();
    }
    parts.iter().for_each(|part| value.extend(&part.4));
    value
}

#[test]
fn binary_layouts() {
    for magic in [0x0bd1_0bd0, 0x0bd3_0bd0] {
        let found = lov::layout(&plain(magic, 1, &[3, 300])).unwrap();
        assert_eq!(targets_of(&found, 0), ["OST0003", "OST012c"]);
        assert_eq!(found.components[0].striping.unwrap().unit, 1 << 20);
    }
    let value = composite(&[
        (0x0001_0001, 0x10, 0, 1 << 27, plain(0x0bd1_0bd0, 1, &[3, 4])),
        (0x0002_0002, 0x11, 0, u64::MAX, plain(0x0bd3_0bd0, 0x201, &[10, 10])),
        (0x0002_0003, 0, 1 << 27, u64::MAX, plain(0x0bd1_0bd0, 1, &[])),
    ]);
    let found = lov::layout(&value).unwrap();
    assert_eq!(targets_of(&found, 1), ["OST000a", "OST000a"]);
    assert_eq!(found.components[1].flags, ["stale", "init", "raid0", "overstriped"]);
    assert_eq!(found.components.iter().map(|it| it.mirror).collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!((found.components[2].start, found.components[2].placements.len()), (1 << 27, 0));
    for length in 0..value.len() {
        assert!(lov::layout(&value[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn released_content_and_content_on_the_mdt_have_no_objects() {
    for (pattern, word) in [(0x8000_0001, "released"), (0x100, "mdt")] {
        let found = lov::layout(&plain(0x0bd1_0bd0, pattern, &[1])).unwrap();
        assert!(found.components[0].flags.iter().any(|flag| flag == word));
        assert!(found.components[0].placements.is_empty());
    }
    assert!(lov::layout(&plain(0x0bd1_0bd0, 4, &[1])).is_err());
}

#[test]
fn states_of_osts() {
    let found =
        targets("OBDS:\n0: lustre-OST0000_UUID ACTIVE\n1: lustre-OST0001_UUID INACTIVE\n10: x\n").unwrap();
    let states: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.state)).collect();
    let expected = [("OST0000", State::Online), ("OST0001", State::Offline), ("OST000a", State::Unknown)];
    assert_eq!(states, expected);
    assert!(targets("error: lfs osts: no such device\n").is_err());
}
