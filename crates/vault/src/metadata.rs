//! File metadata: read for the header, restored by repair.
//!
//! Access control lists are extended attributes on Linux (`system.posix_acl_access`) and are handled as such.

use crate::format::Metadata;
use crate::format::header::MAX_HEADER;
use crate::tree::Stat;
use crate::world::Timestamp;
use rustix::fs::{
    Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, fchmod, fchown, fgetxattr, flistxattr,
    flistxattr_query, fsetxattr, futimens,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// Maximum size of the attributes of one file; leaves space for targets and the rest of a header.
const MAX_ATTRIBUTE_BYTES: usize = MAX_HEADER / 2;

/// Metadata of `file`. Attributes that are unreadable or too large are left out, and `attributes_left_out` is set.
///
/// # Errors
/// I/O errors.
pub fn read(file: &File, stat: &Stat) -> io::Result<Metadata> {
    let (mode, uid, gid) = (stat.mode, stat.uid, stat.gid);
    let mut metadata = Metadata { mode, uid, gid, ..Metadata::default() };
    // Most files have none, and asking for the size first needs no buffer.
    match flistxattr_query(file) {
        Ok(0) | Err(Errno::NOTSUP) => Ok(metadata),
        Ok(bytes) => {
            let mut names = vec![0; bytes + 256];
            let bytes = flistxattr(file, &mut names[..])?;
            let mut space = MAX_ATTRIBUTE_BYTES;
            for name in names[..bytes].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
                match value(file, name) {
                    Ok(value) if name.len() + value.len() + 6 <= space => {
                        space -= name.len() + value.len() + 6;
                        metadata.attributes.push((name.to_vec(), value));
                    }
                    _ => metadata.attributes_left_out = true,
                }
            }
            metadata.attributes.sort();
            Ok(metadata)
        }
        Err(_) => {
            metadata.attributes_left_out = true;
            Ok(metadata)
        }
    }
}

fn value(file: &File, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut value = vec![0; 1 << 16];
    let bytes = fgetxattr(file, name, &mut value[..])?;
    value.truncate(bytes);
    Ok(value)
}

/// Restores metadata of `file` except for its times. Returns what could not be restored (such as an owner, without the
/// privilege) as text.
pub fn restore(file: &File, metadata: &Metadata) -> Vec<String> {
    let mut failed = Vec::new();
    let mut attempt = |what: &str, done: rustix::io::Result<()>| failed.extend(failure(what, done));
    let (uid, gid) = (Uid::from_raw(metadata.uid), Gid::from_raw(metadata.gid));
    attempt("owner", fchown(file, Some(uid), Some(gid)));
    // After the owner: changing it clears bits.
    attempt("permissions", fchmod(file, Mode::from_raw_mode(metadata.mode)));
    for (name, value) in &metadata.attributes {
        let same = self::value(file, name).is_ok_and(|now| now == *value);
        if !same {
            let shown = format!("attribute {}", crate::display_path::DisplayPath::bytes(name));
            attempt(&shown, fsetxattr(file, &name[..], value, XattrFlags::empty()));
        }
    }
    failed
}

/// Restores the time of the last change. Returns why it could not be restored.
pub fn restore_mtime(file: &File, mtime: Timestamp) -> Option<String> {
    failure("times", set_mtime(file, mtime))
}

fn failure(what: &str, done: rustix::io::Result<()>) -> Option<String> {
    done.err().map(|error| format!("{what}: {}", io::Error::from(error)))
}

/// Attribute with the capabilities of a program.
const CAPABILITIES: &[u8] = b"security.capability";

/// Metadata without privileges of another user: a file that is created from a header alone must not become a privileged
/// program because of that header. Also returns what was left out, with the command that grants it.
pub fn without_privileges(metadata: &Metadata) -> (Metadata, Option<String>) {
    let (mut kept, mut left_out) = (metadata.clone(), Vec::new());
    if metadata.mode & 0o6000 != 0 {
        kept.mode &= !0o6000;
        left_out.push(format!("setuid and setgid bits (`chmod {:o}` sets them)", metadata.mode));
    }
    kept.attributes.retain(|(name, _)| name != CAPABILITIES && !name.starts_with(b"trusted."));
    if kept.attributes.len() != metadata.attributes.len() {
        left_out.push("capabilities and trusted attributes (`setcap`, `setfattr`)".to_owned());
    }
    let note = (!left_out.is_empty()).then(|| format!("not restored: {}", left_out.join(", ")));
    (kept, note)
}

/// A time for the kernel.
pub(crate) fn timespec(time: Timestamp) -> Timespec {
    let (tv_sec, nanoseconds) = time.parts();
    Timespec { tv_sec, tv_nsec: nanoseconds as _ }
}

/// Sets the time of the last change.
pub fn set_mtime(file: &File, mtime: Timestamp) -> rustix::io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: timespec(mtime),
    };
    futimens(file, &times)
}
