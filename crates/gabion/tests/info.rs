//! `gabion info` as a user runs it.

use gabion_engine::kernel::{Backend, KERNEL_VARIABLE, kernel_sets};
use serde_json::Value;
use std::process::{Command, Output};

fn info(kernel: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
    command.arg("info").args(arguments).env_remove(KERNEL_VARIABLE);
    if let Some(kernel) = kernel {
        command.env(KERNEL_VARIABLE, kernel);
    }
    command.output().expect("the program starts")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn json_lists_every_row_of_the_table() {
    let info = json(&info(None, &["--json"]));
    let kernels = info["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), kernel_sets().len());
    for (kernel, row) in kernels.iter().zip(kernel_sets()) {
        assert_eq!(kernel["name"], row.name());
        assert_eq!(kernel["needs"], row.needs());
        assert_eq!(kernel["supported"], row.supported());
        assert_eq!(kernel["gb_per_s"].as_f64().is_some_and(|speed| speed > 0.0), row.supported());
    }
    let chosen: Vec<&Value> = kernels.iter().filter(|kernel| kernel["chosen"] == true).collect();
    assert_eq!(chosen.len(), 1);
    assert_eq!(chosen[0]["supported"], true);
    // Unforced, none is faster than the chosen one by more than a quarter.
    let speeds = kernels.iter().filter_map(|kernel| kernel["gb_per_s"].as_f64());
    assert!(chosen[0]["gb_per_s"].as_f64().unwrap() >= 0.79 * speeds.fold(0.0, f64::max), "{info}");
    assert_eq!(info["chosen_because"], "measured");
    assert_eq!((&info["program"], &info["version"]), (&env!("CARGO_PKG_VERSION").into(), &1.into()));
    assert!(info["threads"].as_u64().unwrap() >= 1);
    let threshold = |name: &str| info["thresholds"][name].as_u64().unwrap();
    assert_eq!(threshold("stream_bytes"), 8 * threshold("input_tile_bytes"), "twice and a quarter of L2");
    assert!((1..threshold("stream_bytes")).contains(&threshold("near_bytes")), "{info}");
    assert_eq!(info["cpu"]["architecture"], std::env::consts::ARCH);
    assert!(info["cpu"]["caches"].is_array());
}

/// Every library has devices or a reason why not, never both.
#[cfg(feature = "gpu")]
#[test]
fn devices_are_listed_or_their_absence_is_explained() {
    let info = json(&info(None, &["--json"]));
    let libraries = info["devices"].as_array().unwrap();
    let names: Vec<&str> = libraries.iter().map(|library| library["api"].as_str().unwrap()).collect();
    assert_eq!(names, ["cuda", "opencl"]);
    for library in libraries {
        let found = library["found"].as_array().unwrap();
        assert_eq!(found.is_empty(), library["missing"].is_string(), "{library}");
        assert!(found.iter().all(|device| device["name"].is_string()), "{library}");
    }
}

#[test]
fn every_kernel_that_runs_can_be_forced() {
    for row in kernel_sets().iter().filter(|row| row.supported()) {
        let info = json(&info(Some(row.name()), &["--json"]));
        let chosen = info["kernels"].as_array().unwrap().iter().filter(|kernel| kernel["chosen"] == true);
        let names: Vec<&str> = chosen.map(|kernel| kernel["name"].as_str().unwrap()).collect();
        assert_eq!(names, [row.name()]);
    }
}

/// The scalar row is never the fastest where there is another, so that force is the only reason.
#[test]
fn force_is_given_as_the_reason() {
    if kernel_sets().iter().filter(|row| row.supported()).count() < 2 {
        eprintln!("SKIP: this CPU has the scalar row only");
        return;
    }
    assert_eq!(json(&info(Some("scalar"), &["--json"]))["chosen_because"], "forced");
    let table = String::from_utf8(info(Some("scalar"), &[]).stdout).unwrap();
    let line = table.lines().find(|line| line.starts_with("scalar")).unwrap();
    assert!(line.ends_with("chosen: forced by GABION_KERNEL"), "{line}");
}

#[test]
fn an_unknown_kernel_is_an_error_that_names_the_known_ones() {
    for arguments in [&["--json"][..], &[]] {
        let output = info(Some("abacus"), arguments);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8(output.stderr).unwrap();
        match arguments.is_empty() {
            true => assert!(output.stdout.is_empty()),
            false => {
                let object: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(format!("gabion: {}\n", object["error"].as_str().unwrap()), message);
            }
        }
        assert!(message.contains("'abacus'"), "{message}");
        for row in kernel_sets() {
            assert!(message.contains(row.name()), "{message}");
        }
    }
}

#[test]
fn the_table_is_aligned() {
    let text = String::from_utf8(info(None, &[]).stdout).unwrap();
    let head = text.lines().find(|line| line.starts_with("kernel")).unwrap();
    let at = head.find("supported").unwrap();
    for row in kernel_sets() {
        let prefix = format!("{} ", row.name());
        let line = text.lines().find(|line| line.starts_with(&prefix)).unwrap();
        assert!(line[at..].starts_with(if row.supported() { "yes " } else { "no " }), "{line}");
    }
    assert_eq!(text.matches("chosen:").count(), 1);
}

/// Benches are a program of their own: the former command names the new one, with the same arguments.
#[test]
fn bench_names_the_command_to_type() {
    for (arguments, expected) in [
        (&["vault", "--quick", "--json"][..], "-p gabion-bench -- vault --quick --json"),
        (&[], "-p gabion-bench -- --help"),
        (&["--help"], "-p gabion-bench -- --help"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        let output = command.arg("bench").args(arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.trim_end().ends_with(expected), "{message}");
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("gabion");
    let printed = Command::new(env!("CARGO_BIN_EXE_gabion")).args(["completions", "bash"]).output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    std::fs::write(&script, printed.stdout).unwrap();
    for (words, wanted) in [("gabion repa", "repair"), ("gabion repair --rev", "--revert-changes")] {
        let last = words.rsplit(' ').next().unwrap();
        let asked = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE='{words}'; \
             _gabion gabion '{last}' ''; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["-c", &asked]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), wanted, "{output:?}");
    }
}

#[test]
fn each_command_of_the_help_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_gabion")).args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["manual", pages.to_str().unwrap()]);
    let help = run(&["--help"]);
    let commands = help.lines().take_while(|line| *line != "Options:");
    let of_commands = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = of_commands.filter_map(|line| line.split_whitespace().next());
    let mut count = 0;
    for name in names.filter(|name| *name != "help") {
        let page = std::fs::read_to_string(pages.join(format!("gabion-{name}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS") && page.contains(name), "{name}: {page}");
        count += 1;
    }
    assert!(count > 15, "{count} of {help}");
    assert!(std::fs::read_to_string(pages.join("gabion.1")).unwrap().contains("repair"));
}
