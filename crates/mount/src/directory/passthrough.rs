//! FUSE passthrough: read-only files that the kernel reads from the source without the mount.
//!
//! The kernel requires that all passthrough opens of a file share one backing file, and that no page cache of the mount
//! exists for it meanwhile. So each open has one of these modes:
//!
//! 1. *Passthrough*: read-only, while no open is cached.
//! 2. *Cached*: the usual mode, while no open passes through.
//! 3. *Direct*: past the page cache, for write-only opens.
//! 4. *Direct beside*: direct while another open passes through. The kernel requires the backing file here too, and
//!    does not use it.
//!
//! Writes always go through the mount to the source file, so passthrough readers see them at once.

use fuser::BackingId;
use gabion_platform::sync;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

/// Mode of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenMode {
    Passthrough,
    Cached,
    Direct,
    DirectBeside,
}

/// Modes of all open files, by inode number.
#[derive(Debug, Default)]
pub(super) struct Passthrough {
    files: Mutex<HashMap<u64, Uses>>,
}

#[derive(Debug, Default)]
struct Uses {
    cached: usize,
    /// Opens in the modes passthrough and direct beside.
    passthrough: usize,
    /// Their shared backing file.
    backing: Option<Arc<BackingId>>,
}

impl Passthrough {
    /// Chooses the mode of a new open: `preferred`, or another one if the other opens of the file exclude it. `make`
    /// registers the backing file with the kernel; if that fails, the file is opened cached.
    pub(super) fn open(
        &self,
        number: u64,
        preferred: OpenMode,
        make: impl FnOnce() -> io::Result<BackingId>,
    ) -> (OpenMode, Option<Arc<BackingId>>) {
        let mut files = sync::lock(&self.files);
        let uses = files.entry(number).or_default();
        let backing = match preferred {
            OpenMode::Passthrough if uses.cached == 0 => match &uses.backing {
                Some(backing) => Some(Arc::clone(backing)),
                None => make().ok().map(Arc::new),
            },
            // `None` unless another open passes through.
            _ => uses.backing.clone(),
        };
        let mode = match preferred {
            OpenMode::Passthrough if backing.is_some() => OpenMode::Passthrough,
            _ if backing.is_some() => OpenMode::DirectBeside,
            OpenMode::Passthrough => OpenMode::Cached,
            mode => mode,
        };
        match mode {
            OpenMode::Passthrough | OpenMode::DirectBeside => {
                uses.passthrough += 1;
                uses.backing.clone_from(&backing);
            }
            OpenMode::Cached => uses.cached += 1,
            OpenMode::Direct => {}
        }
        if uses.cached + uses.passthrough == 0 {
            files.remove(&number);
        }
        (mode, backing)
    }

    /// Notes that an open file was closed.
    pub(super) fn close(&self, number: u64, mode: OpenMode) {
        let mut files = sync::lock(&self.files);
        let Some(uses) = files.get_mut(&number) else { return };
        match mode {
            OpenMode::Passthrough | OpenMode::DirectBeside => uses.passthrough -= 1,
            OpenMode::Cached => uses.cached -= 1,
            OpenMode::Direct => return,
        }
        if uses.passthrough == 0 {
            uses.backing = None;
        }
        if uses.cached + uses.passthrough == 0 {
            files.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OpenMode, Passthrough};

    /// Without backing files all opens are cached or direct, and closing them leaves nothing behind.
    #[test]
    fn files_without_backing_are_cached() {
        let passthrough = Passthrough::default();
        let refuse = || Err(std::io::ErrorKind::Unsupported.into());
        for preferred in [OpenMode::Passthrough, OpenMode::Cached] {
            let (mode, backing) = passthrough.open(7, preferred, refuse);
            assert!(mode == OpenMode::Cached && backing.is_none());
        }
        assert_eq!(passthrough.open(7, OpenMode::Direct, refuse).0, OpenMode::Direct);
        passthrough.close(7, OpenMode::Direct);
        passthrough.close(7, OpenMode::Cached);
        passthrough.close(7, OpenMode::Cached);
        assert!(passthrough.files.lock().unwrap().is_empty());
    }
}
