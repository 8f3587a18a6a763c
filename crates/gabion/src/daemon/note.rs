//! Note file in a repository: names the daemon that serves it, for other commands.

use gabion_vault::private;
use gabion_vault::tree::Tree;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "daemon";

/// Content of the note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Name of the source in the daemon.
    pub source: String,
    /// Process id of the daemon.
    pub process: u32,
    /// Host it runs on.
    pub host: String,
}

/// Writes the note.
///
/// # Errors
/// The file cannot be written.
pub fn write(repository: &Path, source: &str, socket: &Path) -> io::Result<()> {
    let note = Note {
        socket: socket.to_owned(),
        source: source.to_owned(),
        process: gabion_vault::world::process(),
        host: gabion_vault::world::host(),
    };
    private::replace(repository, FILE, &serde_json::to_vec(&note)?)
}

/// Removes the note if it is this process's. A note that stays behind is harmless: its socket does not answer.
pub fn remove(repository: &Path) {
    if find(repository).is_some_and(|note| note.process == gabion_vault::world::process()) {
        let _ = Tree::open_owned(repository).and_then(|repository| repository.remove(FILE.as_bytes()));
    }
}

/// The note of a repository, if it is of this host. The daemon may have ended since.
pub fn find(repository: &Path) -> Option<Note> {
    let note: Note = serde_json::from_str(&private::read(repository, FILE).ok()??).ok()?;
    (note.host == gabion_vault::world::host()).then_some(note)
}

#[cfg(test)]
mod tests {
    use super::{FILE, find, remove, write};
    use std::path::Path;

    #[test]
    fn a_note_is_found_until_it_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(find(dir.path()), None);
        write(dir.path(), "photos", Path::new("/run/x.sock")).unwrap();
        let note = find(dir.path()).unwrap();
        assert_eq!((note.source.as_str(), note.process), ("photos", std::process::id()));
        remove(dir.path());
        assert_eq!(find(dir.path()), None);
        // A note of another process is kept; an unreadable one is ignored.
        let other = serde_json::json!({ "socket": "/x", "source": "s", "process": 1, "host": note.host });
        std::fs::write(dir.path().join(FILE), other.to_string()).unwrap();
        remove(dir.path());
        assert!(find(dir.path()).is_some());
        std::fs::write(dir.path().join(FILE), b"\xff{").unwrap();
        assert_eq!(find(dir.path()), None);
    }
}
