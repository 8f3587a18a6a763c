use super::{Limits, ToolError, run};
use std::process::Command;
use std::time::Duration;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A deadline that only a hanging program reaches.
const PATIENT: Limits = Limits { deadline: Duration::from_secs(300), output: 1 << 20 };

#[test]
fn output_is_returned() {
    assert_eq!(run(&mut shell("printf 'a\\nb'"), PATIENT).unwrap(), b"a\nb");
    // More than a pipe holds.
    let long = run(&mut shell("head -c 500000 /dev/zero"), PATIENT).unwrap();
    assert_eq!(long.len(), 500_000);
}

#[test]
fn missing_and_failing_programs_say_why() {
    let missing = run(&mut Command::new("no-such-program-anywhere"), PATIENT).unwrap_err();
    assert!(
        matches!(&missing, ToolError::Missing(name) if name == "no-such-program-anywhere"),
        "{missing:?}"
    );
    let failed = run(&mut shell("echo; printf 'no\\033master\\n' >&2; exit 7"), PATIENT).unwrap_err();
    assert_eq!(failed.to_string(), "sh failed (exit code 7): no?master");
    let killed = run(&mut shell("kill -9 $$"), PATIENT).unwrap_err();
    assert_eq!(killed.to_string(), "sh failed (signal 9)");
    let silent = run(&mut shell("echo only here; exit 1"), PATIENT).unwrap_err();
    assert_eq!(silent.to_string(), "sh failed (exit code 1): only here");
}

/// The child of the shell holds the pipe open. It dies with its group, and nobody waits for the end of the output.
#[test]
fn a_program_that_hangs_is_killed_with_its_children() {
    let limits = Limits { deadline: Duration::from_millis(100), ..PATIENT };
    let marker = format!("{}.{}", std::process::id(), line!());
    let error = run(&mut shell(&format!("sleep 86400.{marker} & sleep 86400")), limits).unwrap_err();
    // On a slow machine it may be given up before it is gone.
    assert!(matches!(error, ToolError::Deadline { .. }), "{error:?}");
    gabion_testkit::until("the grandchild is gone", || {
        let all = Command::new("ps").args(["-eo", "args"]).output().unwrap();
        !String::from_utf8_lossy(&all.stdout).contains(&format!("86400.{marker}"))
    });
}

/// A grandchild that outlives the program and keeps its output open does not delay the result.
#[test]
fn the_end_of_the_program_is_enough() {
    let output = run(&mut shell("sleep 86400 & echo $$"), PATIENT).unwrap();
    let group = String::from_utf8(output).unwrap();
    let killed = Command::new("kill").args(["-9", "--", &format!("-{}", group.trim())]).status().unwrap();
    assert!(killed.success());
}

#[test]
fn output_without_end_is_refused() {
    let limits = Limits { output: 1000, ..PATIENT };
    let error = run(&mut shell("yes"), limits).unwrap_err();
    assert!(matches!(error, ToolError::TooMuch { limit: 1000, .. }), "{error:?}");
    assert_eq!(run(&mut shell("head -c 1000 /dev/zero"), limits).unwrap().len(), 1000);
}
