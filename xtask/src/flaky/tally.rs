//! Runs and failures per test.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::suite::{End, Suite};

/// Results of one test.
#[derive(Default)]
struct Count {
    runs: u32,
    /// Files with the output of the runs that failed.
    failures: Vec<PathBuf>,
}

/// Results of all tests, by suite and name.
#[derive(Default)]
pub(super) struct Tally(BTreeMap<(String, String), Count>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// It has `#[ignore]` and was not asked for.
    Ignored,
}

impl Tally {
    /// Adds one run of a suite. Returns the tests that failed in it; a test without a result failed as well: the
    /// program ended before.
    pub(super) fn add(&mut self, suite: &Suite, text: &str, end: &End, output: &Path) -> Vec<String> {
        let failed = self.add_output(&suite.name.to_string(), &suite.tests, text, output);
        // It says that all went well and ends with an error: something outside of the tests failed.
        match end {
            End::Exited(status) if !status.success() && failed.is_empty() => {
                self.add_failure(&suite.name.to_string(), output)
            }
            _ => failed,
        }
    }

    fn add_output(&mut self, suite: &str, tests: &[String], text: &str, output: &Path) -> Vec<String> {
        let outcomes = outcomes(text);
        let mut failed = Vec::new();
        for test in tests {
            if outcomes.get(test.as_str()) == Some(&Outcome::Ignored) {
                continue;
            }
            let count = self.0.entry((suite.to_owned(), test.clone())).or_default();
            match outcomes.get(test.as_str()) {
                Some(Outcome::Passed) => count.runs += 1,
                _ => {
                    count.runs += 1;
                    count.failures.push(output.to_owned());
                    failed.push(test.clone());
                }
            }
        }
        failed
    }

    fn add_failure(&mut self, suite: &str, output: &Path) -> Vec<String> {
        let whole = "(the suite itself)".to_owned();
        let count = self.0.entry((suite.to_owned(), whole.clone())).or_default();
        count.runs += 1;
        count.failures.push(output.to_owned());
        vec![whole]
    }

    pub(super) fn has_failures(&self) -> bool {
        self.0.values().any(|count| !count.failures.is_empty())
    }
}

impl fmt::Display for Tally {
    /// One line per test; those that failed come last, with the files that have their output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>5} {:>8}  test", "runs", "failures")?;
        for failing in [false, true] {
            let chosen = self.0.iter().filter(|(_, count)| count.failures.is_empty() != failing);
            for ((suite, test), count) in chosen {
                writeln!(f, "{:>5} {:>8}  {suite} {test}", count.runs, count.failures.len())?;
                count.failures.iter().try_for_each(|path| writeln!(f, "{:>14}  {}", "", path.display()))?;
            }
        }
        let failing = self.0.values().filter(|count| !count.failures.is_empty()).count();
        writeln!(f, "{} tests, {failing} of them failed at least once", self.0.len())
    }
}

/// Results in the output of a test program: `test NAME ... ok`.
fn outcomes(text: &str) -> BTreeMap<&str, Outcome> {
    text.lines().filter_map(outcome).collect()
}

/// The result in one line. What a test or its children print without being captured may stand before it on the same
/// line, or between name and result.
fn outcome(line: &str) -> Option<(&str, Outcome)> {
    let (at, _) = line.match_indices("test ").find(|(at, word)| {
        let rest = &line[at + word.len()..];
        rest.split_once(" ... ").is_some_and(|(name, _)| !bare(name).contains(' '))
    })?;
    let (name, result) = line[at + "test ".len()..].split_once(" ... ")?;
    let outcome = match result {
        ignored if ignored == "ignored" || ignored.starts_with("ignored, ") => Outcome::Ignored,
        passed if passed.ends_with("ok") => Outcome::Passed,
        _ => Outcome::Failed,
    };
    Some((bare(name), outcome))
}

/// A test's name as `--list` has it.
fn bare(name: &str) -> &str {
    name.strip_suffix(" - should panic").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Tally, outcomes};
    use std::path::Path;

    #[test]
    fn results_are_read_from_the_output() {
        let text = "running 4 tests\ntest a::b ... ok\ntest c - should panic ... ok\ntest d ... FAILED\n\
                    test e ... ignored, the test is slow ... very\n\nfailures:\n    d\n\ntest result: FAILED. 2 passed\n";
        let found = outcomes(text);
        assert_eq!(found["a::b"], Outcome::Passed);
        assert_eq!(found["c"], Outcome::Passed);
        assert_eq!(found["d"], Outcome::Failed);
        assert_eq!(found["e"], Outcome::Ignored);
        assert_eq!(found.len(), 4);
        assert_eq!(outcomes("a test of noise test f ... some test ok")["f"], Outcome::Passed);
    }

    /// A test program that aborts in the middle says nothing of the test that did it: such a test must not count as
    /// passed.
    #[test]
    fn a_test_without_a_result_has_failed() {
        let tests = ["a".to_owned(), "b".to_owned()];
        let mut tally = Tally::default();
        assert!(tally.add_output("s", &tests, "test a ... ok\ntest b ... ok\n", Path::new("1")).is_empty());
        assert!(!tally.has_failures());
        assert_eq!(tally.add_output("s", &tests, "test a ... ok\n", Path::new("2")), ["b"]);
        assert!(tally.has_failures());
        let lines: Vec<String> = tally.to_string().lines().map(|line| line.trim().to_owned()).collect();
        let expected = ["runs failures  test", "2        0  s a", "2        1  s b", "2"];
        assert_eq!(lines[..4], expected);
        assert_eq!(lines[4], "2 tests, 1 of them failed at least once");
    }

    #[test]
    fn an_ignored_test_has_neither_run_nor_failed() {
        let tests = ["a", "b", "c"].map(str::to_owned);
        let text = "test a ... ok\ntest b ... ignored, takes minutes: `cargo xtask test --full` runs it\n\
                    test c ... ignored\n";
        let mut tally = Tally::default();
        assert_eq!(tally.add_output("s", &tests, text, Path::new("1")), Vec::<String>::new());
        assert_eq!(tally.to_string().lines().last(), Some("1 tests, 0 of them failed at least once"));
    }
}
