//! Names from headers and directories, made safe to print.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a name made printable: names come from strangers, and a terminal obeys control characters.
pub struct Shown<'a>(&'a [u8]);

impl<'a> Shown<'a> {
    /// A name as a header or a directory has it.
    pub fn bytes(bytes: &'a [u8]) -> Shown<'a> {
        Shown(bytes)
    }

    /// A path.
    pub fn path(path: &'a Path) -> Shown<'a> {
        Shown(path.as_os_str().as_bytes())
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in String::from_utf8_lossy(self.0).chars() {
            if letter.is_control() {
                write!(f, "{}", letter.escape_default())?
            } else {
                write!(f, "{letter}")?
            }
        }
        Ok(())
    }
}
