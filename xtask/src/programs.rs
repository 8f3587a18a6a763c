//! Test programs: one call of cargo builds them, then they run side by side.
//!
//! `cargo test` runs one program after the other. Most of ours wait for disks, processes and timers, so that the
//! processors idle half of the time.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell::Cmd;

/// Name of a suite: `gabion-vault:monitor`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) package: String,
    /// A file or directory of `tests/`, or `lib` or `bins` for the tests within the sources.
    pub(crate) suite: String,
}

#[cfg(test)]
impl Name {
    /// Whether the repository has such a suite.
    pub(crate) fn exists(&self) -> bool {
        let directory = crate::root().join("crates").join(self.package.trim_start_matches("gabion-"));
        match self.suite.as_str() {
            "lib" => directory.join("src/lib.rs").exists(),
            suite => {
                ["", "/main"].iter().any(|end| directory.join(format!("tests/{suite}{end}.rs")).exists())
            }
        }
    }
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

/// A test program that was built.
pub(crate) struct Program {
    pub(crate) name: Name,
    path: PathBuf,
    /// The directory of its package, in which it has to run.
    directory: PathBuf,
}

impl Program {
    /// The command that runs all its tests.
    pub(crate) fn command(&self) -> Cmd {
        let directory = self.directory.to_string_lossy();
        Cmd::new(&self.path.to_string_lossy(), [""; 0]).dir(&directory).env("CARGO_MANIFEST_DIR", &directory)
    }
}

/// What a call of `cargo test` has built.
pub(crate) struct Built {
    /// The programs that it would have run.
    pub(crate) programs: Vec<Program>,
    /// The program `gabion`, which tests run.
    pub(crate) product: Option<PathBuf>,
}

/// Builds with a call of `cargo test`.
pub(crate) fn build(cargo_test: Cmd) -> Result<Built> {
    let cmd = built_by(cargo_test);
    println!("    {cmd}");
    let told = cmd.capture()?;
    Ok(Built { programs: listed(&told), product: product(&told) })
}

/// The command of [`build`].
pub(crate) fn built_by(cargo_test: Cmd) -> Cmd {
    cargo_test.args(["--no-run", "--message-format", "json-render-diagnostics"])
}

fn product(built: &str) -> Option<PathBuf> {
    let messages = built.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| {
        let (target, is_test) = (&message["target"], &message["profile"]["test"]);
        target["name"] == "gabion" && target["kind"][0] == "bin" && *is_test == false
    });
    programs.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The test programs among all that cargo says of what it built.
fn listed(built: &str) -> Vec<Program> {
    built.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?)).collect()
}

fn program(message: &Value) -> Option<Program> {
    let target = &message["target"];
    let suite = match target["kind"][0].as_str()? {
        "test" => target["name"].as_str()?,
        "bin" => "bins",
        kind => kind,
    };
    // A package is named `path+file:///…/crates/vault#gabion-vault@0.4.0`, or without the name if the directory has it.
    let (path, rest) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = rest.split_once('@').map_or(path.rsplit('/').next()?, |(name, _)| name);
    if message["profile"]["test"] != true {
        return None;
    }
    Some(Program {
        name: Name { package: package.to_owned(), suite: suite.to_owned() },
        path: PathBuf::from(message["executable"].as_str()?),
        directory: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
    })
}

/// One run of a test program, or a command of cargo.
pub(crate) struct Job {
    /// How it is called in what is printed.
    pub(crate) label: String,
    cmd: Cmd,
    /// Whether it says at its end how many tests passed.
    tests: bool,
}

impl Job {
    pub(crate) fn tests(label: String, cmd: Cmd) -> Job {
        Job { label, cmd, tests: true }
    }

    pub(crate) fn command(label: &str, cmd: Cmd) -> Job {
        Job { label: label.to_owned(), cmd, tests: false }
    }
}

/// How a job ended.
pub(crate) struct Ended {
    pub(crate) label: String,
    pub(crate) took: Duration,
    /// What it said, if it failed.
    pub(crate) failure: Option<String>,
}

/// Runs the jobs in their order, `at_once` of them side by side, and beside them the commands `one_by_one`: all
/// whatever fails. Prints a line for each that has ended.
///
/// Their output goes to files below `directory`, not through pipes: a process that a test leaves behind would keep a
/// pipe open.
pub(crate) fn run(
    jobs: Vec<Job>,
    at_once: usize,
    one_by_one: Vec<Job>,
    directory: &Path,
) -> Result<Vec<Ended>> {
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let work = |job: Job| {
        let began = Instant::now();
        let failure = run_one(&job, directory).unwrap_or_else(|error| Some(format!("{error:#}\n")));
        let failure = failure.map(|said| format!("{}\n    {}\n{said}", job.label, job.cmd));
        Ended { label: job.label, took: began.elapsed(), failure }
    };
    std::thread::scope(|scope| {
        let commands = scope.spawn(|| side_by_side(one_by_one, 1, work));
        let mut ended = side_by_side(jobs, at_once, work);
        match commands.join() {
            Ok(commands) => ended.extend(commands),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(ended)
    })
}

/// Does `work` for each item, `at_once` of them side by side, and returns the results in the order in which they came.
pub(crate) fn side_by_side<T: Send, R: Send>(
    items: Vec<T>,
    at_once: usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let queue = Mutex::new(VecDeque::from(items));
    let results = Mutex::new(Vec::new());
    // A panic of `work` ends the program when the scope ends, so that a poisoned lock is not met after it.
    let next = || queue.lock().expect("no thread panics with the queue").pop_front();
    std::thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                while let Some(item) = next() {
                    let result = work(item);
                    results.lock().expect("no thread panics with the results").push(result);
                }
            });
        }
    });
    results.into_inner().expect("the scope ended without a panic")
}

