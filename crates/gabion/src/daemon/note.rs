//! A small file in a repository that tells other commands which daemon sees to it.

use gabion_vault::private;
use gabion_vault::tree::Tree;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "daemon";

/// Which daemon, and what it calls the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The source.
    pub source: String,
    /// The daemon's process.
    pub process: u32,
    /// The machine it runs on.
    pub host: String,
}

/// Leaves a note.
///
/// # Errors
/// What the operating system says.
pub fn leave(repository: &Path, source: &str, socket: &Path) -> io::Result<()> {
    let note = Note {
        socket: socket.to_owned(),
        source: source.to_owned(),
        process: gabion_vault::world::process(),
        host: gabion_vault::world::host(),
    };
    private::replace(repository, FILE, &serde_json::to_vec(&note)?)
}

/// Takes ours away. One that stays behind leads nowhere, which is noticed.
pub fn take_away(repository: &Path) {
    if find(repository).is_some_and(|note| note.process == gabion_vault::world::process()) {
        let _ = Tree::open_owned(repository).and_then(|repository| repository.remove(FILE.as_bytes()));
    }
}

/// The note of a repository, if there is one of this machine. Whether the daemon lives has to be asked.
pub fn find(repository: &Path) -> Option<Note> {
    let note: Note = serde_json::from_str(&private::read(repository, FILE).ok()??).ok()?;
    (note.host == gabion_vault::world::host()).then_some(note)
}

#[cfg(test)]
mod tests {
    use super::{FILE, find, leave, take_away};
    use std::path::Path;

    #[test]
    fn a_note_is_found_until_it_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(find(dir.path()), None);
        leave(dir.path(), "photos", Path::new("/run/x.sock")).unwrap();
        let note = find(dir.path()).unwrap();
        assert_eq!((note.source.as_str(), note.process), ("photos", std::process::id()));
        take_away(dir.path());
        assert_eq!(find(dir.path()), None);
        // That of another one is left alone, and what is none is no note.
        let other = serde_json::json!({ "socket": "/x", "source": "s", "process": 1, "host": note.host });
        std::fs::write(dir.path().join(FILE), other.to_string()).unwrap();
        take_away(dir.path());
        assert!(find(dir.path()).is_some());
        std::fs::write(dir.path().join(FILE), b"\xff{").unwrap();
        assert_eq!(find(dir.path()), None);
    }
}
