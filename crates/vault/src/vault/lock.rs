//! Who is at work.

use crate::tree::Tree;
use crate::world::{Clock, host, moment, process};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

const FILE: &[u8] = b"lock";

/// The vault is ours until this is dropped; the operating system takes it back from the dead.
#[derive(Debug)]
pub struct Lock {
    _file: File,
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
    /// The operating system refuses.
    #[error("the vault cannot be locked: {0}")]
    Io(#[from] io::Error),
}

impl Lock {
    pub(super) fn take(repository: &Tree, command: &str, clock: &Clock) -> Result<Lock, LockError> {
        let mut file = match repository.create(FILE, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => repository.write(FILE)?,
            made => made?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                (&mut file).take(1024).read_to_string(&mut holder)?;
                let holder = if holder.is_empty() { "another process".to_owned() } else { holder };
                return Err(LockError::Held { holder: holder.trim_end().to_owned() });
            }
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let text = format!(
            "`gabion {command}`, process {} on {}, since {}\n",
            process(),
            host(),
            moment(clock.now())
        );
        file.set_len(0)?;
        file.write_all_at(text.as_bytes(), 0)?;
        Ok(Lock { _file: file })
    }
}
