//! One test program with the tests that are wanted of it, and how it is run.

use std::fs::File;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::programs::{self, Name};
use crate::shell::Cmd;

/// How a run ended.
pub(super) enum End {
    Exited(ExitStatus),
    /// It was killed because it took longer than the limit.
    Limit,
}

/// A test program that was built, with the tests that are wanted of it.
pub(super) struct Suite {
    pub(super) name: Name,
    pub(super) tests: Vec<String>,
    command: Cmd,
}

impl Suite {
    /// Runs all tests once. Their output goes to a file, not through a pipe: a process that a test leaves behind
    /// would keep a pipe open.
    pub(super) fn run(&self, output: &Path, limit: u64) -> Result<End> {
        let file = File::create(output).with_context(|| format!("creating {}", output.display()))?;
        let errors = file.try_clone().with_context(|| format!("opening {}", output.display()))?;
        let mut command = self.command.command();
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let mut child = command.spawn().with_context(|| format!("cannot start `{}`", self.command))?;
        for _ in 0..limit * 10 {
            if let Some(status) = child.try_wait()? {
                return Ok(End::Exited(status));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        child.kill()?;
        child.wait()?;
        Ok(End::Limit)
    }
}

/// Builds the suites in one call of cargo and asks each for its tests. `prepare` adds variables to the commands that
/// run tests.
pub(super) fn build(
    names: &[Name],
    filter: Option<&str>,
    prepare: &dyn Fn(Cmd) -> Cmd,
) -> Result<Vec<Suite>> {
    let programs = programs::build(build_command(names))?.programs;
    let found = |name: &Name| {
        let program = programs.iter().find(|program| program.name == *name);
        let program = program.with_context(|| format!("no suite {name}"))?;
        let command = prepare(program.command().args(filter));
        println!("    {command}");
        let all = listed(&command.clone().args(["--list"]).capture()?);
        let ignored = listed(&command.clone().args(["--list", "--ignored"]).capture()?);
        let tests = all.into_iter().filter(|test| !ignored.contains(test)).collect();
        Ok(Suite { name: name.clone(), tests, command })
    };
    names.iter().map(found).collect()
}

/// The whole workspace, as in `cargo xtask test`: for a part of it cargo chooses other features and compiles nearly
/// everything once more.
fn build_command(names: &[Name]) -> Cmd {
    let mut suites: Vec<&str> = names.iter().map(|name| name.suite.as_str()).collect();
    suites.sort_unstable();
    suites.dedup();
    suites.iter().fold(Cmd::cargo("test --workspace"), |cmd, suite| match *suite {
        "lib" => cmd.args(["--lib"]),
        "bins" => cmd.args(["--bins"]),
        suite => cmd.args(["--test", suite]),
    })
}

/// Names of the tests in the output of `--list`.
fn listed(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{build_command, listed};

    #[test]
    fn all_suites_are_built_in_one_call() {
        let names = ["a:x", "a:lib", "b:x", "b:y"].map(|name| name.parse().unwrap());
        let built = build_command(&names).to_string();
        assert!(built.ends_with(" --lib --test x --test y"), "{built}");
    }

    #[test]
    fn tests_are_listed_and_benchmarks_are_not() {
        assert_eq!(listed("a::b: test\nc: benchmark\n\n1 test, 1 benchmark\n"), ["a::b"]);
    }
}
