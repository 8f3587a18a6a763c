//! One function per file system: its tools and attributes.

use super::{ChangeSource, MAX_OBJECTS, Options, Survey, printable};
use crate::layout::{Layout, Target};
use crate::mount::System;
use crate::probe::{self, Answer, FileKind};
use crate::{beegfs, cephfs, glusterfs, gpfs, lustre, moosefs};
use std::ffi::OsStr;
use std::path::Path;

/// Where a metalogger of MooseFS keeps the changelog of the master.
const METALOGGER: &str = "/var/lib/mfs/changelog_ml.0.mfs";

pub(super) fn examine(survey: &mut Survey, options: &Options) {
    match survey.system {
        System::MooseFs => moosefs(survey, options),
        System::GlusterFs => glusterfs(survey, options),
        System::CephFs => cephfs(survey, options),
        System::Lustre => lustre(survey, options),
        System::BeeGfs => beegfs(survey, options),
        System::Gpfs => gpfs(survey, options),
        System::Plain => plain(survey),
    }
    let detail = match survey.system {
        System::Plain => "changes made through this kernel",
        _ => "changes made through this host only",
    };
    survey.changes.push(ChangeSource { name: "fanotify", available: Some(true), detail: detail.to_owned() });
}

/// Asks for attributes of the path in a process of its own. None if the path did not answer before.
fn attributes(survey: &Survey, names: &[&str], options: &Options) -> Option<Result<Answer, String>> {
    let path = survey.path()?;
    Some(probe::ask(&options.prober, &path, names, options.limits).map_err(|error| error.to_string()))
}

/// Runs a tool on the path, if that is a regular file that answered.
fn on_file<T>(survey: &Survey, ask: impl FnOnce(&OsStr) -> Result<T, String>) -> Option<Result<T, String>> {
    let path = survey.path().filter(|_| survey.kind() == Some(FileKind::File))?;
    Some(printable(&path).and_then(ask))
}

/// Keeps a layout or the reason why there is none. A path that is no regular file has none.
fn keep_layout(survey: &mut Survey, layout: Option<Result<Layout, String>>) {
    if let Some(layout) = layout {
        survey.layout = survey.keep("layout", layout);
    }
}

fn source(survey: &Survey) -> String {
    survey.mount.as_ref().map(|mount| mount.source.clone()).unwrap_or_default()
}

fn changes(survey: &mut Survey, name: &'static str, available: Option<bool>, detail: &str) {
    survey.changes.push(ChangeSource { name, available, detail: detail.to_owned() });
}

pub(super) fn moosefs_layout(path: &Path, options: &Options) -> Result<Layout, String> {
    moosefs::layout(&options.text("mfsfileinfo", &[printable(path)?])?)
}

fn moosefs(survey: &mut Survey, options: &Options) {
    let path = survey.path().filter(|_| survey.kind() == Some(FileKind::File));
    keep_layout(survey, path.map(|path| moosefs_layout(&path, options)));
    let source = source(survey);
    let targets = match moosefs::master(&source) {
        Some((host, port)) => {
            survey.properties.push(("master", format!("{host}:{port}")));
            let port = port.to_string();
            let arguments = ["-H", host, "-P", &port, "-SCS", "-p", "-s|"].map(OsStr::new);
            options.text("mfscli", &arguments).and_then(|text| moosefs::targets(&text))
        }
        None => Err("the mount does not name its master".to_owned()),
    };
    survey.targets = survey.keep("targets", targets);
    // A local file, not one of the examined file system.
    match Path::new(METALOGGER).exists() {
        true => {
            changes(survey, "changelog of the master", Some(true), "received by mfsmetalogger on this host")
        }
        false => {
            let detail =
                "chunks, not bytes; mfsmetalogger on this host would receive it, and does not run here";
            changes(survey, "changelog of the master", Some(false), detail);
        }
    }
}

pub(super) fn glusterfs_layout(path: &Path, bricks: &[Target], options: &Options) -> Result<Layout, String> {
    printable(path)?;
    let answer = probe::ask(&options.prober, path, &[glusterfs::PATHINFO], options.limits);
    let value = answer.map_err(|error| error.to_string())?.attribute(glusterfs::PATHINFO)?;
    glusterfs::layout(&String::from_utf8_lossy(&value), bricks)
}

