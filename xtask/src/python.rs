//! The Python package: its environment, its wheel, and its tests.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::shell::Cmd;

/// The virtual environment, below the root.
const PLACE: &str = "target/python";
const PACKAGE: &str = "bindings/python";
/// The packages of others, with their versions.
const REQUIREMENTS: &str = "bindings/python/tests/requirements.txt";
/// A copy of the list, in the environment once all of it is installed.
const STAMP: &str = "installed.txt";
/// The beginning of the line of a package whose tests run here, which only its source has.
const WITH_TESTS: &str = "pyeclib==";

/// Build the Python package as a wheel, install it in target/python, and run its tests
///
/// The tests run the examples of docstrings and of the reference, compare the stubs with the module, and check the
/// types of the example programs. The first call installs maturin, mypy and numpy from the package index.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build as for a release: the wheel is below target/python/wheels
    #[arg(long)]
    release: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    ensure_environment()?;
    test(if args.release { "release" } else { "unoptimized" })?;
    Ok(ExitCode::SUCCESS)
}

/// A program of the environment.
fn program(name: &str) -> Result<Cmd> {
    let place = std::path::absolute(PLACE)?;
    let cmd = Cmd::new(&place.join("bin").join(name).to_string_lossy(), [""; 0]);
    // As `activate` does: maturin looks for its interpreter so.
    Ok(cmd.env("VIRTUAL_ENV", &place.to_string_lossy()))
}

/// Tells tests where the environment is.
pub(crate) fn known(cmd: Cmd) -> Cmd {
    let place = std::path::absolute(PLACE).unwrap_or_else(|_| PLACE.into());
    cmd.env("GABION_PYTHON", &place.display().to_string())
}

/// The same if it was made before.
pub(crate) fn known_if_there(cmd: Cmd) -> Cmd {
    if Path::new(PLACE).join(STAMP).is_file() { known(cmd) } else { cmd }
}

/// Makes the environment, or brings it up to date with the list of packages.
pub(crate) fn ensure_environment() -> Result<()> {
    let wanted = fs::read_to_string(REQUIREMENTS).with_context(|| format!("reading {REQUIREMENTS}"))?;
    let stamp = Path::new(PLACE).join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        println!("    {PLACE} has the packages of {REQUIREMENTS}");
        return Ok(());
    }
    let new = Cmd::new("python3", ["-m", "venv", "--clear", PLACE]);
    let install = program("pip")?.args(["install", "--quiet", "--requirement", REQUIREMENTS]);
    let package = wanted.lines().find(|line| line.starts_with(WITH_TESTS));
    let package = package.with_context(|| format!("{REQUIREMENTS} has no {WITH_TESTS}"))?;
    let sources = format!("{PLACE}/sources");
    let options = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", &sources, package];
    for cmd in [new, install, program("pip")?.args(options)] {
        show_and_run(&cmd)?;
    }
    for entry in fs::read_dir(&sources).with_context(|| format!("reading {sources}"))? {
        let archive = entry?.path();
        show_and_run(&Cmd::new("tar", ["-x", "-C", &sources, "-f", &*archive.to_string_lossy()]))?;
    }
    fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))
}

/// Builds the wheel with a profile of cargo, installs it and runs its tests.
fn test(profile: &str) -> Result<()> {
    let wheels = Path::new(PLACE).join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels).with_context(|| format!("removing {}", wheels.display()))?;
    }
    let out = wheels.to_string_lossy();
    let manifest = format!("{PACKAGE}/Cargo.toml");
    let build = program("maturin")?.args(["build", "--locked", "--manifest-path", &manifest, "--out", &*out]);
    show_and_run(&build.args(["--profile", profile]))?;
    let made = fs::read_dir(&wheels)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    ensure!(made.len() == 1, "one wheel is expected in {out}, not {made:?}");
    let name = made[0].to_string_lossy();
    ensure!(name.contains("-abi3-"), "{name} is not for the stable ABI");
    let install = ["install", "--quiet", "--force-reinstall", "--no-deps", "--no-index", &*name];
    show_and_run(&program("pip")?.args(install))?;
    let tests = format!("{PACKAGE}/tests");
    show_and_run(&program("python")?.args(["-m", "unittest", "discover", "--start-directory", &tests]))?;
    show_and_run(&program("python")?.args(["-m", "mypy.stubtest", "gabion"]))?;
    let cache = format!("{PLACE}/mypy");
    let examples = format!("{PACKAGE}/examples");
    show_and_run(&program("mypy")?.args(["--strict", "--cache-dir", &cache, &examples]))
}

fn show_and_run(cmd: &Cmd) -> Result<()> {
    println!("    {cmd}");
    cmd.run()
}
