//! `cargo xtask test`: everything that can be checked on this machine, in one command.

use std::hash::BuildHasher;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::ladder::{self, Rung};
use crate::packages::{self, Need};
use crate::programs::{self, Built, Job, Program};
use crate::shell::Cmd;
use crate::steps::Steps;
use crate::{aarch64, crates, dependencies, package, python, readme, tidy, tools};

/// Run all checks: format, lints, tests on every rung of the CPU ladder, documentation, tidy
///
/// Stops after the first step that fails and shows its command. The tests run once with the kernel that the engine
/// chooses by itself and then once per row of the kernel table that this CPU supports, forced with GABION_KERNEL; the
/// other rows are shown as SKIP. Set GABION_REQUIRE_KERNELS=name,name to make a skipped row a failure. Tests that
/// cannot run on this machine (no root, no FUSE, a missing tool) are listed at the end with their reasons;
/// GABION_REQUIRE_ALL=1, which CI=true implies, makes each of them a failure. Once more the engine is tested without
/// its run-time compiler, so that programs are interpreted.
///
/// Test programs run side by side, one more of them than there are processors; GABION_TESTS_AT_ONCE chooses another
/// number. Beside them, while they wait for disks and timers, cargo does what needs no test: further lints,
/// documentation, the build without the compiler. The output of each is kept below target/tests.
///
/// Decoders are then fed with more random and hostile inputs than in their ordinary tests: fixed seeds, a fixed
/// number of inputs. Property tests have a fixed seed as well; with --full it is a random one. Commands are shown
/// with it; PROPTEST_RNG_SEED chooses another. The engine's conformance suite runs with NEON under emulation, without
/// its long tests.
///
/// Missing Debian packages are installed when this runs as root; otherwise it says what to type. Test suites of
/// others are built into target/tools.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also run the engine's tests for aarch64 under emulation (downloads about 150 MB once), kill commands and
    /// mounts before each of their changes of files, not before a sample of them, run 2000 rounds of random histories
    /// of pools, and all random cases of long tests, not a quarter of them (some hours more)
    #[arg(long)]
    full: bool,
    /// While developing: no forced kernels and no documentation
    #[arg(long, conflicts_with = "full")]
    quick: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut steps = Steps::new();
    let log = skip_log();
    let _ = std::fs::remove_file(&log);
    let result = all(args, &mut steps);
    print!("\n{}", steps.table());
    print!("{}", skipped(&std::fs::read_to_string(&log).unwrap_or_default()));
    if !steps.failures().is_empty() {
        print!("\n{}", steps.failures());
    }
    result.map(|()| ExitCode::SUCCESS)
}

fn all(args: &Args, steps: &mut Steps) -> Result<()> {
    let needs: &[Need] =
        if args.full { &[Need::Workspace, Need::Aarch64, Need::Installation] } else { &[Need::Workspace] };
    steps.step("Debian packages", || packages::ensure(needs))?;
    steps.step("suites of others", tools::ensure)?;
    steps.command("format", &Cmd::cargo("fmt --all --check"))?;
    let clippy = Cmd::cargo("clippy --workspace --all-targets -- -D warnings");
    steps.command("lints", &clippy)?;
    // Cheap, and what it finds is easier to mend before the long steps than after them.
    steps.step("tidy", tidy::check)?;
    steps.step("licences and versions of dependencies", dependencies::check)?;
    steps.step("packages of crates", crates::check)?;
    steps
        .skip("advisories for dependencies", "need a database from the network: cargo deny check advisories");
    steps.step("speed tables and pictures", readme::check)?;
    kernels(args, steps)?;
    if args.full {
        let kills =
            strict(Cmd::cargo("test -p gabion --test crash --test power -- --include-ignored"), &skip_log());
        steps.tests("kills before every change", &kills.env("GABION_CRASH_POINTS", "all"))?;
        let histories = strict(Cmd::cargo("test -p gabion --test histories"), &skip_log());
        steps.tests("histories of pools", &histories.env("GABION_HISTORY_ROUNDS", "2000"))?;
        aarch64::steps(steps, &[])?;
    }
    Ok(())
}

/// Where tests write down what they skip: the test harness hides what a test prints that passes.
fn skip_log() -> std::path::PathBuf {
    crate::root().join("target/skipped.txt")
}

