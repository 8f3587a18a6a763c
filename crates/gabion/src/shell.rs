//! Commands for people to paste into a shell: paths as words, and the command that approves a held change-set.

use gabion_vault::guard::Digest;
use gabion_vault::vault::{Kind, Location, OWN, Vault};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as one word of a shell. Characters that cannot be typed or shown are escaped as bytes in `$'…'`, which
/// bash, zsh, ksh and POSIX (2024) know.
pub fn word(path: &Path) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/-_.,:+@%".contains(letter);
    let shown = |letter: char| plain(letter) || letter.is_ascii_graphic() || letter == ' ';
    match path.to_str() {
        Some(text) if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) => {
            text.to_owned()
        }
        Some(text) if text.chars().all(shown) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => {
            let mut word = "$'".to_owned();
            for &byte in path.as_os_str().as_bytes() {
                match byte {
                    b'\'' | b'\\' => word.extend(['\\', byte as char]),
                    b' '..=b'~' => word.push(byte as char),
                    // Three octal digits: a hexadecimal escape would swallow the digits after it.
                    _ => drop(write!(word, "\\{byte:03o}")),
                }
            }
            word + "'"
        }
    }
}

/// The command that approves a held change-set of one vault.
#[derive(Debug, Clone)]
pub struct ApproveCommand {
    before: String,
    after: String,
}

impl ApproveCommand {
    /// For a vault.
    pub fn of_vault(vault: &Vault) -> ApproveCommand {
        ApproveCommand::new(&vault.root, vault.repository.path(), vault.pool.is_some())
    }

    /// For the vault of a location.
    pub fn of_location(location: &Location) -> ApproveCommand {
        ApproveCommand::new(&location.root, &location.repository, location.storage == Kind::Pool)
    }

    /// The repository is named unless it is within the tree. A pool is named by a target.
    fn new(root: &Path, repository: &Path, is_pool: bool) -> ApproveCommand {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut after = format!(" {}", word(&absolute(root)));
        if !is_pool && absolute(repository) != absolute(&root.join(OWN)) {
            after += &format!(" --repository {}", word(&absolute(repository)));
        }
        ApproveCommand { before: "gabion approve ".to_owned(), after }
    }

    /// For a source of a daemon.
    pub fn of_source(name: &str) -> ApproveCommand {
        let before = format!("gabion daemon approve {} ", word(Path::new(name)));
        ApproveCommand { before, after: String::new() }
    }

    /// The command.
    pub fn text(&self, digest: &Digest) -> String {
        format!("{}{digest}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::word;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// The shell reads each word as the path that it was made of.
    #[test]
    fn a_path_is_one_word_of_a_shell() {
        let paths: [&[u8]; 9] = [
            b"/srv/photos",
            b"/srv/my photos; rm -rf",
            b"/srv/it's",
            b"/srv/$(x)`y`\\z!",
            b"-rf",
            b"",
            b"/srv/a\nb7",
            b"/srv/\xff'\\$x",
            "/srv/\u{202e}fotos\u{e4}".as_bytes(),
        ];
        for path in paths {
            let word = word(Path::new(OsStr::from_bytes(path)));
            assert!(!word.contains(['\n', '\u{202e}']), "{word}");
            let command = format!("printf %s {word}");
            let output = std::process::Command::new("bash").args(["-c", &command]).output().unwrap();
            assert_eq!(output.stdout, path, "{word}");
        }
        assert_eq!(word(Path::new("/srv/photos")), "/srv/photos");
    }
}
