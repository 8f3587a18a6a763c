//! Lock file of a vault: one process at a time may change the repository. Holds the owner's command, process, host and
//! time, so that a refusal can name the owner.

use crate::local_time::local;
use crate::tree::{Tree, absent_is_none};
use crate::world::{Clock, host, process};
use gabion_platform::lock::Lockable;
use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Attempts, and the pause between them, to read the name of an owner that has just taken the lock and not written it
/// yet.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Name of an owner that has not written its name yet.
const NOBODY: &str = "another process";

const FILE: &[u8] = b"lock";

/// Lock file of the watch.
const WATCH: &[u8] = b"watch";

/// Mark of a running mount, for the changelog of one host; the mount holds its lock.
pub const MOUNTED: &str = "mounted";

/// The running mount that has its mark in a repository, if there is one.
pub(super) fn mount_of(repository: &Tree) -> io::Result<Option<String>> {
    let Some(file) = absent_is_none(repository.read(MOUNTED.as_bytes()))? else { return Ok(None) };
    let file = Lockable::from(file);
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
        Err(TryLockError::WouldBlock) => Ok(Some(format!("a mount, {}", holder(&file)?))),
    }
}

/// Holds a lock until it is dropped. The operating system releases the locks of dead processes.
#[derive(Debug)]
pub struct Lock {
    /// None on a read-only medium, where nobody can write.
    file: Option<Lockable>,
}

/// Error of taking a lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the vault.
    #[error("the vault is in use by {holder}; wait for it, or use --wait")]
    Held {
        /// Owner, time and command.
        holder: String,
    },
    /// Another process watches the tree.
    #[error("this tree is watched already, by {holder}")]
    Watched {
        /// Owner and time.
        holder: String,
    },
    /// The operating system returned an error.
    #[error("the vault cannot be locked: {0}")]
    Io(#[from] io::Error),
}

impl Lock {
    pub(super) fn take(repository: &Tree, command: &str, clock: &Clock) -> Result<Lock, LockError> {
        Lock::take_file(repository, FILE, command, clock)
    }

    /// Locks a read-only repository against writers, without recording an owner.
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
            local(clock.now())
        );
        file.set_len(0)?;
        file.write_all_at(text.as_bytes(), 0)?;
        Ok(Lock { file: Some(file) })
    }
}

/// Reads the owner from a lock file.
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
        // Removes our name. If that fails, the next owner overwrites it.
        let _ = self.file.as_ref().map(|file| file.set_len(0));
    }
}
