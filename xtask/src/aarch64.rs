//! `cargo xtask aarch64`: the engine's tests on 64-bit ARM, emulated.
//!
//! A pinned toolchain has no standard library for a second target unless rustup can fetch one, so
//! the compiler comes from Debian, which every machine that runs `cargo xtask test` can reach:
//!
//! 1. `rustc-web` for amd64 with the libraries it loads, and
//! 2. `libstd-rust-web-dev` for arm64, unpacked into the same tree, so that rustc finds both
//!    standard libraries under its own root. Unpacked, not installed: the packages conflict with
//!    rustup.
//! 3. apt keeps a state and a cache per architecture under `target/aarch64`, so the machine's own
//!    package lists stay as they are and no root is needed.
//! 4. cargo stays the pinned one; RUSTC and RUSTDOC point into the tree.
//! 5. gcc-aarch64-linux-gnu links, qemu-aarch64-static runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use crate::packages::{self, Need};
use crate::shell::Cmd;
use crate::steps::Steps;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Where the cross C library lies; the emulated program finds its loader there.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// The oldest compiler that the workspace accepts.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// Run the engine's tests for aarch64 under qemu
///
/// Unpacks Debian's rustc and the arm64 standard library into target/aarch64 (about 150 MB to
/// download, 650 MB on disk; kept between runs), links with gcc-aarch64-linux-gnu and runs with
/// qemu-user-static. Nothing but those two packages and the cross C library is installed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Download and unpack the compiler again
    #[arg(long)]
    refresh: bool,
    /// Arguments for `cargo test`, such as the name of a test
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let tree = tree();
    if args.refresh && tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("removing {}", tree.display()))?;
    }
    let mut table = Steps::new();
    let result = table
        .step("Debian packages", || packages::ensure(&[Need::Aarch64]))
        .and_then(|()| steps(&mut table, &args.args));
    print!("\n{}", table.table());
    result.map(|()| ExitCode::SUCCESS)
}

/// Tests of the conformance suite that take minutes under emulation; `cargo xtask test --full` runs them.
const LONG: &[&str] = &[
    "a_plan_that_works_enough_is_compiled_without_a_change_of_bytes",
    "every_loss_is_survived",
    "plans_that_run_by_transforms_match_the_reference",
    "random_plans_match_the_reference",
    "streamed_blocks_match",
];

/// The part of every `cargo xtask test`: conformance of the NEON kernels and the vectors of other libraries, without
/// the tests that take minutes. rustup supplies the target's standard library for the pinned compiler; where it
/// cannot, Debian's compiler is unpacked.
///
/// # Errors
/// Emulator, linker or standard library cannot be had.
pub(crate) fn conformance() -> Result<Cmd> {
    packages::ensure(&[Need::Aarch64])?;
    let line = short();
    let add = Cmd::new("rustup", ["target", "add", TARGET]);
    println!("    {add}");
    let Err(why) = add.run() else {
        return Ok(emulated(Cmd::cargo(&format!("test -p gabion-engine --target {TARGET}")).args(line)));
    };
    println!("    {why:#}; Debian's compiler takes its place");
    compiler()?;
    Ok(tests(&tree(), &line))
}

/// Arguments of the short run. The run-time compiler is for x86_64 only: without it, fewer crates are compiled.
fn short() -> Vec<String> {
    let suites = ["--no-default-features", "--test", "conformance", "--test", "vectors", "--"];
    let skips = LONG.iter().flat_map(|name| ["--skip", *name]);
    suites.into_iter().chain(skips).map(str::to_owned).collect()
}

/// The steps after the packages are there.
pub(crate) fn steps(steps: &mut Steps, args: &[String]) -> Result<()> {
    ensure!(
        std::env::consts::ARCH == "x86_64",
        "this emulates aarch64 on x86_64; here `cargo xtask test` runs natively on {}",
        std::env::consts::ARCH
    );
    steps.step("aarch64 compiler", compiler)?;
    steps.command("aarch64 tests", &tests(&tree(), args))
}

