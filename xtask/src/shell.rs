//! One external command: how it is shown, and how it is run.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};

/// A command that can be printed exactly as one would type it.
#[derive(Clone)]
pub(crate) struct Cmd {
    program: String,
    args: Vec<String>,
    set: Vec<(String, String)>,
    unset: Vec<String>,
    dir: Option<String>,
}

impl Cmd {
    pub(crate) fn new<S: Into<String>>(program: &str, args: impl IntoIterator<Item = S>) -> Cmd {
        Cmd {
            program: program.to_owned(),
            args: args.into_iter().map(Into::into).collect(),
            set: Vec::new(),
            unset: Vec::new(),
            dir: None,
        }
    }

    /// A `cargo` command written as one line of words.
    pub(crate) fn cargo(line: &str) -> Cmd {
        Cmd::new("cargo", line.split_whitespace())
    }

    pub(crate) fn args<S: Into<String>>(mut self, more: impl IntoIterator<Item = S>) -> Cmd {
        self.args.extend(more.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Cmd {
        self.set.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Hides a variable of the caller's environment from the command.
    pub(crate) fn unset(mut self, name: &str) -> Cmd {
        self.unset.push(name.to_owned());
        self
    }

    pub(crate) fn dir(mut self, dir: &str) -> Cmd {
        self.dir = Some(dir.to_owned());
        self
    }

    /// The command, to be started in another way.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        for name in &self.unset {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }

    /// Runs with this terminal's input and output and returns how it ended.
    pub(crate) fn status(&self) -> Result<ExitStatus> {
        self.command().status().with_context(|| format!("cannot start `{self}`"))
    }

    /// Runs with this terminal's input and output; anything but success is an error.
    pub(crate) fn run(&self) -> Result<()> {
        let status = self.status()?;
        ensure!(status.success(), "`{self}` failed: {status}");
        Ok(())
    }

    /// As [`Cmd::run`]; what is printed goes to `hear` as well, line by line.
    pub(crate) fn run_heard(&self, mut hear: impl FnMut(&str)) -> Result<()> {
        let mut child = self
            .command()
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{self}`"))?;
        let mut output = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            hear(&text);
            line.clear();
        }
        let status = child.wait()?;
        ensure!(status.success(), "`{self}` failed: {status}");
        Ok(())
    }

    /// Runs and returns what was printed; messages still go to the terminal.
    pub(crate) fn capture(&self) -> Result<String> {
        let output = self
            .command()
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start `{self}`"))?;
        ensure!(output.status.success(), "`{self}` failed: {}", output.status);
        String::from_utf8(output.stdout).with_context(|| format!("output of `{self}`"))
    }

    /// What was printed, whether or not it succeeded, with messages thrown away; `None` when the
    /// program does not exist.
    pub(crate) fn probe(&self) -> Option<String> {
        let output = self.command().stderr(Stdio::null()).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(dir) = &self.dir {
            write!(f, "cd {} && ", quoted(dir))?;
        }
        for (name, value) in &self.set {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// Quotes a word where a POSIX shell would otherwise split or expand it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::Cmd;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let cmd = Cmd::cargo("test -p x").args(["it's"]).env("FLAGS", "-D warnings").dir("a b");
        assert_eq!(cmd.to_string(), r"cd 'a b' && FLAGS='-D warnings' cargo test -p x 'it'\''s'");
    }

    #[test]
    fn failure_names_the_command_and_its_exit_status() {
        let error = Cmd::new("sh", ["-c", "exit 3"]).run().unwrap_err().to_string();
        assert_eq!(error, "`sh -c 'exit 3'` failed: exit status: 3");
        let error = Cmd::new("no-such-program", ["x"]).run().unwrap_err().to_string();
        assert_eq!(error, "cannot start `no-such-program x`");
    }

    #[test]
    fn every_line_is_heard_also_of_what_fails() {
        let mut heard = String::new();
        let talks = Cmd::new("sh", ["-c", "echo one; printf two; exit 4"]);
        let error = talks.run_heard(|line| heard += line).unwrap_err().to_string();
        assert!(error.ends_with("failed: exit status: 4"), "{error}");
        assert_eq!(heard, "one\ntwo");
    }

    #[test]
    fn variables_are_set_and_hidden() {
        let echo = Cmd::new("sh", ["-c", "echo ${HOME-none} ${RUNG-none}"]);
        assert_eq!(echo.unset("HOME").env("RUNG", "7").capture().unwrap(), "none 7\n");
    }
}
