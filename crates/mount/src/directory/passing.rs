//! Reads that the kernel does by itself, from the file of the source (FUSE passthrough).
//!
//! The kernel has rules for a file that someone reads that way: everyone who does has the same backing file, and nobody has pages
//! of the mount for it meanwhile. So each open is one of these:
//!
//! 1. *Passing*: for reading only, as long as nobody has pages.
//! 2. *Cached*: as ever, as long as nobody passes.
//! 3. *Direct*: past the pages of the mount, for those who only write.
//! 4. *Beside*: direct while someone passes. The kernel wants the backing file from them too, and does not use it.
//!
//! Writes always come to us, and reach the file that passing readers read: they see them at once.

use fuser::BackingId;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// How a file is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Passing,
    Cached,
    Direct,
    Beside,
}

/// Who has which file open how.
#[derive(Debug, Default)]
pub(super) struct Passing {
    files: Mutex<HashMap<u64, Uses>>,
}

#[derive(Debug, Default)]
struct Uses {
    cached: usize,
    /// Those who pass, and those beside them.
    passing: usize,
    /// What all of these have.
    backing: Option<Arc<BackingId>>,
}

impl Passing {
    /// Chooses how a file is opened: as `preferred`, or otherwise if others have it open in a way that this does not go with. `make`
    /// tells the kernel of the file; if that fails, it is read as ever.
    pub(super) fn open(
        &self,
        number: u64,
        preferred: Way,
        make: impl FnOnce() -> io::Result<BackingId>,
    ) -> (Way, Option<Arc<BackingId>>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let uses = files.entry(number).or_default();
        let backing = match preferred {
            Way::Passing if uses.cached == 0 => match &uses.backing {
                Some(backing) => Some(Arc::clone(backing)),
                None => make().ok().map(Arc::new),
            },
            // None unless someone passes.
            _ => uses.backing.clone(),
        };
        let way = match preferred {
            Way::Passing if backing.is_some() => Way::Passing,
            _ if backing.is_some() => Way::Beside,
            Way::Passing => Way::Cached,
            way => way,
        };
        match way {
            Way::Passing | Way::Beside => {
                uses.passing += 1;
                uses.backing.clone_from(&backing);
            }
            Way::Cached => uses.cached += 1,
            Way::Direct => {}
        }
        if uses.cached + uses.passing == 0 {
            files.remove(&number);
        }
        (way, backing)
    }

    /// A file is closed that was open this way.
    pub(super) fn close(&self, number: u64, way: Way) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(uses) = files.get_mut(&number) else { return };
        match way {
            Way::Passing | Way::Beside => uses.passing -= 1,
            Way::Cached => uses.cached -= 1,
            Way::Direct => return,
        }
        if uses.passing == 0 {
            uses.backing = None;
        }
        if uses.cached + uses.passing == 0 {
            files.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Passing, Way};

    /// Without a kernel there are no backing files: everything is as ever then, and nothing is left over.
    #[test]
    fn what_cannot_pass_is_cached() {
        let passing = Passing::default();
        let refuse = || Err(std::io::ErrorKind::Unsupported.into());
        for preferred in [Way::Passing, Way::Cached] {
            let (way, backing) = passing.open(7, preferred, refuse);
            assert!(way == Way::Cached && backing.is_none());
        }
        assert_eq!(passing.open(7, Way::Direct, refuse).0, Way::Direct);
        passing.close(7, Way::Direct);
        passing.close(7, Way::Cached);
        passing.close(7, Way::Cached);
        assert!(passing.files.lock().unwrap().is_empty());
    }
}