fn home() -> PathBuf {
    crate::root().join("target/aarch64")
}

/// The unpacked packages. It appears under this name only when complete.
fn tree() -> PathBuf {
    home().join("root")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn compiler() -> Result<()> {
    let tree = tree();
    if tree.exists() {
        println!("    unpacked before: {}", tree.display());
    } else {
        unpack(&tree)?;
    }
    let hint = "`cargo xtask aarch64 --refresh` unpacks it again";
    let version = rustc(&tree).args(["--version"]).capture().context(hint)?;
    println!("    {}", version.trim());
    let std = tree.join("usr/lib/rustlib").join(TARGET).join("lib");
    ensure!(std.is_dir(), "{} is missing: no standard library; {hint}", std.display());
    ensure!(
        is_at_least(&version, OLDEST),
        "Debian's compiler is older than the workspace's rust-version {OLDEST}; newer ones come \
         with the suite bookworm-security: is it among apt's sources?"
    );
    Ok(())
}

fn rustc(tree: &Path) -> Cmd {
    Cmd::new(&tree.join("usr/bin/rustc").to_string_lossy(), [""; 0]).env("LD_LIBRARY_PATH", &libraries(tree))
}

fn libraries(tree: &Path) -> String {
    tree.join("usr/lib/x86_64-linux-gnu").to_string_lossy().into_owned()
}

/// Compares `rustc 1.96.0 (…)` with `1.95`, number by number.
fn is_at_least(version: &str, oldest: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> { text.split('.').map_while(|n| n.parse().ok()).collect() };
    version.split_whitespace().nth(1).is_some_and(|found| numbers(found) >= numbers(oldest))
}

fn unpack(tree: &Path) -> Result<()> {
    let amd64 = Apt::new("amd64")?;
    let arm64 = Apt::new("arm64")?;
    // The compiler needs LLVM and its own driver in the versions it was built with. Whatever of
    // its dependencies the machine has already, it has installed and will be found there; Rust's
    // own packages are always unpacked, since both halves must come from one build.
    let wanted: Vec<String> = amd64
        .closure("rustc-web")?
        .into_iter()
        .filter(|name| name.contains("rust-web") || !packages::installed(name))
        .collect();
    let std: Vec<String> = arm64
        .closure("libstd-rust-web-dev")?
        .into_iter()
        .filter(|name| name.starts_with("libstd-rust-web"))
        .collect();
    let partial = home().join("root.partial");
    remove(&partial)?;
    for (apt, names) in [(&amd64, &wanted), (&arm64, &std)] {
        for package in apt.download(names)? {
            Cmd::new("dpkg", ["-x", text(&package)?, text(&partial)?]).run()?;
        }
        remove(&apt.downloads())?;
    }
    fs::rename(&partial, tree).with_context(|| format!("naming {}", tree.display()))
}

fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    Ok(())
}

/// apt for one architecture, with lists and cache of its own.
struct Apt {
    arch: &'static str,
    dir: PathBuf,
    options: Vec<String>,
}

