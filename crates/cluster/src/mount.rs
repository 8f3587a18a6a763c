//! Mounts of this process, and the kind of file system behind them.

use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A mount, as `/proc/self/mountinfo` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount.
    pub id: u64,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Type, such as `ext4` or `fuse.glusterfs`.
    pub kind: String,
    /// What is mounted: a device, or the address of a server.
    pub source: String,
}

/// Parallel file systems that are known here, and all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// MooseFS.
    MooseFs,
    /// GlusterFS.
    GlusterFs,
    /// CephFS.
    CephFs,
    /// Lustre.
    Lustre,
    /// BeeGFS.
    BeeGfs,
    /// GPFS, also called Spectrum Scale or Storage Scale.
    Gpfs,
    /// Any other file system: where its bytes lie is not known here.
    Plain,
}

impl System {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            System::MooseFs => "MooseFS",
            System::GlusterFs => "GlusterFS",
            System::CephFs => "CephFS",
            System::Lustre => "Lustre",
            System::BeeGfs => "BeeGFS",
            System::Gpfs => "GPFS",
            System::Plain => "plain",
        }
    }
}

impl Mount {
    /// The file system behind the mount, by its type and source.
    pub fn system(&self) -> System {
        match self.kind.as_str() {
            "lustre" => System::Lustre,
            "ceph" | "fuse.ceph" | "fuse.ceph-fuse" => System::CephFs,
            "glusterfs" | "fuse.glusterfs" => System::GlusterFs,
            "beegfs" => System::BeeGfs,
            "gpfs" => System::Gpfs,
            "fuse.mfs" | "fuse.moosefs" | "fuse.mfsmount" | "moosefs" => System::MooseFs,
            // mfsmount 3 and 4 name themselves in the source only.
            "fuse" if self.source.starts_with("mfs#") => System::MooseFs,
            _ => System::Plain,
        }
    }
}

/// Mounts of this process.
///
/// # Errors
/// `/proc` cannot be read.
pub fn all() -> std::io::Result<Vec<Mount>> {
    Ok(decode(&std::fs::read("/proc/self/mountinfo")?))
}

/// Decodes `mountinfo`. Lines that are not understood are left out.
pub fn decode(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(decode_line).collect()
}

/// `44 27 0:39 / /mnt rw,nosuid shared:1 - fuse mfs\04310.77.0.1:19421 rw`: the optional fields end with a dash.
fn decode_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let point = unescaped(words.nth(3)?);
    words.find(|word| *word == b"-")?;
    let kind = String::from_utf8_lossy(&unescaped(words.next()?)).into_owned();
    let source = String::from_utf8_lossy(&unescaped(words.next()?)).into_owned();
    Some(Mount { id, point: PathBuf::from(OsString::from_vec(point)), kind, source })
}

/// Replaces `\ooo`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) if byte == b'\\' && digits[0] <= b'3' => {
                found.push((digits[0] - b'0') << 6 | (digits[1] - b'0') << 3 | (digits[2] - b'0'));
                rest = &after[3..];
            }
            _ => {
                found.push(byte);
                rest = after;
            }
        }
    }
    found
}

/// The mount that an absolute path is on, by its text alone: for paths that cannot be looked up because their file
/// system does not answer. Symbolic links are not followed.
pub fn by_text<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let below = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // Of several mounts on one directory the last one is visible.
    below
        .enumerate()
        .max_by_key(|(at, mount)| (mount.point.as_os_str().as_bytes().len(), *at))
        .map(|(_, mount)| mount)
}

#[cfg(test)]
mod tests {
    use super::{System, by_text, decode};
    use std::path::Path;

    const TEXT: &[u8] = b"27 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
        44 27 0:39 / /mnt/moose\\040fs rw,nosuid shared:3 master:1 - fuse mfs\\04310.77.0.1:19421 rw,allow_other\n\
        46 27 0:40 / /mnt/g rw - fuse.glusterfs 10.78.0.1:dist rw\n\
        nonsense\n47 27 0:41 / /mnt/g rw - lustre 10.0.0.1@tcp:/scratch rw\n48 27\n";

    #[test]
    fn mounts_are_decoded() {
        let mounts = decode(TEXT);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].point, Path::new("/mnt/moose fs"));
        assert_eq!(mounts[1].source, "mfs#10.77.0.1:19421");
        let systems: Vec<System> = mounts.iter().map(super::Mount::system).collect();
        assert_eq!(systems, [System::Plain, System::MooseFs, System::GlusterFs, System::Lustre]);
    }

    #[test]
    fn the_longest_and_latest_mount_holds_a_path() {
        let mounts = decode(TEXT);
        let id = |path: &str| by_text(&mounts, Path::new(path)).map(|mount| mount.id);
        assert_eq!(id("/mnt/moose fs/a"), Some(44));
        assert_eq!(id("/mnt/moose"), Some(27));
        assert_eq!(id("/mnt/g/x/y"), Some(47));
        assert_eq!(id("relative"), None);
    }

    #[test]
    fn this_process_has_a_root() {
        assert!(by_text(&super::all().unwrap(), Path::new("/")).is_some());
    }
}
