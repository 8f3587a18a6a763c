//! Safe display of file names from headers and directories.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a name as printable text. Names are untrusted: a terminal would obey control characters and reverse the
/// direction of text. Escapes begin with a backslash, so that different names look different.
pub struct DisplayPath<'a>(&'a [u8]);

impl<'a> DisplayPath<'a> {
    /// A name as bytes of a header or a directory.
    pub fn bytes(bytes: &'a [u8]) -> DisplayPath<'a> {
        DisplayPath(bytes)
    }

    /// A path.
    pub fn path(path: &'a Path) -> DisplayPath<'a> {
        DisplayPath(path.as_os_str().as_bytes())
    }
}

impl fmt::Display for DisplayPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '\\' => f.write_str("\\\\")?,
                    letter if letter.is_control() || directs_text(letter) => {
                        write!(f, "{}", letter.escape_default())?
                    }
                    letter => write!(f, "{letter}")?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

/// Invisible characters that change the position of others: writing directions, separators of lines and paragraphs.
fn directs_text(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::DisplayPath;
    use std::collections::BTreeSet;

    #[test]
    fn names_can_be_told_apart_and_do_nothing_to_a_terminal() {
        let shown = |name: &[u8]| DisplayPath::bytes(name).to_string();
        assert_eq!(shown("Grüße 1.txt".as_bytes()), "Grüße 1.txt");
        assert_eq!(shown(b"\x1b[31m\xff\n"), "\\u{1b}[31m\\xff\\n");
        assert_eq!(shown("\u{202e}txt.exe".as_bytes()), "\\u{202e}txt.exe");
        let names: [&[u8]; 6] =
            [b"a\nb", b"a\\nb", b"a\\\\nb", b"a\xfeb", b"a\xffb", "a\u{fffd}b".as_bytes()];
        assert_eq!(names.iter().map(|name| shown(name)).collect::<BTreeSet<_>>().len(), names.len());
    }
}