impl Apt {
    fn new(arch: &'static str) -> Result<Apt> {
        let dir = home().join("apt").join(arch);
        for part in ["state/lists/partial", "cache/archives/partial", "packages"] {
            let path = dir.join(part);
            fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        }
        // An empty dpkg status: nothing is installed as far as this apt is concerned.
        let status = dir.join("status");
        fs::write(&status, "").with_context(|| format!("writing {}", status.display()))?;
        let base = text(&dir)?.to_owned();
        let options = [
            format!("APT::Architecture={arch}"),
            // A list in apt's syntax; without it the machine's foreign architectures come along.
            format!("APT::Architectures::={arch}"),
            format!("Dir::State={base}/state"),
            format!("Dir::State::status={base}/status"),
            format!("Dir::Cache={base}/cache"),
            // The sandbox user may not write below target/.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ];
        let options = options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect();
        let apt = Apt { arch, dir, options };
        println!("    apt-get update, for {arch} and into {base}");
        apt.command("apt-get", &["-q", "update"]).run()?;
        Ok(apt)
    }

    fn command(&self, program: &str, args: &[&str]) -> Cmd {
        Cmd::new(program, self.options.clone()).args(args.iter().copied())
    }

    fn downloads(&self) -> PathBuf {
        self.dir.join("packages")
    }

    /// The package and all it depends on, itself first.
    fn closure(&self, name: &str) -> Result<Vec<String>> {
        let args = ["depends", "--recurse", "--important", name];
        let names = top_names(&self.command("apt-cache", &args).probe().context("no apt-cache")?);
        let sources = "Debian 12 with its security updates has it: are they among apt's sources?";
        ensure!(!names.is_empty(), "no package {name} for {}; {sources}", self.arch);
        Ok(names)
    }

    /// Downloads the packages and returns their files.
    fn download(&self, names: &[String]) -> Result<Vec<PathBuf>> {
        let dir = self.downloads();
        println!("    apt-get download, for {}: {}", self.arch, names.join(" "));
        let cmd = self.command("apt-get", &["-q", "download"]).args(names.to_vec());
        cmd.dir(text(&dir)?).run()?;
        let mut files = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
            files.push(entry?.path());
        }
        if files.len() < names.len() {
            bail!("{} packages wanted for {}, {} came", names.len(), self.arch, files.len());
        }
        Ok(files)
    }
}

/// `apt-cache depends --recurse` lists each package at the margin and its dependencies indented;
/// names in angle brackets are virtual.
fn top_names(listing: &str) -> Vec<String> {
    let at_margin = |line: &&str| line.starts_with(|c: char| c.is_ascii_alphanumeric());
    listing.lines().filter(at_margin).map(|line| line.trim().to_owned()).collect()
}

fn tests(tree: &Path, args: &[String]) -> Cmd {
    let bin = |name: &str| tree.join("usr/bin").join(name).to_string_lossy().into_owned();
    emulated(Cmd::cargo(&format!("test -p gabion-engine --target {TARGET}")).args(args.to_vec()))
        // What only other architectures use is said there. Not all warnings: this compiler is newer than the pinned
        // one.
        .env("RUSTFLAGS", "-D unused")
        .env("RUSTC", &bin("rustc"))
        .env("RUSTDOC", &bin("rustdoc"))
        .env("LD_LIBRARY_PATH", &libraries(tree))
        .env("CARGO_TARGET_DIR", &home().join("build").to_string_lossy())
}

/// Links for aarch64 and runs under emulation.
fn emulated(cmd: Cmd) -> Cmd {
    cmd.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &format!("qemu-aarch64-static -L {SYSROOT}"))
        .unset(crate::ladder::FORCE)
}

#[cfg(test)]
mod tests {
    use super::{LONG, is_at_least, short, top_names};

    /// A test that is renamed and not skipped any more would add minutes to every run; the one that counts NEON's
    /// rows must not be skipped.
    #[test]
    fn the_short_run_leaves_out_tests_that_exist() {
        let suite = std::fs::read_to_string(crate::root().join("crates/engine/tests/conformance/main.rs"));
        let suite = suite.unwrap();
        assert!(LONG.iter().all(|name| suite.contains(&format!("fn {name}"))), "{LONG:?}");
        assert!(suite.contains("fn no_row_is_skipped_on_aarch64"));
        assert!(!short().iter().any(|word| "no_row_is_skipped_on_aarch64".contains(word.as_str())));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_at_least("rustc 1.96.0 (ac68faa20 2026-05-25)", "1.95"));
        assert!(is_at_least("rustc 1.95.0 (0 2026-03-21)", "1.95"));
        assert!(is_at_least("rustc 1.100.0", "1.95"));
        assert!(!is_at_least("rustc 1.85.0 (0)", "1.95"));
        assert!(!is_at_least("", "1.95"));
    }

    #[test]
    fn dependencies_are_read_from_the_margin() {
        let listing = "rustc-web\n  Depends: libc6\n |Depends: gcc\n<c-compiler>\nlibc6\n";
        assert_eq!(top_names(listing), ["rustc-web", "libc6"]);
    }
}