/// Runs one job; what it said if it failed.
fn run_one(job: &Job, directory: &Path) -> Result<Option<String>> {
    let file: String = job.label.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let path = directory.join(format!("{file}.txt"));
    let output = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let errors = output.try_clone().with_context(|| format!("opening {}", path.display()))?;
    let began = Instant::now();
    let mut command = job.cmd.command();
    let status = command.stdin(Stdio::null()).stdout(output).stderr(errors).status();
    let status = status.with_context(|| format!("cannot start `{}`", job.cmd))?;
    let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let result = text.lines().rev().find_map(|line| line.strip_prefix("test result: "));
    let passed = status.success() && (result.is_some() || !job.tests);
    let said = if job.tests {
        "no result"
    } else if passed {
        "ok"
    } else {
        "FAILED"
    };
    let result = result.and_then(|result| result.split_once("; finished")).map_or(said, |(head, _)| head);
    println!("    {:.1} s  {}: {result}", began.elapsed().as_secs_f64(), job.label);
    Ok((!passed).then(|| failure(&text, &status.to_string())))
}

/// What a test program says of the tests that failed, or all of it if it ended before it could.
fn failure(text: &str, status: &str) -> String {
    let from = text.find("\nfailures:\n").map_or(0, |at| at + 1);
    format!("{}\n{status}\n", text[from..].trim_end())
}

#[cfg(test)]
mod tests {
    use super::{Job, Name, listed, product, run};
    use crate::shell::Cmd;
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
            message("gabion#0.1.0", "lib", "gabion", true, "inner"),
            "not JSON".to_owned(),
        ]
        .join("\n");
        let programs = listed(&built);
        let found: Vec<_> =
            programs.iter().map(|it| (it.name.to_string(), it.path.to_str().unwrap())).collect();
        let expected = [
            ("gabion-vault:vault", "/t/library"),
            ("gabion:vault", "/t/command"),
            ("gabion:bins", "/t/unit"),
            ("gabion:lib", "/t/inner"),
        ];
        assert_eq!(found, expected.map(|(name, path)| (name.to_owned(), path)));
        assert_eq!(programs[1].directory, Path::new("/r/command"));
        assert_eq!(product(&built).as_deref(), Some(Path::new("/t/program")));
        assert_eq!(product("not JSON"), None);
    }

    /// Whatever fails, all run. A program that says nothing of its tests has failed, whatever its exit code is.
    #[test]
    fn all_jobs_run_and_failures_are_kept() {
        let directory = crate::root().join("target/tmp").join(format!("programs-{}", std::process::id()));
        let job = |label: &str, script: &str| Job::tests(label.to_owned(), Cmd::new("sh", ["-c", script]));
        let good = "echo 'test result: ok. 3 passed; 0 failed; finished in 1 s'";
        let jobs = vec![
            job(
                "bad",
                "echo; echo noise; echo; echo failures:; echo; echo a said; echo 'test result: FAILED'; exit 101",
            ),
            job("good", good),
            job("silent", "exit 0"),
            job("liar", &format!("{good}; exit 3")),
            job("none", "exec no-such-program"),
        ];
        let command = |label: &str, script: &str| Job::command(label, Cmd::new("sh", ["-c", script]));
        let commands = vec![command("ill", "echo why; exit 1"), command("well", "true")];
        let ended = run(jobs, 2, commands, &directory).unwrap();
        assert_eq!(ended.len(), 7);
        let mut failures: Vec<String> = ended.into_iter().filter_map(|it| it.failure).collect();
        failures.sort();
        std::fs::remove_dir_all(&directory).unwrap();
        let labels: Vec<&str> = failures.iter().map(|text| text.lines().next().unwrap()).collect();
        assert_eq!(labels, ["bad", "ill", "liar", "none", "silent"]);
        assert!(failures[1].contains("why\nexit status: 1"), "{}", failures[1]);
        assert!(
            failures[0].contains("a said") && !failures[0].contains("noise\n\nfailures"),
            "{}",
            failures[0]
        );
        assert!(failures[2].contains("exit status: 3"), "{}", failures[2]);
    }
}
