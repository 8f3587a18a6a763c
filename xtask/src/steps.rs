//! Named steps, each with its time, and the table at the end.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::programs::{self, Job};
use crate::shell::Cmd;

enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

struct Row {
    name: String,
    outcome: Outcome,
    took: Duration,
}

/// The steps done so far.
pub(crate) struct Steps {
    began: Instant,
    rows: Vec<Row>,
    /// What the tests that failed said.
    failures: String,
}

impl Steps {
    pub(crate) fn new() -> Steps {
        Steps { began: Instant::now(), rows: Vec::new(), failures: String::new() }
    }

    /// Announces a step, does its work and notes how it ended.
    pub(crate) fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("==> {name}");
        let began = Instant::now();
        let result = work();
        let took = began.elapsed();
        let (word, outcome) = match result {
            Ok(_) => ("ok", Outcome::Passed),
            Err(_) => ("FAILED", Outcome::Failed),
        };
        println!("<== {name}: {word}, {}", seconds(took));
        self.rows.push(Row { name: name.to_owned(), outcome, took });
        result
    }

    /// A step that is one command, shown before it runs.
    pub(crate) fn command(&mut self, name: &str, cmd: &Cmd) -> Result<()> {
        self.step(name, || {
            println!("    {cmd}");
            cmd.run()
        })
    }

    /// A step that is one `cargo test`. What it says of tests that fail is kept.
    pub(crate) fn tests(&mut self, name: &str, cmd: &Cmd) -> Result<()> {
        let mut failures = String::new();
        let result = self.step(name, || {
            println!("    {cmd}");
            cmd.run_heard(|line| {
                // So begins what a test program says of them, at its end; the next program is not run then.
                if !failures.is_empty() || line == "failures:\n" {
                    failures += line;
                }
            })
        });
        if result.is_err() {
            self.failures = failures;
        }
        result
    }

    /// A step that runs test programs side by side, and beside them commands of cargo, one by one, each with a line
    /// of its own in the table. What they say of tests that fail is kept.
    pub(crate) fn programs(
        &mut self,
        name: &str,
        jobs: Vec<Job>,
        at_once: usize,
        commands: Vec<Job>,
    ) -> Result<()> {
        let mut ended = Vec::new();
        let names: Vec<String> = commands.iter().map(|job| job.label.clone()).collect();
        let result = self.step(name, || {
            println!("    {} programs, {at_once} at once", jobs.len());
            ended = programs::run(jobs, at_once, commands, &crate::root().join("target/tests"))?;
            let failed = ended.iter().filter(|job| job.failure.is_some()).count();
            ensure!(failed == 0, "{failed} of {} test programs and commands failed", ended.len());
            Ok(())
        });
        for job in ended.iter().filter(|job| names.contains(&job.label)) {
            let outcome = if job.failure.is_some() { Outcome::Failed } else { Outcome::Passed };
            self.rows.push(Row { name: format!("  beside it: {}", job.label), outcome, took: job.took });
        }
        if result.is_err() {
            self.failures = ended.into_iter().filter_map(|job| job.failure).collect::<Vec<_>>().join("\n");
        }
        result
    }

    /// What the tests that failed said, to be shown once more behind the table: nobody looks for it above the lines
    /// of hundreds of tests.
    pub(crate) fn failures(&self) -> &str {
        &self.failures
    }

    /// A step that is not done, with the reason; it stays visible in the table.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        println!("==> {name}: SKIP ({why})");
        let outcome = Outcome::Skipped(why.to_owned());
        self.rows.push(Row { name: name.to_owned(), outcome, took: Duration::ZERO });
    }

    /// One line per step and the total time.
    pub(crate) fn table(&self) -> String {
        let name_width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(5);
        let line = |name: &str, time: &str, outcome: &str| {
            format!("{name:name_width$}  {time:>9}  {outcome}").trim_end().to_owned() + "\n"
        };
        let mut table = line("step", "time", "result");
        for row in &self.rows {
            table += &match &row.outcome {
                Outcome::Passed => line(&row.name, &seconds(row.took), "ok"),
                Outcome::Failed => line(&row.name, &seconds(row.took), "FAILED"),
                Outcome::Skipped(why) => line(&row.name, "-", &format!("SKIP ({why})")),
            };
        }
        table + &line("total", &seconds(self.began.elapsed()), "")
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::Steps;
    use crate::shell::Cmd;
    use anyhow::bail;

    #[test]
    fn the_table_tells_passed_failed_and_skipped_apart() {
        let mut steps = Steps::new();
        assert_eq!(steps.step("one", || Ok(7)).unwrap(), 7);
        steps.skip("two", "no reason");
        let error = steps.step("three", || -> anyhow::Result<()> { bail!("broken") }).unwrap_err();
        assert_eq!(error.to_string(), "broken");
        let table = steps.table();
        let ends: Vec<&str> = table.lines().map(|l| l.split_whitespace().last().unwrap()).collect();
        assert_eq!(ends, ["result", "ok", "reason)", "FAILED", "s"]);
    }

    #[test]
    fn what_failed_tests_say_is_kept() {
        let mut steps = Steps::new();
        let says = |end: &str| Cmd::new("sh", ["-c", &format!("echo test a ... FAILED; {end}")]);
        steps.tests("none fail", &says("echo failures: 0")).unwrap();
        assert_eq!(steps.failures(), "");
        steps.tests("one fails", &says("echo; echo failures:; echo; echo a said; exit 101")).unwrap_err();
        assert_eq!(steps.failures(), "failures:\n\na said\n");
    }
}
