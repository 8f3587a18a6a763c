//! One test program: its name, where cargo put it, and how it is run.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell::Cmd;

/// Name of a suite: `gabion-vault:monitor`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(super) package: String,
    /// A file or directory of `tests/`, or `lib` or `bins` for the tests within the sources.
    pub(super) suite: String,
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        match text.split_once(':') {
            Some((package, suite)) if !package.is_empty() && !suite.is_empty() => {
                Ok(Name { package: package.to_owned(), suite: suite.to_owned() })
            }
            _ => Err(format!("{text}: a suite is CRATE:SUITE, as in gabion-vault:monitor")),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.package, self.suite)
    }
}

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
    /// Runs all tests once. Their output goes to a file, not through a pipe: a process that a test leaves behind would keep a pipe open.
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

/// Builds the suites in one call of cargo and asks each for its tests. `prepare` adds variables to the commands that run tests.
pub(super) fn build(
    names: &[Name],
    filter: Option<&str>,
    prepare: &dyn Fn(Cmd) -> Cmd,
) -> Result<Vec<Suite>> {
    let cmd = build_command(names);
    println!("    {cmd}");
    let built = cmd.capture()?;
    let found = |name| {
        let (program, directory) = executable(&built, name).with_context(|| format!("no suite {name}"))?;
        let command = Cmd::new(&program.to_string_lossy(), filter).dir(&directory.to_string_lossy());
        let command = prepare(command.env("CARGO_MANIFEST_DIR", &directory.to_string_lossy()));
        println!("    {command}");
        let tests = listed(&command.clone().args(["--list"]).capture()?);
        Ok(Suite { name: name.clone(), tests, command })
    };
    names.iter().map(found).collect()
}

/// The whole workspace, as in `cargo xtask test`: for a part of it cargo chooses other features and compiles nearly everything once more.
fn build_command(names: &[Name]) -> Cmd {
    let mut suites: Vec<&str> = names.iter().map(|name| name.suite.as_str()).collect();
    suites.sort_unstable();
    suites.dedup();
    let cmd = Cmd::cargo("test --workspace --no-run --message-format json-render-diagnostics");
    suites.iter().fold(cmd, |cmd, suite| match *suite {
        "lib" => cmd.args(["--lib"]),
        "bins" => cmd.args(["--bins"]),
        suite => cmd.args(["--test", suite]),
    })
}

/// Where cargo put the test program, and the directory of its package, in which it has to run.
fn executable(built: &str, name: &Name) -> Option<(PathBuf, PathBuf)> {
    let messages = built.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_it = |it: &Value| {
        let target = &it["target"];
        let matches = match name.suite.as_str() {
            "lib" => target["kind"][0] == "lib",
            "bins" => target["kind"][0] == "bin",
            suite => target["kind"][0] == "test" && target["name"] == suite,
        };
        // A package is named `path+file:///…/crates/vault#gabion-vault@0.4.0`, or without the name if the directory has it.
        let package = it["package_id"].as_str().unwrap_or_default();
        let (path, rest) = package.rsplit_once('#').unwrap_or((package, ""));
        let named =
            rest.split_once('@').map_or(path.rsplit('/').next().unwrap_or_default(), |(name, _)| name);
        matches && it["profile"]["test"] == true && named == name.package
    };
    messages.filter(is_it).find_map(|it| {
        let directory = Path::new(it["manifest_path"].as_str()?).parent()?.to_owned();
        Some((PathBuf::from(it["executable"].as_str()?), directory))
    })
}

/// Names of the tests in the output of `--list`.
fn listed(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{Name, build_command, executable, listed};
    use std::path::Path;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn suites_are_named_by_crate_and_file() {
        assert_eq!(name("gabion-vault:monitor").to_string(), "gabion-vault:monitor");
        for wrong in ["monitor", ":monitor", "gabion-vault:", ""] {
            assert!(wrong.parse::<Name>().unwrap_err().contains("CRATE:SUITE"), "{wrong}");
        }
    }

    #[test]
    fn all_suites_are_built_in_one_call() {
        let names = ["a:x", "a:lib", "b:x", "b:y"].map(name);
        let built = build_command(&names).to_string();
        assert!(built.ends_with(" --lib --test x --test y"), "{built}");
    }

    /// Two packages have suites of one name, and cargo reports the program that tests run beside the test program.
    #[test]
    fn the_program_of_the_right_package_is_found() {
        let message = |package: &str, kind: &str, name: &str, test: bool, program: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///r/crates/{package}","manifest_path":"/r/{program}/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":{test}}},"executable":"/t/{program}"}}"#
            )
        };
        let built = [
            message("gabion#0.1.0", "bin", "gabion", false, "program"),
            message("vault#gabion-vault@0.1.0", "test", "vault", true, "library"),
            message("gabion#0.1.0", "test", "vault", true, "command"),
            message("gabion#0.1.0", "bin", "gabion", true, "unit"),
            "not JSON".to_owned(),
        ]
        .join("\n");
        let found = |text: &str| executable(&built, &name(text)).map(|(program, _)| program);
        assert_eq!(found("gabion-vault:vault").unwrap(), Path::new("/t/library"));
        assert_eq!(found("gabion:vault").unwrap(), Path::new("/t/command"));
        assert_eq!(found("gabion:bins").unwrap(), Path::new("/t/unit"));
        assert_eq!(found("gabion:watch"), None);
        let (_, directory) = executable(&built, &name("gabion:vault")).unwrap();
        assert_eq!(directory, Path::new("/r/command"));
    }

    #[test]
    fn tests_are_listed_and_benchmarks_are_not() {
        assert_eq!(listed("a::b: test\nc: benchmark\n\n1 test, 1 benchmark\n"), ["a::b"]);
    }
}
