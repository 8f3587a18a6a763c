//! Damage of one file, as an examination finds it.

use crate::catalogue::{Piece, Problem, State};
use crate::examine::{Findings, ProtectedFile, StripeFault};
use crate::tree::Stat;
use crate::world::Timestamp;
use serde::{Deserialize, Serialize};

/// Damage report of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DamageReport {
    /// Path of the file.
    pub path: Vec<u8>,
    /// Severity.
    pub state: State,
    /// Byte ranges of the damage.
    pub problems: Vec<Problem>,
    /// The file was modified since it was protected: the difference may be intended.
    pub changed: bool,
    /// Additional remarks.
    pub notes: Vec<String>,
    /// Version of the file that was examined; none if there was no file.
    pub version: Option<ExaminedVersion>,
    /// A repair of the file was interrupted and has to be finished.
    pub unfinished: bool,
}

impl DamageReport {
    /// True if there was no file to examine.
    pub fn is_missing(&self) -> bool {
        self.changed && self.version.is_none()
    }
}

/// Size, mtime and inode of a file that was examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExaminedVersion(pub u64, #[serde(with = "crate::nanoseconds")] pub Timestamp, pub u64);

/// The version to compare with later.
pub(crate) fn version_of(stat: Option<&Stat>) -> Option<ExaminedVersion> {
    stat.map(|stat| ExaminedVersion(stat.size, stat.mtime, stat.inode))
}

/// Number of further blocks that the worst stripe may lose. With an unusable redundancy file it is at least one below
/// the code's number, so that the redundancy is restored when the file is protected next.
pub(crate) fn remaining_redundancy(protected: &ProtectedFile, findings: &Findings) -> u32 {
    let held = match protected.unusable.is_empty() {
        true => protected.columns(),
        false => protected.columns().min(protected.header.code.m().saturating_sub(1)),
    };
    let of = |fault: &StripeFault| held.saturating_sub(fault.redundancy.len() + fault.data.len());
    findings.faults.iter().map(of).min().unwrap_or(held) as u32
}

/// Damage report of a file; none if it is intact.
pub(crate) fn damage_report(
    path: &[u8],
    protected: &ProtectedFile,
    findings: &Findings,
) -> Option<DamageReport> {
    let unusable = protected.unusable.iter().map(|(path, why)| format!("{}: {why}", path.display()));
    let mut notes: Vec<String> = unusable.collect();
    if !findings.missing.is_empty() {
        notes.push(format!(
            "{} of {} redundancy columns are missing",
            findings.missing.len(),
            protected.header.code.m()
        ));
    }
    let stale = findings.faults.iter().filter(|fault| fault.stale).count();
    if stale > 0 {
        notes.push(format!(
            "the redundancy of {stale} of its stripes is older than its header; its data is right"
        ));
    }
    if findings.doubtful {
        let why = "some of its redundancy is older than its header, and which cannot be told: its data may be right and is left alone";
        notes.push(why.to_owned());
    }
    let longer = protected.stat.is_some_and(|now| now.size > protected.header.generation.size);
    if longer {
        notes.push(format!(
            "it is longer than the {} bytes that were protected",
            protected.header.generation.size
        ));
    }
    if findings.is_clean() && notes.is_empty() {
        return None;
    }
    let only_missing =
        findings.faults.is_empty() && findings.headers.is_empty() && !findings.doubtful && !longer;
    // A modified file has its owner's new content. Only the version before it cannot be restored.
    let changed = protected.is_changed();
    let state = match findings.is_lost() {
        true if !changed => State::Lost,
        false if only_missing => State::Degraded,
        _ => State::Damaged,
    };
    let mut problems = findings.problems(protected);
    for problem in problems.iter_mut().filter(|problem| changed && problem.piece == Piece::Lost) {
        problem.piece = Piece::Data;
    }
    let version = version_of(protected.stat.as_ref());
    Some(DamageReport { path: path.to_vec(), state, problems, changed, notes, version, unfinished: false })
}
