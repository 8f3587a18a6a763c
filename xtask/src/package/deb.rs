//! The Debian package.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::layout::{Layout, compress};
use super::{files, fresh, set_mode, source_date, text, version, write};
use crate::shell::Cmd;

/// Files that an upgrade keeps as the administrator left them.
pub(super) const CONFIGURATION: &str = "/etc/gabion/daemon.toml\n";

/// Maintainer scripts.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

const DESCRIPTION: &str = "protection of files with erasure codes
 Gabion adds redundancy to files where they are, in directories or in pools of
 disks: any k of k + m blocks restore all of them. It finds corruption by
 checksums, repairs it, and protects what changes while programs write.
 .
 This package has the program with its daemon, units of systemd, manual pages
 and completions for shells.
";

/// How hard the package is compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    /// For users.
    Best,
    /// For tests.
    Fast,
}

impl Compression {
    fn options(self) -> &'static [&'static str] {
        match self {
            Compression::Best => &["-Zxz"],
            Compression::Fast => &["-Zgzip", "-z1"],
        }
    }
}

/// Writes the package into a directory and returns its path. `suffix` is appended to the version.
pub(super) fn build(layout: &Layout, out: &Path, suffix: &str, compression: Compression) -> Result<PathBuf> {
    let architecture = Cmd::new("dpkg", ["--print-architecture"]).capture()?.trim().to_owned();
    let version = format!("{}-1{suffix}", version());
    let tree = out.join("deb");
    fresh(&tree)?;
    Cmd::new("cp", ["-a", text(&layout.at("."))?, text(&tree)?]).run()?;
    let changes = tree.join("usr/share/doc/gabion/changelog.Debian");
    write(&changes, &changelog(&version)?)?;
    compress(&changes)?;
    let control = tree.join("DEBIAN");
    write(&control.join("control"), &description(layout, &version, &architecture)?)?;
    write(&control.join("conffiles"), CONFIGURATION)?;
    write(&control.join("md5sums"), &sums(&tree)?)?;
    for script in SCRIPTS {
        let to = control.join(script);
        std::fs::copy(Path::new("package/debian").join(script), &to).with_context(|| (*script).to_owned())?;
        set_mode(&to, 0o755)?;
    }
    set_mode(&control, 0o755)?;
    set_mode(&tree, 0o755)?;
    let package = out.join(format!("gabion_{version}_{architecture}.deb"));
    let build = Cmd::new("dpkg-deb", ["--root-owner-group"])
        .args(compression.options().iter().copied())
        .args(["--build", text(&tree)?, text(&package)?])
        .env("SOURCE_DATE_EPOCH", &source_date());
    println!("    {build}");
    build.run()?;
    std::fs::remove_dir_all(&tree).with_context(|| tree.display().to_string())?;
    Ok(package)
}

fn description(layout: &Layout, version: &str, architecture: &str) -> Result<String> {
    let mut size = 0;
    for file in files(&layout.root)? {
        // Policy: files in whole KiB, directories are not counted here.
        size += std::fs::metadata(layout.root.join(file))?.len().div_ceil(1024);
    }
    let mut control = String::new();
    writeln!(control, "Package: gabion")?;
    writeln!(control, "Version: {version}")?;
    writeln!(control, "Architecture: {architecture}")?;
    writeln!(control, "Maintainer: {}", maintainer())?;
    writeln!(control, "Installed-Size: {size}")?;
    writeln!(control, "Depends: {}, init-system-helpers (>= 1.54~), passwd", libraries(layout)?)?;
    writeln!(control, "Recommends: fuse3")?;
    writeln!(control, "Suggests: redis-server")?;
    writeln!(control, "Section: admin")?;
    writeln!(control, "Priority: optional")?;
    write!(control, "Description: {DESCRIPTION}")?;
    Ok(control)
}

/// The package's own changelog; that of the program is beside it.
fn changelog(version: &str) -> Result<String> {
    let date = format!("--date=@{}", source_date());
    let date = Cmd::new("date", ["--utc", "--rfc-email", &date]).capture()?;
    Ok(format!(
        "gabion ({version}) unstable; urgency=medium\n\n  * Changes of the program are in changelog.gz.\n\n -- {}  {}\n",
        maintainer(),
        date.trim()
    ))
}

fn maintainer() -> String {
    std::env::var("DEBFULLNAME").ok().zip(std::env::var("DEBEMAIL").ok()).map_or_else(
        || "Gabion maintainers <maintainers@gabion.invalid>".to_owned(),
        |(name, address)| format!("{name} <{address}>"),
    )
}

/// Dependencies on shared libraries, with the least versions whose symbols the program uses.
fn libraries(layout: &Layout) -> Result<String> {
    let place = layout.root.with_file_name("shlibdeps");
    fresh(&place)?;
    // dpkg-shlibdeps wants a source package around it.
    write(&place.join("debian/control"), "Source: gabion\n\nPackage: gabion\nArchitecture: any\n")?;
    let program = std::path::absolute(layout.at("usr/bin/gabion"))?;
    let found = Cmd::new("dpkg-shlibdeps", ["-O", text(&program)?]).dir(text(&place)?).capture()?;
    let depends = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    let depends = depends.with_context(|| format!("dpkg-shlibdeps printed no dependencies: {found:?}"))?;
    ensure!(depends.contains("libc6 (>= "), "no dependency on the C library: {depends}");
    std::fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    Ok(depends.to_owned())
}

/// Checksums of all installed files, which `dpkg --verify` reads. Configuration is not among them.
fn sums(tree: &Path) -> Result<String> {
    let installed = |file: &PathBuf| !file.starts_with("DEBIAN") && !file.starts_with("etc");
    let names: Vec<PathBuf> = files(tree)?.into_iter().filter(installed).collect();
    let names = names.iter().map(|name| text(name)).collect::<Result<Vec<_>>>()?;
    Cmd::new("md5sum", names).dir(text(tree)?).capture()
}
