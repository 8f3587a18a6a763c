//! Parallel file systems as their own tools and attributes describe them: which target holds which bytes of a file,
//! which targets answer, and which sources of changes there are.
//!
//! Everything here only reads. A file system whose servers are gone may block a reader for ever, and not even SIGKILL
//! ends a process that waits for FUSE. So no function of this crate touches the examined file system in the caller's
//! process: foreign tools and the [`probe`] run as child processes with a deadline and bounded output
//! ([`tool`]), and a child that does not end is abandoned.
//!
//! The output of foreign tools is untrusted. Decoders take any bytes, and what they cannot read becomes
//! [`Unknown`](survey::Unknown) with a reason, never a healthy state.

#![forbid(unsafe_code)]

pub mod beegfs;
pub mod cephfs;
pub mod glusterfs;
pub mod gpfs;
#[cfg(any(test, feature = "testing"))]
pub mod hostile;
pub mod layout;
pub mod lines;
pub mod lustre;
pub mod moosefs;
pub mod mount;
pub mod probe;
pub mod survey;
pub mod tool;
pub mod xml;
