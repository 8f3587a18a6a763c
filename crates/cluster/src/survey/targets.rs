//! A file system whose files are located one after another, with the targets that it had when it was opened.

use super::{Options, Survey, SurveyError, systems};
use crate::layout::{Layout, Target};
use crate::mount::System;
use std::path::Path;

/// A parallel file system that tells where files lie.
#[derive(Debug, Clone)]
pub struct FileSystem {
    system: System,
    /// Number of its mount.
    mount: u64,
    targets: Vec<Target>,
    options: Options,
    is_sharded: bool,
}

/// Why files cannot be located.
#[derive(Debug, thiserror::Error)]
pub enum FileSystemError {
    /// There is no survey.
    #[error(transparent)]
    Survey(#[from] SurveyError),
    /// The file system does not tell, or in ways that are not used here yet.
    #[error("{0} does not tell where files lie, or it is not used here yet")]
    System(&'static str),
    /// The survey has no targets.
    #[error("the targets of {system} are unknown: {reason}")]
    Targets {
        /// Name of the file system.
        system: &'static str,
        /// Why.
        reason: String,
    },
}

impl FileSystem {
    /// The file system that holds `path`, which has to be absolute.
    ///
    /// # Errors
    /// See [`FileSystemError`].
    pub fn of(path: &Path, options: &Options) -> Result<FileSystem, FileSystemError> {
        let survey = Survey::of(path, options)?;
        let system = survey.system;
        if !matches!(system, System::MooseFs | System::GlusterFs) {
            return Err(FileSystemError::System(system.name()));
        }
        let reasons: Vec<&str> = survey.unknown.iter().map(|unknown| unknown.reason.as_str()).collect();
        let unknown = || FileSystemError::Targets { system: system.name(), reason: reasons.join("; ") };
        let mount = survey.mount.as_ref().ok_or_else(unknown)?.id;
        // Without the options of the volume it is not known whether it cuts files into shards.
        if system == System::GlusterFs && survey.is_sharded.is_none() {
            return Err(unknown());
        }
        let targets = survey.targets.clone().ok_or_else(unknown)?;
        let is_sharded = survey.is_sharded.unwrap_or(false);
        Ok(FileSystem { system, mount, targets, options: options.clone(), is_sharded })
    }

    /// Its targets, as they were when it was opened.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Which file system it is.
    pub fn system(&self) -> System {
        self.system
    }

    /// True if both are the same mount.
    pub fn is_same(&self, other: &FileSystem) -> bool {
        self.mount == other.mount
    }

    /// Layout of a regular file.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn layout(&self, path: &Path) -> Result<Layout, String> {
        match self.system {
            System::MooseFs => systems::moosefs_layout(path, &self.options),
            System::GlusterFs if self.is_sharded => Err("the volume cuts files into shards".to_owned()),
            System::GlusterFs => systems::glusterfs_layout(path, &self.targets, &self.options),
            other => Err(format!("{} is not used here yet", other.name())),
        }
    }
}