/// Tells tests where to write down what they skip. On CI, or with GABION_REQUIRE_ALL=1, a skip is a failure.
pub(crate) fn strict(cmd: Cmd, log: &std::path::Path) -> Cmd {
    let cmd = cmd.env("GABION_SKIP_LOG", &log.display().to_string());
    if requires_all() { cmd.env("GABION_REQUIRE_ALL", "1") } else { cmd }
}

fn requires_all() -> bool {
    is_set("CI") || is_set("GABION_REQUIRE_ALL")
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.is_empty() && value != "0" && value != "false")
}

/// Environment variable with the seed of property tests.
const SEED: &str = "PROPTEST_RNG_SEED";

/// Gives property tests a seed, which the table's commands show: CI tries the same cases in every run, so that a rare
/// failure does not refuse a change that has nothing to do with it. With --full the seed is random, and long tests
/// try all their cases. The caller's own choice of a seed goes before both.
fn seeded(args: &Args, cmd: Cmd) -> Cmd {
    let cmd = if args.full { cmd.env("GABION_ROUNDS", "all") } else { cmd };
    let usual = if args.full { random() } else { 1 };
    cmd.env(SEED, &std::env::var(SEED).unwrap_or_else(|_| usual.to_string()))
}

#[expect(clippy::disallowed_methods, reason = "the seed is shown, so the run can be repeated")]
fn random() -> u64 {
    std::collections::hash_map::RandomState::new().hash_one(SEED)
}

/// Tests that feed decoders: headers of redundancy and shards, stubs, pools, events of the kernel.
const FUZZED: &[&str] = &["hostile::tests::", "format::header::tests::", "format::tests::", "wire::"];

/// Plans of the engine from random bytes. Each input is encoded and decoded by every kernel, so that the ordinary
/// tests' inputs take half a minute already.
const FUZZED_LONG: &str = "conformance::bytes::";

/// The same functions as the fuzzers of `fuzz/`, with fixed seeds and `factor` times the inputs of their ordinary
/// tests.
fn fuzzed(args: &Args, tests: Cmd, factor: u32) -> Cmd {
    let long = args.full.then_some(FUZZED_LONG);
    seeded(args, tests.args(FUZZED.iter().copied().chain(long)))
        .unset(ladder::FORCE)
        .env("GABION_FUZZ_FACTOR", &factor.to_string())
        .env("PROPTEST_CASES", &(256 * factor).to_string())
}

fn fuzz(args: &Args, programs: &[Program]) -> Vec<Job> {
    let (name, factor) = if args.full { ("long fuzz", 20) } else { ("fuzz", 2) };
    let libraries = programs.iter().filter(|program| program.name.suite == "lib");
    let job = |program: &Program| {
        Job::tests(format!("{}, {name}", program.name), fuzzed(args, program.command(), factor))
    };
    libraries.map(job).collect()
}

/// Conformance of the NEON kernels under emulation. Emulator, linker and standard library come over the network:
/// where they cannot be had, the table shows the reason, and on CI, or with GABION_REQUIRE_ALL=1, that is a failure.
fn neon(args: &Args, steps: &mut Steps) -> Result<Option<Job>> {
    const NAME: &str = "NEON conformance";
    if args.quick || args.full || std::env::consts::ARCH != "x86_64" {
        steps.skip(NAME, if args.quick { "--quick" } else { "among the tests for aarch64" });
        return Ok(None);
    }
    let found = if requires_all() {
        Ok(steps.step("compiler for aarch64", aarch64::conformance)?)
    } else {
        aarch64::conformance()
    };
    match found {
        Ok(cmd) => Ok(Some(Job::command(NAME, seeded(args, cmd)))),
        Err(why) => {
            steps.skip(NAME, &format!("{why:#}"));
            Ok(None)
        }
    }
}

/// The Python package. Its tools come over the network: where they cannot be had, the table shows the reason, and on
/// CI, or with GABION_REQUIRE_ALL=1, that is a failure.
fn python(args: &Args, steps: &mut Steps) -> Result<Option<Job>> {
    const NAME: &str = "Python package";
    if args.quick {
        steps.skip(NAME, "--quick");
        return Ok(None);
    }
    match steps.step("tools for Python", || Ok(python::ensure_environment()))? {
        Err(why) if requires_all() => Err(why),
        Err(why) => {
            steps.skip(NAME, &format!("{why:#}"));
            Ok(None)
        }
        Ok(()) => Ok(Some(Job::command(NAME, Cmd::cargo("xtask python")))),
    }
}