fn glusterfs(survey: &mut Survey, options: &Options) {
    let source = source(survey);
    let Some((host, volume)) = glusterfs::volume(&source) else {
        survey.note("targets", "the mount does not name its volume".to_owned());
        return;
    };
    survey.properties.push(("volume", volume.to_owned()));
    survey.properties.push(("server", host.to_owned()));
    let ask = |what: &str| {
        let arguments = ["--mode=script", "volume", what, volume, "--xml"].map(OsStr::new);
        options.text("gluster", &arguments)
    };
    let info = ask("info").and_then(|text| glusterfs::volume_info(&text, volume));
    let info = survey.keep("volume", info);
    let targets = ask("status").and_then(|text| glusterfs::volume_status(&text, volume));
    survey.targets = survey.keep("targets", targets);
    survey.is_sharded = info.as_ref().map(glusterfs::Volume::is_sharded);
    if let Some(path) = survey.path().filter(|_| survey.kind() == Some(FileKind::File)) {
        let layout = match survey.is_sharded {
            Some(true) => Err("the volume cuts files into shards".to_owned()),
            _ => glusterfs_layout(&path, survey.targets.as_deref().unwrap_or_default(), options),
        };
        keep_layout(survey, Some(layout));
    }
    match info {
        Some(info) => {
            survey.properties.push(("type", info.kind.clone()));
            survey.properties.push(("status", info.status.clone()));
            let detail = match info.has_changelog() {
                true => "each brick records changed files in .glusterfs/changelogs",
                false => "the option changelog.changelog of the volume is off",
            };
            changes(survey, "changelogs of the bricks", Some(info.has_changelog()), detail);
        }
        None => changes(survey, "changelogs of the bricks", None, "the options of the volume are not known"),
    }
}

fn cephfs(survey: &mut Survey, options: &Options) {
    let targets = options.bytes("ceph", &["osd", "dump", "-f", "json"].map(OsStr::new));
    let targets = targets.and_then(|text| cephfs::targets(&text));
    survey.targets = survey.keep("targets", targets);
    match survey.kind() {
        Some(FileKind::File) => {
            let found = attributes(survey, &[cephfs::LAYOUT_JSON, cephfs::LAYOUT], options);
            let layout = found.map(|found| {
                let answer = found?;
                match answer.attribute(cephfs::LAYOUT_JSON) {
                    Ok(json) => cephfs::FileLayout::decode_json(&json),
                    // Releases before 16 have the line only.
                    Err(_) => {
                        let value = answer.attribute(cephfs::LAYOUT)?;
                        cephfs::FileLayout::decode_text(&String::from_utf8_lossy(&value))
                    }
                }
            });
            let layout = layout.and_then(|layout| survey.keep("layout", layout));
            survey.layout = layout.map(|layout| ceph_objects(survey, &layout, options));
        }
        Some(FileKind::Directory) => {
            let found = attributes(survey, &[cephfs::RCTIME], options);
            let detail = "newest change at or below a directory: tells a scan where to look";
            match found.map(|found| found.and_then(|answer| answer.attribute(cephfs::RCTIME))) {
                Some(Ok(_)) => changes(survey, cephfs::RCTIME, Some(true), detail),
                Some(Err(why)) => changes(survey, cephfs::RCTIME, None, &why),
                None => {}
            }
        }
        _ => {}
    }
    changes(survey, "snapshot differences", None, "need CephFS 18 and its library, which is not asked");
}

/// Asks where the first objects of a file are.
fn ceph_objects(survey: &mut Survey, layout: &cephfs::FileLayout, options: &Options) -> Layout {
    let Some((inode, size)) = survey.found.as_ref().map(|found| (found.inode, found.size)) else {
        return layout.layout(Vec::new());
    };
    let count = layout.objects(size);
    let mut placements = Vec::new();
    for index in 0..count.min(MAX_OBJECTS) {
        let object = layout.object(inode, index);
        let mut arguments = vec!["osd", "map", &layout.pool, &object];
        if !layout.namespace.is_empty() {
            arguments.push(&layout.namespace);
        }
        arguments.extend(["-f", "json"]);
        let arguments: Vec<&OsStr> = arguments.into_iter().map(OsStr::new).collect();
        let found = options.bytes("ceph", &arguments);
        let found = found.and_then(|text| cephfs::placements(&text, &object, index));
        // If one question fails, the following ones would cost a deadline each.
        let Some(found) = survey.keep("layout", found) else { break };
        placements.extend(found);
    }
    if count > MAX_OBJECTS {
        survey.note("layout", format!("the first {MAX_OBJECTS} of {count} objects were looked up"));
    }
    layout.layout(placements)
}

