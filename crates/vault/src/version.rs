//! Content version of a file: size, mtime and inode.
//!
//! A file with the same size and mtime but another inode may be a copy (`cp -a`, a restored backup, a file system
//! without stable inodes), or another file that took the name. `protect` compares its content with the signatures and
//! does not accept a difference as a new version unless the catalogue knows the inode under another name. `scrub`,
//! `repair` and mounts treat it as changed until then.
//!
//! Timestamps advance in steps: two writes within one step have the same mtime. A version whose mtime lies within one
//! step before the file was read is *in doubt*, since a later write may have the same mtime. Redundancy of such a
//! version never proves damage and is made again at the next opportunity.

use crate::changelog::VersionName;
use crate::format::Header;
use crate::tree::Generation;
use crate::world::{Timestamp, boot};
use std::time::Duration;

/// Step of the kernel's timestamps (10 ms at most) and of file systems that store fractions of a second (10 ms at
/// most).
const FINE_STEP: Duration = Duration::from_millis(20);

/// Time after which a write gives a file another mtime than one before, if mtimes have fractions of a second.
pub const SETTLED_AFTER: Duration = Duration::from_millis(25);

/// Step of file systems that store whole seconds: ext4 with small inodes one second, vfat two.
const COARSE_STEP: Duration = Duration::from_secs(2);

/// An mtime further in the future than this was set by a program and is not the time of a write.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// Longest timestamp step that can have given this mtime. A whole second may be from a file system without fractions.
fn step_of(mtime: Timestamp) -> Duration {
    match mtime.parts() {
        (_, 0) => COARSE_STEP + FINE_STEP,
        _ => FINE_STEP,
    }
}

/// Time after `now` until later writes have another mtime. Zero if that is the case already.
pub fn settles_in(mtime: Timestamp, now: Timestamp) -> Duration {
    match mtime.since(now) > CLOCK_SKEW {
        true => Duration::ZERO,
        false => settled_at(mtime).since(now),
    }
}

/// Time from which on writes have another mtime, by the clock that gave this one.
pub fn settled_at(mtime: Timestamp) -> Timestamp {
    mtime + step_of(mtime) + Duration::from_nanos(1)
}

/// True if a version that was read at `read_at` may have been written again with the same mtime.
pub fn is_in_doubt(mtime: Timestamp, read_at: Timestamp) -> bool {
    !settles_in(mtime, read_at).is_zero()
}

/// Name of a version for the changelog. None if the kernel does not identify this boot: after a crash of the machine a
/// file may have new bytes and old times, so a name is valid during one boot.
pub fn name_of(version: &Generation) -> Option<VersionName> {
    (!boot().is_empty()).then(|| hashed(boot().as_bytes(), version))
}

/// Name of a version that is the same on all hosts, and is larger than those of earlier times. After a crash of the
/// host with the file system it may be that of other bytes: it counts only as long as all mounts of the deployment
/// answer ([`crate::changelog::windows`]).
pub fn name_on_all_hosts(version: &Generation) -> VersionName {
    let time = (version.ctime.nanoseconds().cast_unsigned() ^ 1 << 63).to_be_bytes();
    let hash = hashed(b"on all hosts", version);
    std::array::from_fn(|at| time.get(at).copied().unwrap_or(hash[at]))
}

fn hashed(of: &[u8], version: &Generation) -> VersionName {
    let Generation { size, mtime, ctime, inode } = *version;
    let mut hasher = blake3::Hasher::new();
    hasher.update(of);
    let [mtime, ctime] = [mtime, ctime].map(|time| time.nanoseconds().cast_unsigned());
    for number in [size, mtime, ctime, inode] {
        hasher.update(&number.to_le_bytes());
    }
    let hash: [u8; 32] = hasher.finalize().into();
    std::array::from_fn(|at| hash[at])
}

/// True if `header` describes a version in doubt. Never for pools, which know of every write.
pub fn is_doubtful(header: &Header) -> bool {
    header.targets.is_empty() && is_in_doubt(header.generation.mtime, header.protected_at)
}

/// True if size, mtime and inode are those of the version in `header`. False for a version in doubt.
pub fn is_unchanged(header: &Header, now: &Generation) -> bool {
    is_same_content(header, now) && now.inode == header.generation.inode
}

/// As [`is_unchanged`], for a file that may be a copy. In a pool, new content has a new inode.
pub fn is_same_content(header: &Header, now: &Generation) -> bool {
    let was = &header.generation;
    match header.targets.is_empty() {
        true => now.is_same_content(was) && !is_doubtful(header),
        false => now.is_unwritten_since(was),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_in_doubt, name_on_all_hosts, settles_in};
    use crate::tree::Generation;
    use crate::world::SECOND;
    use crate::world::Timestamp;

    #[test]
    fn names_on_all_hosts_are_in_the_order_of_times_and_differ() {
        let name = |ctime, mtime, size| {
            let [ctime, mtime] = [ctime, mtime].map(Timestamp::from_nanoseconds);
            name_on_all_hosts(&Generation { size, mtime, ctime, inode: 1 })
        };
        assert!(name(-1, 9, 9) < name(0, 9, 9) && name(0, 9, 9) < name(1 << 40, 0, 0));
        assert!(name(5, 1, 1) != name(5, 2, 1) && name(5, 1, 1) != name(5, 1, 2));
    }

    #[test]
    fn whole_seconds_settle_later_than_fractions() {
        let (whole, fraction) = (Timestamp::from_seconds(1000), Timestamp::from_parts(1000, 1));
        let ms = SECOND / 1000;
        for (mtime, settled) in [(whole, 2021 * ms), (fraction, 21 * ms)] {
            assert!(is_in_doubt(mtime, mtime) && is_in_doubt(mtime, mtime + settled - ms));
            assert!(!is_in_doubt(mtime, mtime + settled));
            assert!(!is_in_doubt(mtime, mtime + settles_in(mtime, mtime)));
        }
    }

    #[test]
    fn a_time_ahead_is_in_doubt_unless_a_program_set_it() {
        let mtime = Timestamp::from_parts(1000, 1);
        assert!(is_in_doubt(mtime, mtime - SECOND));
        assert!(!is_in_doubt(mtime, mtime - 7200 * SECOND));
        assert!(
            !is_in_doubt(Timestamp::MAX, Timestamp::EPOCH) && !is_in_doubt(Timestamp::MIN, Timestamp::MAX)
        );
    }
}
