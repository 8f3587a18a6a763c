//! `cargo xtask package`: packages to install Gabion from.
//!
//! One tree of files, as they are installed below `/usr` and `/etc`, is the source of all packages. The Debian package
//! is written by `dpkg-deb` from that tree: the maintainer scripts are the same few lines that debhelper would
//! generate, the dependency on the C library is computed by `dpkg-shlibdeps`, and nothing has to be installed besides
//! `dpkg-dev`.

mod check;
mod container;
mod deb;
mod install;
mod layout;
mod rpm;
mod tarball;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::shell::Cmd;
use deb::Compression;
use layout::Layout;

/// Build packages: a Debian package, an RPM, a tarball, the context of a container image
///
/// Builds the program (`cargo build --release`) unless --program names one, and writes the packages into
/// target/package. The Debian package needs dpkg-dev, the RPM needs rpmbuild (Debian package rpm); the image is built
/// if podman or docker run here.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kind of package
    #[arg(value_enum, default_value_t = Kind::All)]
    kind: Kind,
    /// A program that is built already
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Directory for the packages
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    out: PathBuf,
    /// Also check the content of the Debian package
    #[arg(long)]
    check: bool,
    /// Also install, run, upgrade, remove and purge the Debian package in a new Debian system (root, network)
    #[arg(long)]
    try_install: bool,
    /// Compress less: for tests
    #[arg(long)]
    fast: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Deb,
    Rpm,
    Tarball,
    Container,
    All,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => {
            let build = Cmd::cargo("build --release --locked -p gabion");
            println!("    {build}");
            build.run()?;
            PathBuf::from("target/release/gabion")
        }
    };
    let is = |kind: Kind| args.kind == kind || args.kind == Kind::All;
    let layout = Layout::write(&program, &args.out.join("root"))?;
    if is(Kind::Deb) || is(Kind::Container) || args.check || args.try_install {
        let compression = if args.fast { Compression::Fast } else { Compression::Best };
        let deb = deb::build(&layout, &args.out, "", compression)?;
        if args.check {
            check::check(&deb)?;
        }
        if args.try_install {
            // The next version, which the test upgrades to.
            let next = deb::build(&layout, &args.out.join("next"), "+next1", compression)?;
            install::try_out(&deb, &next)?;
        }
        if is(Kind::Container) {
            container::build(&deb, &args.out)?;
        }
    }
    if is(Kind::Tarball) {
        tarball::build(&layout, &args.out)?;
    }
    if is(Kind::Rpm) {
        match rpm::is_possible() {
            true => rpm::build(&layout, &args.out).map(drop)?,
            false if args.kind == Kind::All => {
                println!("    no RPM: rpmbuild is missing (Debian package rpm)")
            }
            false => anyhow::bail!("rpmbuild is missing: apt-get install rpm"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds a Debian package of a program that was built for tests, and checks its content. With `install`, also tries it
/// in a new Debian system.
pub(crate) fn test(program: &Path, install: bool) -> Result<()> {
    let out = PathBuf::from("target/package-test");
    let (program, check) = (Some(program.to_owned()), true);
    run(&Args { kind: Kind::Deb, program, out, check, try_install: install, fast: true }).map(drop)
}

/// Version of the workspace.
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Time of the last commit: packages of one commit are the same bytes, if the program is.
fn source_date() -> String {
    let date = Cmd::new("git", ["log", "-1", "--format=%ct"]).probe().unwrap_or_default();
    if date.trim().is_empty() { "0".to_owned() } else { date.trim().to_owned() }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(path, text))
        .with_context(|| format!("writing {}", path.display()))
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("mode of {}", path.display()))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: the path is no text", path.display()))
}

/// A directory that is empty.
fn fresh(path: &Path) -> Result<()> {
    ensure!(path.starts_with("target") || path.is_absolute(), "{} is not below target", path.display());
    if path.exists() {
        std::fs::remove_dir_all(path).with_context(|| format!("removing {}", path.display()))?;
    }
    std::fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))
}

/// Regular files below a directory, relative to it, in order.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut ahead) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = ahead.pop() {
        let entries = std::fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            match path.is_dir() {
                true => ahead.push(path),
                false => found.push(path.strip_prefix(root)?.to_owned()),
            }
        }
    }
    found.sort();
    Ok(found)
}
