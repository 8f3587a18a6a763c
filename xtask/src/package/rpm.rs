//! The RPM, built by `rpmbuild` from the tree of installed files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::layout::Layout;
use super::{files, fresh, source_date, text, version, write};
use crate::shell::Cmd;

/// The program is stripped already, and pages are compressed.
const SPEC: &str = r#"%global __os_install_post %{nil}
%global debug_package %{nil}
%global _build_id_links none
%global source_date_epoch_from_changelog 0
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1

Name: gabion
Version: @VERSION@
Release: 1
Summary: Protection of files with erasure codes
License: MIT OR Apache-2.0
Recommends: fuse3

%description
Gabion adds redundancy to files where they are, in directories or in pools of disks: any k of k + m blocks restore all of
them. It finds corruption by checksums, repairs it, and protects what changes while programs write.

%install
cp -a "@ROOT@/." "%{buildroot}/"

%pre
getent group gabion >/dev/null || groupadd --system gabion || :

%post
systemd-tmpfiles --create gabion.conf >/dev/null 2>&1 || :
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || :
    if [ "$1" -eq 1 ]; then systemctl enable --now gabion.service || :; fi
fi

%preun
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl disable --now gabion.service || :
    systemctl stop 'gabion-*@*.timer' 'gabion-*@*.service' || :
fi

%postun
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || :
    if [ "$1" -ge 1 ]; then systemctl try-restart gabion.service 'gabion-work@*.service' || :; fi
fi

%files
"#;

pub(super) fn is_possible() -> bool {
    Cmd::new("rpmbuild", ["--version"]).probe().is_some()
}

/// Writes the package into a directory and returns its path.
pub(super) fn build(layout: &Layout, out: &Path) -> Result<PathBuf> {
    let place = out.join("rpm");
    fresh(&place)?;
    let root = std::path::absolute(&layout.root)?;
    let mut spec = SPEC.replace("@VERSION@", version()).replace("@ROOT@", text(&root)?);
    for file in files(&layout.root)? {
        let configuration = if file.starts_with("etc") { "%config(noreplace) " } else { "" };
        spec += &format!("{configuration}/{}\n", text(&file)?);
    }
    write(&place.join("gabion.spec"), &spec)?;
    let top = format!("_topdir {}", text(&std::path::absolute(&place)?)?);
    let build = Cmd::new("rpmbuild", ["--quiet", "-bb", "--define", &top, text(&place.join("gabion.spec"))?])
        .env("SOURCE_DATE_EPOCH", &source_date());
    println!("    {build}");
    build.run()?;
    let made = files(&place.join("RPMS"))?;
    let made = place.join("RPMS").join(made.first().context("rpmbuild wrote no package")?);
    let package = out.join(made.file_name().context("no name")?);
    std::fs::rename(&made, &package).with_context(|| package.display().to_string())?;
    std::fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    Ok(package)
}
