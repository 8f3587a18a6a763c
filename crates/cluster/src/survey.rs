//! Survey of the file system that holds a path: kind, layout, targets, sources of changes, and what is not known.

mod systems;
mod targets;

pub use targets::{FileSystem, FileSystemError};

use crate::layout::{Layout, State, Target};
use crate::mount::{self, Mount, System};
use crate::probe::{self, Answer, FileKind, Prober};
use crate::tool::{self, Limits};
use serde::Serialize;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Objects of a file that are asked for one by one: each costs a run of a tool.
const MAX_OBJECTS: u64 = 16;

/// How to survey.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program that looks at the path.
    pub prober: Prober,
    /// Limits of each program.
    pub limits: Limits,
    /// Directories in which the tools of file systems are looked for before `PATH`.
    pub tools: Vec<PathBuf>,
}

/// What is known about a path and its file system.
#[derive(Debug, Clone)]
pub struct Survey {
    /// File system.
    pub system: System,
    /// Mount that holds the path; none if it is not known.
    pub mount: Option<Mount>,
    /// The path itself; none if it did not answer.
    pub found: Option<Answer>,
    /// Properties in the words of the file system, with their names.
    pub properties: Vec<(&'static str, String)>,
    /// Layout, of a regular file only; none if it is not known.
    pub layout: Option<Layout>,
    /// All targets; none if they are not known.
    pub targets: Option<Vec<Target>>,
    /// Sources of changes.
    pub changes: Vec<ChangeSource>,
    /// Whether the file system cuts files into shards; none if that is not known, or cannot be.
    pub is_sharded: Option<bool>,
    /// What could not be determined.
    pub unknown: Vec<Unknown>,
}

/// A source of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeSource {
    /// Name.
    pub name: &'static str,
    /// Whether it can be used; none if that is not known.
    pub available: Option<bool>,
    /// What it tells, or what is missing.
    pub detail: String,
}

/// Something that could not be determined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// What.
    pub subject: &'static str,
    /// Why.
    pub reason: String,
}

/// Why there is no survey.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The mounts of this process cannot be read.
    #[error("/proc/self/mountinfo: {0}")]
    Mounts(io::Error),
    /// The path does not exist or may not be looked at.
    #[error(transparent)]
    Path(probe::ProbeError),
    /// Only absolute paths have a mount that can be told without looking.
    #[error("{0} is not an absolute path")]
    Relative(PathBuf),
}

impl Survey {
    /// Surveys a path, which has to be absolute.
    ///
    /// # Errors
    /// See [`SurveyError`]. A file system that does not answer is no error, but unknown.
    pub fn of(path: &Path, options: &Options) -> Result<Survey, SurveyError> {
        Survey::among(&mount::all().map_err(SurveyError::Mounts)?, path, options)
    }

    /// As [`of`](Survey::of), with these mounts.
    ///
    /// # Errors
    /// As [`of`](Survey::of).
    pub fn among(mounts: &[Mount], path: &Path, options: &Options) -> Result<Survey, SurveyError> {
        if !path.is_absolute() {
            return Err(SurveyError::Relative(path.to_owned()));
        }
        let mut survey = Survey {
            system: System::Plain,
            mount: None,
            found: None,
            properties: Vec::new(),
            layout: None,
            targets: None,
            changes: Vec::new(),
            is_sharded: None,
            unknown: Vec::new(),
        };
        match probe::ask(&options.prober, path, &[], options.limits) {
            Ok(answer) => {
                let by_number = mounts.iter().find(|mount| Some(mount.id) == answer.mount);
                survey.mount = by_number.or_else(|| mount::by_text(mounts, &answer.path())).cloned();
                survey.found = Some(answer);
            }
            Err(error) if error.is_of_path() => return Err(SurveyError::Path(error)),
            Err(error) => {
                survey.mount = mount::by_text(mounts, path).cloned();
                survey.note("path", format!("{error}; its mount is taken from the text of the path"));
            }
        }
        match &survey.mount {
            Some(mount) => survey.system = mount.system(),
            None => survey.note("mount", "the path is on no mount of this process".to_owned()),
        }
        systems::examine(&mut survey, options);
        survey.check_state();
        Ok(survey)
    }