/// What was skipped, by test and reason; each once.
pub(crate) fn skipped(log: &str) -> String {
    let lines: std::collections::BTreeSet<&str> = log.lines().collect();
    let Some(_) = lines.first() else { return "\nno test was skipped\n".to_owned() };
    let mut text =
        format!("\nskipped: {} (GABION_REQUIRE_ALL=1 makes each of them a failure)\n", lines.len());
    for line in lines {
        let (test, reason) = line.split_once('\t').unwrap_or((line, ""));
        text += &format!("  {test}: {reason}\n");
    }
    text
}

/// What runs once more on each row: the tests of the engine, and those of the program that code, sign, check and
/// repair with it. The others would do the same again, whatever row is forced.
const FORCED: &[&str] = &[
    "gabion-engine:lib",
    "gabion-engine:conformance",
    "gabion-engine:vectors",
    "gabion:lib",
    "gabion:info",
    "gabion:shard",
    "gabion:vault",
];

/// Tests among these that walk the whole kernel table by themselves, or take long with what no row has a part in:
/// ends of processes, what is said, headers, devices.
const NOTHING_TO_GAIN: &[&str] = &[
    "compiler::tests",
    "conformance::bytes",
    "matrix::tests",
    "random_plans_match_the_reference",
    "plans_that_run_by_transforms_match_the_reference",
    "streamed_blocks_match",
    "every_loss_is_survived",
    "shard::crashes",
    "devices::",
    "shard::limits",
    "every_byte_of_a_header_is_guarded",
    "faults::",
    "forget::",
    "exclude::",
    "replaced::",
    "check::",
    "read_only::",
    "rebuild::",
    "talk::",
];

/// The programs that take longest, the longest first: started last, one of them would run alone at the end.
const LONGEST: &[&str] = &[
    "gabion:hosts",
    "gabion-engine:lib",
    "gabion-vault:rebuild",
    "gabion-vault:vault",
    "gabion:vault",
    "gabion-mount:pool",
    "gabion:mount",
    "gabion:daemon",
    "gabion-vault:monitor",
    "gabion:histories",
    "gabion:crash",
    "gabion:power",
    "gabion-engine:conformance",
];

/// Tests that mostly wait, for leases and for servers that are away: they need no processor of their own, and so many
/// of them run at once.
const WAITING: (&str, &str) = ("gabion:hosts", "6");

/// All test programs, those that take longest first.
fn build(cargo_test: &str) -> Result<Built> {
    let mut built = programs::build(Cmd::cargo(cargo_test))?;
    let place = |program: &Program| {
        let name = program.name.to_string();
        LONGEST.iter().position(|long| *long == name).unwrap_or(LONGEST.len())
    };
    built.programs.sort_by_key(place);
    Ok(built)
}

fn run_jobs(steps: &mut Steps, name: &str, jobs: Vec<Job>, commands: Vec<Job>) -> Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let chosen = std::env::var("GABION_TESTS_AT_ONCE").ok().and_then(|text| text.parse().ok());
    steps.programs(name, jobs, chosen.unwrap_or(processors + 1), commands)
}

/// One run of each program with the engine's own choice of kernel.
fn automatic(args: &Args, programs: &[Program]) -> Vec<Job> {
    let job = |program: &Program| {
        let mut cmd = seeded(args, program.command().unset(ladder::FORCE));
        if program.name.to_string() == WAITING.0 {
            cmd = cmd.env("RUST_TEST_THREADS", WAITING.1);
        }
        Job::tests(program.name.to_string(), strict(python::known_if_there(tools::known(cmd)), &skip_log()))
    };
    programs.iter().map(job).collect()
}

/// One run of each program that codes, on one row of the kernel table.
fn forced(args: &Args, programs: &[Program], rung: &Rung) -> Vec<Job> {
    let coding = programs.iter().filter(|program| FORCED.contains(&program.name.to_string().as_str()));
    let skips = || NOTHING_TO_GAIN.iter().flat_map(|name| ["--skip", *name]);
    let job = |program: &Program| {
        let cmd = seeded(args, program.command().args(skips())).env(ladder::FORCE, &rung.name);
        Job::tests(format!("{}, kernel {}", program.name, rung.name), cmd)
    };
    coding.map(job).collect()
}

/// The engine's tests without its run-time compiler: what other architectures have, programs that are interpreted, in
/// every row.
const BARE: &str = "test -p gabion-engine --no-default-features --lib --test conformance --test vectors";

