//! Report of `gabion doctor`.

use super::{PathName, path_text};
use gabion_cluster::layout::{Layout, Target};
use gabion_cluster::mount::{Mount, System};
use gabion_cluster::probe::{Answer, FileKind};
use gabion_cluster::survey::{ChangeSource, Survey, Unknown};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// `gabion doctor`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "doctor")]
pub struct DoctorReport<'a> {
    #[serde(flatten)]
    path: PathName,
    system: System,
    mount: Option<MountReport>,
    file: Option<ExaminedFile>,
    properties: BTreeMap<&'static str, &'a str>,
    layout: Option<&'a Layout>,
    targets: Option<&'a [Target]>,
    changes: &'a [ChangeSource],
    unknown: &'a [Unknown],
}

/// A mount.
#[derive(Debug, Serialize)]
struct MountReport {
    point: String,
    kind: String,
    source: String,
}

/// The examined path as its file system knows it.
#[derive(Debug, Serialize)]
struct ExaminedFile {
    #[serde(flatten)]
    path: PathName,
    kind: FileKind,
    size: u64,
    allocated: u64,
    inode: u64,
}

impl<'a> DoctorReport<'a> {
    /// Of a survey of `path`.
    pub fn new(path: &Path, survey: &'a Survey) -> DoctorReport<'a> {
        let mount = |mount: &Mount| MountReport {
            point: super::system_path_text(&mount.point),
            kind: mount.kind.clone(),
            source: path_text(mount.source.as_bytes()),
        };
        let file = |found: &Answer| ExaminedFile {
            path: PathName::system(&found.path()),
            kind: found.kind,
            size: found.size,
            allocated: found.allocated,
            inode: found.inode,
        };
        DoctorReport {
            path: PathName::system(path),
            system: survey.system,
            mount: survey.mount.as_ref().map(mount),
            file: survey.found.as_ref().map(file),
            properties: survey.properties.iter().map(|(name, value)| (*name, value.as_str())).collect(),
            layout: survey.layout.as_ref(),
            targets: survey.targets.as_deref(),
            changes: &survey.changes,
            unknown: &survey.unknown,
        }
    }
}
