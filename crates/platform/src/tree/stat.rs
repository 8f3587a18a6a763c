//! Attributes of files from `statx`.

use super::{Stat, kind};
use crate::world::Timestamp;
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp, statx};
use std::io;
use std::os::fd::AsFd;

impl From<Statx> for Stat {
    fn from(stat: Statx) -> Stat {
        Stat {
            kind: kind(FileType::from_raw_mode(u32::from(stat.stx_mode))),
            size: stat.stx_size,
            mtime: timestamp(stat.stx_mtime),
            ctime: timestamp(stat.stx_ctime),
            inode: stat.stx_ino,
            device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            links: stat.stx_nlink,
            mode: u32::from(stat.stx_mode) & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            allocated: stat.stx_blocks * 512,
            birth: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| timestamp(stat.stx_btime)),
        }
    }
}

/// Attributes that are read in one call.
const ASKED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp::from_parts(time.tv_sec, time.tv_nsec)
}

/// Attributes of an open file.
///
/// # Errors
/// Those of the operating system.
pub fn stat_of(file: impl AsFd) -> io::Result<Stat> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, ASKED)?;
    Ok(Stat::from(found))
}

/// What the file system says of a name in a directory; a link is not followed.
pub(super) fn stat_at(directory: impl AsFd, name: &[u8]) -> io::Result<Stat> {
    if name.contains(&b'/') || matches!(name, b"" | b"." | b"..") {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(Stat::from(statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, ASKED)?))
}