/// What cargo does while the tests with the engine's own choice of kernel run. First what later tests need.
fn beside(args: &Args, others: impl Iterator<Item = Job>) -> Vec<Job> {
    let lints = |packages: &str| Cmd::cargo(&format!("clippy {packages} -- -D warnings"));
    let documented = seeded(args, Cmd::cargo("test --workspace --doc").unset(ladder::FORCE));
    let documentation = Cmd::cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings");
    let commands = [
        ("test programs, without the compiler", programs::built_by(Cmd::cargo(BARE))),
        ("tests in the documentation", documented),
        ("documentation", documentation),
        ("lints, without the compiler", lints("-p gabion-engine --no-default-features --all-targets")),
        ("lints, without GPUs and Redis", lints("-p gabion --no-default-features")),
        // The whole workspace has the engine's measuring loops, which the program is built without.
        ("lints, the program alone", lints("-p gabion")),
    ];
    commands.into_iter().map(|(name, cmd)| Job::command(name, cmd)).chain(others).collect()
}

/// The tests with the engine's own choice of kernel, then down the ladder and with more inputs for decoders.
fn kernels(args: &Args, steps: &mut Steps) -> Result<()> {
    let built = steps.step("test programs", || build("test --workspace"))?;
    let programs = &built.programs;
    let (neon, python) = (neon(args, steps)?, python(args, steps)?);
    let commands = if args.quick { Vec::new() } else { beside(args, neon.into_iter().chain(python)) };
    run_jobs(steps, "tests, automatic kernel", automatic(args, programs), commands)?;
    if args.quick {
        for name in ["documentation, further lints, without the compiler", "tests, forced kernels", "fuzz"] {
            steps.skip(name, "--quick");
        }
        return Ok(());
    }
    let bare = steps.step("test programs, without the compiler", || build(BARE))?.programs;
    let without_the_compiler = |mut job: Job| {
        job.label += ", without the compiler";
        job
    };
    let mut jobs: Vec<Job> = automatic(args, &bare).into_iter().map(without_the_compiler).collect();
    let product = built.product.context("the build of the tests has no program `gabion`")?;
    steps.step("Debian package", || package::test(&product, args.full))?;
    let mut skipped = Vec::new();
    for rung in steps.step("kernel table", || ladder::rungs(&product))? {
        if rung.supported {
            jobs.extend(forced(args, programs, &rung));
        } else {
            skipped.push(rung);
        }
    }
    jobs.extend(fuzz(args, programs));
    run_jobs(steps, "tests, without the compiler, on each row, and fuzz", jobs, Vec::new())?;
    for rung in skipped {
        steps.skip(&format!("tests, kernel {}", rung.name), &format!("this CPU has no {}", rung.needs));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Args, FORCED, FUZZED, FUZZED_LONG, LONGEST, WAITING, fuzzed, skipped};
    use crate::programs::Name;
    use crate::shell::Cmd;

    /// A program that is renamed must be renamed in the lists, too: otherwise its tests would no longer run on each
    /// row.
    #[test]
    fn the_programs_of_the_lists_exist() {
        for name in FORCED.iter().chain(LONGEST).chain([&WAITING.0]) {
            assert!(name.parse::<Name>().unwrap().exists(), "{name}");
        }
    }

    /// A filter that matches no test would make the step pass without trying anything.
    #[test]
    fn fuzzed_modules_exist_and_inputs_are_counted() {
        let shown = |full| fuzzed(&Args { full, quick: false }, Cmd::new("program", [""; 0]), 4).to_string();
        let short = shown(false);
        assert!(short.contains("GABION_FUZZ_FACTOR=4") && short.contains("PROPTEST_RNG_SEED="), "{short}");
        assert!(!short.contains(FUZZED_LONG) && shown(true).contains(FUZZED_LONG), "{short}");
        let at = |path: &str| crate::root().join("crates").join(path).exists();
        let files = [
            "vault/src/hostile/tests.rs",
            "vault/src/format/header/tests.rs",
            "shard/src/format/tests.rs",
            "platform/src/fanotify/wire/tests.rs",
        ];
        assert_eq!(files.len(), FUZZED.len());
        assert!(files.iter().all(|path| at(path)) && at("engine/src/conformance/bytes.rs"), "{files:?}");
    }

    #[test]
    fn skips_are_listed_once_with_their_reasons() {
        let text = skipped("b\tno FUSE\na\twe are not root\nb\tno FUSE\n");
        assert_eq!(text.lines().skip(2).collect::<Vec<_>>(), ["  a: we are not root", "  b: no FUSE"]);
        assert!(text.contains("skipped: 2") && skipped("").contains("no test"));
    }
}
