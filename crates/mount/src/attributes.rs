//! File attributes in the forms of the FUSE protocol and of system calls.

use fuser::{FileAttr, FileType, INodeNo, Request, TimeOrNow};
use rustix::fs::{OFlags, Statx, StatxTimestamp, Timespec};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Attributes to change, as in a `setattr` request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SetAttr {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<TimeOrNow>,
    pub(crate) mtime: Option<TimeOrNow>,
}

/// FUSE attributes of a `statx` result.
pub(crate) fn attributes(number: u64, stat: &Statx) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        crtime: time(stat.stx_btime),
        kind: kind(u32::from(stat.stx_mode)),
        perm: stat.stx_mode & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: device_number(stat.stx_rdev_major, stat.stx_rdev_minor),
        blksize: stat.stx_blksize,
        flags: 0,
    }
}

/// True if the caller owns a regular file whose owner permissions allow these open flags. A create request that finds
/// an existing file was not checked by the kernel; this case is safe to open without asking it.
pub(crate) fn opens_own_file(attr: &FileAttr, flags: OFlags, request: &Request) -> bool {
    let wants = match flags & OFlags::ACCMODE {
        OFlags::WRONLY => 0o200,
        OFlags::RDWR => 0o600,
        _ if flags.contains(OFlags::TRUNC) => 0o600,
        _ => 0o400,
    };
    attr.kind == FileType::RegularFile && attr.uid == request.uid() && attr.perm & wants == wants
}

/// Permissions without setuid and setgid: an unprivileged user changed the content, or the owner changed.
pub(crate) fn without_rights(mode: u32) -> u32 {
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | group)
}

/// File type of a mode.
pub(crate) fn kind(mode: u32) -> FileType {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Device number in the encoding of the protocol.
pub(crate) fn device_number(major: u32, minor: u32) -> u32 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Device number from the encoding of the protocol.
pub(crate) fn device_of(number: u32) -> rustix::fs::Dev {
    rustix::fs::makedev((number & 0xf_ff00) >> 8, number & 0xff | number >> 12 & 0xf_ff00)
}

fn time(stamp: StatxTimestamp) -> SystemTime {
    moment(stamp.tv_sec, stamp.tv_nsec)
}

fn moment(seconds: i64, nanos: u32) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(nanos));
    match u64::try_from(seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + nanos,
        Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + nanos,
    }
}

/// A time to set, for `utimensat`.
pub(crate) fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let (tv_sec, nanos) = asked_for(time);
            Timespec { tv_sec, tv_nsec: i64::from(nanos) as _ }
        }
    }
}

/// Seconds since 1970 and nanoseconds of a request. For times before 1970, `fuser` subtracts the nanoseconds from the
/// second instead of adding them; this undoes it.
pub(crate) fn asked_for(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            (0_i64.wrapping_sub_unsigned(before.as_secs()), before.subsec_nanos())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{device_number, device_of, moment, timespec};
    use fuser::TimeOrNow;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_before_1970_survive() {
        for (seconds, nanos) in [(0, 0), (1, 5), (-1, 0), (-1, 999_999_999), (-86_400, 1), (1 << 33, 7)] {
            let since = Duration::new(i64::unsigned_abs(seconds), nanos);
            // As fuser converts it.
            let time = if seconds < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since };
            let spec = timespec(Some(TimeOrNow::SpecificTime(time)));
            assert_eq!((spec.tv_sec, spec.tv_nsec as u32), (seconds, nanos));
            let read_back = match moment(seconds, nanos).duration_since(UNIX_EPOCH) {
                Ok(after) => after.as_nanos().cast_signed(),
                Err(before) => -before.duration().as_nanos().cast_signed(),
            };
            assert_eq!(read_back, i128::from(seconds) * 1_000_000_000 + i128::from(nanos));
        }
    }

    #[test]
    fn devices_survive() {
        for (major, minor) in [(1, 3), (8, 255), (8, 256), (4095, 0xf_ffff)] {
            let device = device_of(device_number(major, minor));
            assert_eq!((rustix::fs::major(device), rustix::fs::minor(device)), (major, minor));
        }
    }
}
