//! Harness for hostile input: any bytes as what a foreign tool printed. Used by fuzzers and by tests with seeded bytes.
//!
//! Requirements: no panic, no overflow, bounded memory; an accepted layout has ranges that are not empty.

use crate::layout::Layout;
use crate::lustre::lov;
use crate::probe::Looked;
use crate::{beegfs, cephfs, glusterfs, gpfs, lustre, moosefs, mount, xml};

/// Any bytes to every decoder.
///
/// # Panics
/// A decoder accepts what cannot be.
pub fn decode(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (_, _) = (moosefs::targets(&text), moosefs::master(&text));
    let (_, _, _) = (glusterfs::volume(&text), xml::decode(&text), glusterfs::volume_info(&text, "dist"));
    let bricks = glusterfs::volume_status(&text, "dist").unwrap_or_default();
    let (_, _, _) = (cephfs::targets(bytes), cephfs::placements(bytes, "a", 0), beegfs::targets(&text));
    let (_, _, _) = (gpfs::attributes(&text), lustre::targets(&text), Looked::decode(bytes));
    let layouts = [
        moosefs::layout(&text),
        glusterfs::layout(&text, &bricks),
        beegfs::layout(&text),
        lustre::layout(&text),
        lov::layout(bytes),
    ];
    layouts.iter().flatten().for_each(check);
    for layout in
        [cephfs::FileLayout::decode_json(bytes), cephfs::FileLayout::decode_text(&text)].iter().flatten()
    {
        // Sizes of the largest files must not overflow.
        for size in [0, 1, 1 << 40, i64::MAX as u64, u64::MAX] {
            let objects = layout.objects(size);
            assert!(size == 0 || objects > 0, "a file of {size} bytes without objects");
        }
        check(&layout.layout(Vec::new()));
    }
    mount::decode(bytes).iter().for_each(|mount| assert!(!mount.system().name().is_empty()));
}

fn check(layout: &Layout) {
    for component in &layout.components {
        assert!(component.end.is_none_or(|end| end > component.start), "{component:?}");
        if let Some(striping) = component.striping {
            assert!(striping.unit > 0 && striping.columns > 0, "{component:?}");
        }
    }
    let _ = (layout.targets(), layout.unplaced(u64::MAX));
    assert!(layout.uncovered(1000) <= 1000);
}

#[cfg(test)]
mod tests {
    use super::decode;

    /// Texts from which inputs are made by changing, repeating, cutting and mixing their lines.
    const SEEDS: &[&str] = &[
        "f:\n\tchunk 0: 0000000000000001_00000001 / (id:1 ver:1)\n\t\tcopy 1: 10.77.0.1:19503 (status:VALID)\n",
        "chunk servers:|10.77.0.1|19501|1|A|3.0.117|0|maintenance_off|2|51308756992|97572749312|-|0|0|0\n",
        "Disconnected chunk servers:|10.77.0.1|19502|2|maintenance_off\nmfs#10.77.0.1:19421\n",
        "(<DISTRIBUTE:d> (<REPLICATE:r> <POSIX(/b1):n1:/b1/f> <POSIX(/b2):n2:/b2/f>)) ",
        "<cliOutput><opRet>0</opRet><volStatus><volumes><volume><volName>dist</volName><node><hostname>h</hostname>\
         <path>/b</path><status>1</status></node></volume></volumes></volStatus></cliOutput>",
        "stripe_unit=1048576 stripe_count=4 object_size=4194304 pool=data",
        "{\"stripe_unit\": 1, \"stripe_count\": 4, \"object_size\": 4, \"pool_name\": \"data\", \"acting\":[1], \
         \"osds\":[{\"osd\":0,\"up\":1,\"in\":1}]}",
        "Stripe pattern details:\n+ Type: RAID0\n+ Chunksize: 512K\n+ Storage targets:\n  + 101 @ node1 [ID: 1]\n",
        "  lcme_id: 65537\n lcme_mirror_id: 1\n lcme_extent.e_start: 0\n lcme_extent.e_end: EOF\n lmm_stripe_count: 1\n\
         lmm_stripe_size: 1048576\nlmm_pattern: raid0\n- l_ost_idx: 3\n l_fid: 0x1:0x2:0x0\n",
        "data replication:     2 max 2\nMisc attributes:      ARCHIVE OFFLINE\n101 Online Good 1\n0: x ACTIVE\n",
        "44 27 0:39 / /mnt/a\\040b rw shared:3 - fuse mfs\\04310.77.0.1:19421 rw,allow_other\n",
        "18446744073709551615",
        "\u{0}\u{ff}é",
    ];

    struct Chance(u64);

    impl Chance {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % limit as u64) as usize
        }
    }

    #[test]
    fn no_input_breaks_a_decoder() {
        SEEDS.iter().for_each(|seed| decode(seed.as_bytes()));
        for input in 0..gabion_testkit::fuzz_inputs(4000) {
            let mut chance = Chance((input as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let mut bytes = SEEDS[chance.below(SEEDS.len())].as_bytes().to_vec();
            if chance.below(8) == 0 {
                // Binary layouts, with a valid magic number.
                let magic: u32 = [0x0bd1_0bd0, 0x0bd3_0bd0, 0x0bd6_0bd0][chance.below(3)];
                bytes = (0..chance.below(300)).map(|_| [0, 1, 0x10, 32, 80, 255][chance.below(6)]).collect();
                bytes.splice(..0, magic.to_le_bytes());
            }
            for _ in 0..=chance.below(6) {
                let at = chance.below(bytes.len() + 1);
                match chance.below(5) {
                    0 => bytes.truncate(at),
                    1 if at < bytes.len() => bytes[at] = chance.below(256) as u8,
                    2 => {
                        bytes.splice(at..at, SEEDS[chance.below(SEEDS.len())].bytes());
                    }
                    3 if at < bytes.len() => {
                        bytes.remove(at);
                    }
                    _ => bytes.extend_from_within(at..),
                }
            }
            decode(&bytes);
        }
    }
}