    /// True if something is unknown, or not in order: the caller must not take the file system for healthy.
    pub fn needs_attention(&self) -> bool {
        !self.unknown.is_empty() || !self.offline_targets().is_empty()
    }

    /// Targets that are known not to serve everything.
    pub fn offline_targets(&self) -> Vec<&Target> {
        let targets = self.targets.iter().flatten();
        targets.filter(|target| matches!(target.state, State::Offline | State::Restricted)).collect()
    }

    fn note(&mut self, subject: &'static str, reason: String) {
        self.unknown.push(Unknown { subject, reason });
    }

    /// Keeps a result, or why there is none.
    fn keep<T>(&mut self, subject: &'static str, result: Result<T, String>) -> Option<T> {
        result.map_err(|reason| self.note(subject, reason)).ok()
    }

    /// The path as its file system knows it.
    fn path(&self) -> Option<PathBuf> {
        self.found.as_ref().map(Answer::path)
    }

    fn kind(&self) -> Option<FileKind> {
        self.found.as_ref().map(|found| found.kind)
    }

    /// Names everything in layout and targets that is not known.
    fn check_state(&mut self) {
        if let (Some(layout), Some(found)) = (&self.layout, &self.found) {
            let ((placements, components), uncovered) =
                (layout.unplaced(found.size), layout.uncovered(found.size));
            if placements > 0 {
                self.note("layout", format!("the targets of {placements} objects are not known"));
            }
            if components > 0 {
                self.note(
                    "layout",
                    format!("{components} ranges of the file are on no target that is known"),
                );
            }
            if uncovered > 0 {
                self.note(
                    "layout",
                    format!("{uncovered} bytes are allocated nowhere: holes, or not written back yet"),
                );
            }
        }
        let unclear = self.targets.iter().flatten().filter(|target| target.state == State::Unknown);
        let names: Vec<&str> = unclear.map(|target| target.name.as_str()).collect();
        if !names.is_empty() {
            let reason = format!("the file system does not tell the state of {}", names.join(", "));
            self.note("targets", reason);
        }
        let (Some(layout), Some(targets)) = (&self.layout, &self.targets) else { return };
        let known = |name: &&str| !targets.iter().any(|target| target.name == *name);
        let strange: Vec<&str> = layout.targets().into_iter().filter(known).collect();
        if !strange.is_empty() {
            let reason = format!("{} of the layout are not in the list of targets", strange.join(", "));
            self.note("targets", reason);
        }
    }
}

impl Options {
    /// Runs a tool that prints text.
    fn text(&self, program: &str, arguments: &[&OsStr]) -> Result<String, String> {
        let output = self.bytes(program, arguments)?;
        String::from_utf8(output).map_err(|_| format!("{program} printed something that is no text"))
    }

    fn bytes(&self, program: &str, arguments: &[&OsStr]) -> Result<Vec<u8>, String> {
        // Directories of this system, not of the examined one.
        let found = self.tools.iter().map(|directory| directory.join(program)).find(|path| path.is_file());
        let mut command = Command::new(found.unwrap_or_else(|| program.into()));
        tool::run(command.args(arguments), self.limits).map_err(|error| error.to_string())
    }
}

/// A path for a tool that prints it again among its answers. One that could pass for a part of the answer is refused.
fn printable(path: &Path) -> Result<&OsStr, String> {
    let text = path.as_os_str();
    let ambiguous = text.as_bytes().iter().any(|byte| byte.is_ascii_control() || matches!(byte, b'<' | b'>'));
    if ambiguous { Err("the path has control characters or angle brackets".to_owned()) } else { Ok(text) }
}
