//! What a directory of the namespace has beyond what every file system keeps: extended attributes, a time of access, and
//! permissions that would keep ourselves out.
//!
//! It is text in one extended attribute of the directory on every mirror, and so moves along when the directory does. A mirror
//! on a file system without extended attributes has none of it.

use super::stub::{hex, unhex};
use crate::tree::Tree;
use crate::world::Nanos;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;
use std::fmt::Write;
use std::io;

/// The attribute on mirrors.
const NAME: &str = "user.gabion.directory";

const HEAD: &str = "gabion directory 1";

/// Most bytes of the text.
const MAX_BYTES: usize = 1 << 16;

/// What a directory has beyond its mode and owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extra {
    /// Permissions, if its owner has not all of them.
    pub mode: Option<u32>,
    /// Time of the last access, if someone has set it.
    pub accessed: Option<Nanos>,
    /// Extended attributes, in the order of their names.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Extra {
    fn encode(&self) -> String {
        let mut text = format!("{HEAD}\n");
        // Writing to a string cannot fail.
        if let Some(mode) = self.mode {
            let _ = writeln!(text, "mode = {mode:o}");
        }
        if let Some(accessed) = self.accessed {
            let _ = writeln!(text, "accessed = {accessed}");
        }
        for (name, value) in &self.attributes {
            let _ = writeln!(text, "attribute = {} {}", hex(name), hex(value));
        }
        text
    }

    fn decode(text: &str) -> Option<Extra> {
        let mut lines = text.lines();
        (lines.next()? == HEAD).then_some(())?;
        let mut extra = Extra::default();
        for line in lines {
            match line.split_once(" = ")? {
                ("mode", mode) => extra.mode = Some(u32::from_str_radix(mode, 8).ok()? & 0o7777),
                ("accessed", time) => extra.accessed = Some(time.parse().ok()?),
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

/// What a directory of one mirror has.
pub(crate) fn read(tree: &Tree, full: &[u8]) -> io::Result<Extra> {
    let directory = tree.directory(full)?;
    let mut buffer = Vec::with_capacity(512);
    loop {
        let got = fgetxattr(&directory, NAME, rustix::buffer::spare_capacity(&mut buffer));
        match got {
            Ok(_) => break,
            Err(Errno::NODATA | Errno::NOTSUP) => return Ok(Extra::default()),
            Err(Errno::RANGE) if buffer.capacity() < MAX_BYTES => buffer.reserve(MAX_BYTES),
            Err(error) => return Err(error.into()),
        }
    }
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the attributes of a directory are damaged");
    std::str::from_utf8(&buffer).ok().and_then(Extra::decode).ok_or_else(damaged)
}

/// Gives it to a directory of one mirror.
pub(crate) fn write(tree: &Tree, full: &[u8], extra: &Extra) -> io::Result<()> {
    let directory = tree.directory(full)?;
    if *extra == Extra::default() {
        return match fremovexattr(&directory, NAME) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
    Ok(fsetxattr(&directory, NAME, extra.encode().as_bytes(), XattrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::Extra;

    #[test]
    fn what_is_written_is_read() {
        let attributes = vec![(b"user.a".to_vec(), b"\0\n= ".to_vec()), (b"user.b".to_vec(), Vec::new())];
        let all = Extra { mode: Some(0o1055), accessed: Some(-3), attributes };
        for extra in [all, Extra::default(), Extra { mode: Some(0), ..Extra::default() }] {
            assert_eq!(Extra::decode(&extra.encode()), Some(extra));
        }
        assert_eq!(Extra::decode("gabion directory 2\n"), None);
        assert_eq!(Extra::decode("gabion directory 1\nowner = 7\n"), None);
    }
}