fn lustre(survey: &mut Survey, options: &Options) {
    if survey.kind() == Some(FileKind::File) {
        let by_tool = on_file(survey, |path| {
            lustre::layout(&options.text("lfs", &[OsStr::new("getstripe"), OsStr::new("-y"), path])?)
        });
        let layout = match by_tool {
            // The attribute needs no tool.
            Some(Err(why)) => attributes(survey, &[lustre::LOV], options).map(|found| {
                let value = found.and_then(|answer| answer.attribute(lustre::LOV));
                value
                    .and_then(|value| lustre::lov::layout(&value))
                    .map_err(|second| format!("{why}; {second}"))
            }),
            other => other,
        };
        keep_layout(survey, layout);
    }
    let point = survey.mount.as_ref().map(|mount| mount.point.clone()).unwrap_or_default();
    let targets = printable(&point).and_then(|point| options.text("lfs", &[OsStr::new("osts"), point]));
    let targets = targets.and_then(|text| lustre::targets(&text));
    survey.targets = survey.keep("targets", targets);
    let detail = "its users are known on the MDS: lctl get_param mdd.*.changelog_users";
    changes(survey, "changelog of the MDT", None, detail);
}

fn beegfs(survey: &mut Survey, options: &Options) {
    let layout = on_file(survey, |path| {
        let old = [OsStr::new("--getentryinfo"), path];
        let new = [OsStr::new("entry"), OsStr::new("info"), path];
        // `beegfs` replaced `beegfs-ctl` in version 8.
        let printed = options.text("beegfs", &new);
        let printed = printed
            .or_else(|first| options.text("beegfs-ctl", &old).map_err(|second| format!("{first}; {second}")));
        beegfs::layout(&printed?)
    });
    keep_layout(survey, layout);
    let arguments = ["--listtargets", "--state", "--nodetype=storage"].map(OsStr::new);
    let targets = options.text("beegfs-ctl", &arguments).and_then(|text| beegfs::targets(&text));
    survey.targets = survey.keep("targets", targets);
    let detail = "set on the metadata servers: sysFileEventLogTarget";
    changes(survey, "file events", None, detail);
}

fn gpfs(survey: &mut Survey, options: &Options) {
    let asked =
        on_file(survey, |path| gpfs::attributes(&options.text("mmlsattr", &[OsStr::new("-L"), path])?));
    if let Some(found) = asked.and_then(|asked| survey.keep("attributes", asked)) {
        let texts = [("storage pool", found.pool), ("fileset", found.fileset)];
        let numbers =
            [("data replicas", found.data_replicas), ("metadata replicas", found.metadata_replicas)];
        let texts = texts.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, value?.to_string())));
        survey.properties.extend(texts.chain(numbers));
        match found.offline {
            Some(true) => {
                survey.properties.push((
                    "offline",
                    "yes: reading would recall the content, so nothing reads it".to_owned(),
                ));
            }
            Some(false) => survey.properties.push(("offline", "no".to_owned())),
            None => {
                survey.note("attributes", "mmlsattr does not tell whether the file is offline".to_owned())
            }
        }
    }
    survey.note("layout", "GPFS does not tell where the blocks of a file lie".to_owned());
    survey.note("targets", "the disks of GPFS are not asked".to_owned());
    changes(survey, "clustered watch", None, "mmwatch of the cluster, which is not asked");
}

fn plain(survey: &mut Survey) {
    let kind = survey.mount.as_ref().map_or("an unknown file system", |mount| &mount.kind).to_owned();
    survey.note("layout", format!("{kind} does not tell where the bytes of a file lie"));
    survey.note("targets", format!("{kind} does not tell on which targets it is"));
}
