//! Extra attributes of a directory of the namespace: extended attributes, time of last access, and permissions that
//! would lock Gabion itself out.
//!
//! They are text in one extended attribute of the directory on every mirror, and so follow the directory when it is
//! moved. A mirror on a file system without extended attributes has none.

use super::stub::{hex, unhex};
use crate::tree::Tree;
use crate::world::Timestamp;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;
use std::fmt::Write;
use std::io;

/// The extended attribute on mirrors.
const NAME: &str = "user.gabion.directory";

const HEAD: &str = "gabion directory 1";

/// Maximum size of the text.
const MAX_BYTES: usize = 1 << 16;

/// Attributes of a directory beyond those that the mirror's directory keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryExtra {
    /// Permissions, if the owner lacks some.
    pub mode: Option<u32>,
    /// Time of the last access, if a program has set it.
    pub accessed: Option<Timestamp>,
    /// Extended attributes, sorted by name.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl DirectoryExtra {
    fn encode(&self) -> String {
        let mut text = format!("{HEAD}\n");
        // Writing to a string cannot fail.
        if let Some(mode) = self.mode {
            let _ = writeln!(text, "mode = {mode:o}");
        }
        if let Some(accessed) = self.accessed {
            let _ = writeln!(text, "accessed = {}", accessed.nanoseconds());
        }
        for (name, value) in &self.attributes {
            let _ = writeln!(text, "attribute = {} {}", hex(name), hex(value));
        }
        text
    }

    fn decode(text: &str) -> Option<DirectoryExtra> {
        let mut lines = text.lines();
        (lines.next()? == HEAD).then_some(())?;
        let mut extra = DirectoryExtra::default();
        for line in lines {
            match line.split_once(" = ")? {
                ("mode", mode) => extra.mode = Some(u32::from_str_radix(mode, 8).ok()? & 0o7777),
                ("accessed", time) => extra.accessed = Some(Timestamp::from_nanoseconds(time.parse().ok()?)),
                ("attribute", pair) => {
                    let (name, value) = pair.split_once(' ')?;
                    extra.attributes.push((unhex(name)?, unhex(value)?));
                }
                _ => return None,
            }
        }
        Some(extra)
    }
}

/// Reads the extra attributes of a directory on one mirror.
pub(crate) fn read(tree: &Tree, full: &[u8]) -> io::Result<DirectoryExtra> {
    let directory = tree.directory(full)?;
    let mut buffer = Vec::with_capacity(512);
    loop {
        let got = fgetxattr(&directory, NAME, rustix::buffer::spare_capacity(&mut buffer));
        match got {
            Ok(_) => break,
            Err(Errno::NODATA | Errno::NOTSUP) => return Ok(DirectoryExtra::default()),
            Err(Errno::RANGE) if buffer.capacity() < MAX_BYTES => buffer.reserve(MAX_BYTES),
            Err(error) => return Err(error.into()),
        }
    }
    let damaged =
        || io::Error::new(io::ErrorKind::InvalidData, "the extra attributes of the directory are damaged");
    std::str::from_utf8(&buffer).ok().and_then(DirectoryExtra::decode).ok_or_else(damaged)
}

/// Sets the extra attributes of a directory on one mirror.
pub(crate) fn write(tree: &Tree, full: &[u8], extra: &DirectoryExtra) -> io::Result<()> {
    let directory = tree.directory(full)?;
    if *extra == DirectoryExtra::default() {
        return match fremovexattr(&directory, NAME) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
    Ok(fsetxattr(&directory, NAME, extra.encode().as_bytes(), XattrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::DirectoryExtra;
    use crate::world::Timestamp;

    #[test]
    fn encoding_round_trips() {
        let attributes = vec![(b"user.a".to_vec(), b"\0\n= ".to_vec()), (b"user.b".to_vec(), Vec::new())];
        let all = DirectoryExtra {
            mode: Some(0o1055),
            accessed: Some(Timestamp::from_nanoseconds(-3)),
            attributes,
        };
        for extra in
            [all, DirectoryExtra::default(), DirectoryExtra { mode: Some(0), ..DirectoryExtra::default() }]
        {
            assert_eq!(DirectoryExtra::decode(&extra.encode()), Some(extra));
        }
        assert_eq!(DirectoryExtra::decode("gabion directory 2\n"), None);
        assert_eq!(DirectoryExtra::decode("gabion directory 1\nowner = 7\n"), None);
    }
}
