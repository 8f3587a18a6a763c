//! Who is at work.

use crate::tree::{Tree, absent_is_none};
use crate::world::{Clock, host, moment, process};
use gabion_platform::lock::Lockable;
use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// How often, and after which pauses, to look for the name of someone who has just taken the vault and not written it yet.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Who has a lock with no name in it yet.
const NOBODY: &str = "another process";

const FILE: &[u8] = b"lock";

/// Held for as long as someone watches.
const WATCH: &[u8] = b"watch";

/// The vault is ours until this is dropped; the operating system takes it back from the dead.
#[derive(Debug)]
pub struct Lock {
    /// Nothing where none can be made: nobody writes to a medium that is read-only.
    file: Option<Lockable>,
}

/// Why the vault is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Someone has it.
    #[error("the vault is in use by {holder}; wait for it, or use --wait")]
    Held {
        /// Who, since when, doing what.
        holder: String,
    },
    /// Someone watches the tree already.
    #[error("this tree is watched already, by {holder}")]
    Watched {
        /// Who, since when.
        holder: String,
    },
    /// The operating system refuses.
    #[error("the vault cannot be locked: {0}")]
    Io(#[from] io::Error),
}

impl Lock {
    pub(super) fn take(repository: &Tree, command: &str, clock: &Clock) -> Result<Lock, LockError> {
        Lock::take_file(repository, FILE, command, clock)
    }

    /// Keeps those out who write, without a name of our own: the repository is read-only for us.
    pub(super) fn take_to_read(repository: &Tree) -> Result<Lock, LockError> {
        let Some(file) = absent_is_none(repository.read(FILE))? else { return Ok(Lock { file: None }) };
        let file = Lockable::from(file);
        match file.try_lock_shared() {
            Ok(()) => Ok(Lock { file: Some(file) }),
            Err(TryLockError::Error(error)) => Err(error.into()),
            Err(TryLockError::WouldBlock) => Err(LockError::Held { holder: holder(&file)? }),
        }
    }

    pub(super) fn take_to_watch(repository: &Tree, command: &str, clock: &Clock) -> Result<Lock, LockError> {
        Lock::take_file(repository, WATCH, command, clock).map_err(|error| match error {
            LockError::Held { holder } => LockError::Watched { holder },
            error => error,
        })
    }

    fn take_file(repository: &Tree, name: &[u8], command: &str, clock: &Clock) -> Result<Lock, LockError> {
        let file = Lockable::from(repository.write_or_create(name, 0o600)?);
        for look in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            match holder(&file)? {
                holder if holder == NOBODY && look < LOOKS => std::thread::sleep(PAUSE),
                holder => return Err(LockError::Held { holder }),
            }
        }
        let text = format!(
            "`gabion {command}`, process {} on {}, since {}\n",
            process(),
            host(),
            moment(clock.now())
        );
        file.set_len(0)?;
        file.write_all_at(text.as_bytes(), 0)?;
        Ok(Lock { file: Some(file) })
    }
}

/// Who wrote a name into a lock.
fn holder(file: &Lockable) -> io::Result<String> {
    let mut holder = [0; 1024];
    let got = file.read_at(&mut holder, 0)?;
    Ok(match String::from_utf8_lossy(&holder[..got]).trim_end() {
        "" => NOBODY.to_owned(),
        holder => holder.to_owned(),
    })
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Whoever is next is not to be taken for us; if that fails, it writes its own name over ours anyway.
        let _ = self.file.as_ref().map(|file| file.set_len(0));
    }
}
