//! Damage of one file, as an examination finds it.

use crate::catalogue::{Piece, Problem, State};
use crate::examine::{Findings, StripeFault, Subject};

/// What is wrong with one file.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// Which one.
    pub path: Vec<u8>,
    /// How bad it is.
    pub state: State,
    /// Where, in bytes.
    pub problems: Vec<Problem>,
    /// The file system says that it was written since it was protected: this may be someone's work.
    pub changed: bool,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// How many more blocks of its worst stripe may be lost. With a redundancy file that cannot be used it is at least one less
/// than it should be, so that redundancy is put in order when the file is protected next.
pub(crate) fn margin(subject: &Subject, findings: &Findings) -> u32 {
    let held = match subject.unusable.is_empty() {
        true => subject.columns(),
        false => subject.columns().min(subject.header.code.m().saturating_sub(1)),
    };
    let of = |fault: &StripeFault| held.saturating_sub(fault.redundancy.len() + fault.data.len());
    findings.faults.iter().map(of).min().unwrap_or(held) as u32
}

/// What is wrong with a file; nothing if all is right.
pub(crate) fn trouble(path: &[u8], subject: &Subject, findings: &Findings) -> Option<Trouble> {
    let unusable = subject.unusable.iter().map(|(path, why)| format!("{}: {why}", path.display()));
    let mut notes: Vec<String> = unusable.collect();
    if !findings.missing.is_empty() {
        notes.push(format!(
            "{} of {} redundancy columns are missing",
            findings.missing.len(),
            subject.header.code.m()
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
    let longer = subject.stat.is_some_and(|now| now.size > subject.header.generation.size);
    if longer {
        notes.push(format!(
            "it is longer than the {} bytes that were protected",
            subject.header.generation.size
        ));
    }
    if findings.is_clean() && notes.is_empty() {
        return None;
    }
    let only_missing =
        findings.faults.is_empty() && findings.headers.is_empty() && !findings.doubtful && !longer;
    // A file that was written since it was protected has its owner's new content. What cannot be brought back is the version before.
    let changed = subject.is_changed();
    let state = match findings.is_lost() {
        true if !changed => State::Lost,
        false if only_missing => State::Degraded,
        _ => State::Damaged,
    };
    let mut problems = findings.problems(subject);
    for problem in problems.iter_mut().filter(|problem| changed && problem.piece == Piece::Lost) {
        problem.piece = Piece::Data;
    }
    Some(Trouble { path: path.to_vec(), state, problems, changed, notes })
}
