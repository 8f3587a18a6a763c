//! Mount points below a tree: their content is on other file systems.

use crate::storage::plain::OWN;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Mount points below `root`, relative to it.
pub(super) fn below(root: &Path) -> io::Result<Vec<Vec<u8>>> {
    let root = std::fs::canonicalize(root)?;
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(parse(&table, root.as_os_str().as_bytes()))
}

/// The mount point is the fifth word of each line.
fn parse(table: &[u8], root: &[u8]) -> Vec<Vec<u8>> {
    let lines = table.split(|&byte| byte == b'\n');
    let points = lines.filter_map(|line| line.split(|&byte| byte == b' ').nth(4)).map(unescape);
    let mut found: Vec<Vec<u8>> = points.filter_map(|point| inside(&point, root)).collect();
    found.sort();
    found.dedup();
    found
}

fn inside(point: &[u8], root: &[u8]) -> Option<Vec<u8>> {
    let below = match root {
        b"/" => point.strip_prefix(b"/")?,
        root => point.strip_prefix(root)?.strip_prefix(b"/")?,
    };
    let ours = below.split(|&byte| byte == b'/').any(|name| name == OWN);
    (!below.is_empty() && !ours).then(|| below.to_vec())
}

/// Decodes octal escapes (`\040`) of blanks, line ends and backslashes.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = word;
    while let [first, others @ ..] = rest {
        match others {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if *first == b'\\' => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                plain.push(*first);
                rest = others;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn mounts_below_a_root_are_found_and_nothing_else() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 22 0:5 / /srv/data rw - tmpfs tmpfs rw\n\
            31 30 0:6 / /srv/data/with\\040blank\\134 rw shared:1 - tmpfs tmpfs rw\n\
            32 30 0:7 / /srv/data/a/b rw - xfs /dev/loop0 rw\n\
            33 30 0:7 / /srv/data2 rw - xfs /dev/loop0 rw\n\
            34 30 0:8 / /srv/data/.gabion rw - xfs /dev/loop1 rw\n\nnonsense\n";
        assert_eq!(parse(table, b"/srv/data"), [&b"a/b"[..], b"with blank\\"]);
        assert_eq!(parse(table, b"/srv/data2"), Vec::<Vec<u8>>::new());
        assert_eq!(parse(table, b"/").len(), 4);
    }
}
