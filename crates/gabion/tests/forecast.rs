//! `gabion forecast` as a user runs it.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn run_in(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
    command.current_dir(dir).args(arguments).output().expect("the program starts")
}

fn run(arguments: &[&str]) -> Output {
    run_in(Path::new("."), &[&["forecast"], arguments].concat())
}

fn text(code: i32, output: &Output) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn json(code: i32, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(code, &run(&[arguments, &["--json"]].concat()))).expect("one JSON object")
}

fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// Two copies on disks that fail once in 1000 hours and are rebuilt in 10: (3λ + μ) / 2λ² = 51500 hours.
#[test]
fn a_code_has_the_mean_time_that_its_formula_says() {
    let disks = ["--mtbf", "1000h", "--rebuild", "10h", "--read-errors", "0"];
    let answer = json(0, &[&["2x"], &disks[..]].concat());
    let copies = &answer["codes"][0];
    assert_eq!(copies["code"], "2x");
    for model in ["unchecked", "checked"] {
        assert_eq!(copies[model]["mean_hours"], 51500.0);
        assert_eq!(copies[model]["mean_hours_text"], "5.150e4");
        let loss = copies[model]["loss_per_year"].as_f64().unwrap();
        assert!((loss + (-8760.0_f64 / 51500.0).exp_m1()).abs() < 1e-12, "{loss}");
    }
    assert_eq!(answer["parameters"]["mtbf_hours"], 1000.0);
    // Thirty digits, where they are asked for: 51500 / 8760 = 5.8789954…
    let table = text(0, &run(&[&["2x", "--digits", "30"], &disks[..]].concat()));
    assert!(table.contains("5.87899543378995433789954337900"), "{table}");
}

#[test]
fn without_a_code_some_that_people_know_are_told() {
    let table = text(0, &run(&[]));
    for word in ["10+4", "3x", "unchecked", "checked", "loss per year", "nines", "40 %", "4.00 TB", "1.0e-15"]
    {
        assert!(table.contains(word), "{word}: {table}");
    }
}

#[test]
fn codes_that_qualify_come_cheapest_first_and_others_with_a_reason() {
    let wish = ["--at-most", "1e-9/year", "--disks", "24", "--overhead", "40%", "--read-errors", "1e-17"];
    let answer = json(0, &wish);
    let good = answer["qualify"].as_array().unwrap();
    assert!(!good.is_empty());
    let overheads: Vec<f64> = good.iter().map(|it| it["overhead"].as_f64().unwrap()).collect();
    assert!(overheads.is_sorted() && overheads.iter().all(|it| *it <= 0.4), "{overheads:?}");
    assert!(good.iter().all(|it| it["checked"]["loss_per_year"].as_f64().unwrap() <= 1e-9));
    let others = answer["others"].as_array().unwrap();
    assert_eq!(good.len() + others.len(), 300);
    assert!(others.iter().all(|it| !it["fails"].as_array().unwrap().is_empty()));
    let table = text(0, &run(&wish));
    assert!(table.contains("is over 40 %") && table.contains("per year is over 1.000e-9"), "{table}");
    // Nobody is that safe with so little: that is an answer, not an error.
    let table = text(1, &run(&["--at-most", "1e-30", "--disks", "4", "--overhead", "34%"]));
    assert!(table.contains("No code qualifies"), "{table}");
}

#[test]
fn sweeps_are_printed_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    for (what, word) in [("disks", "δ = 3, checked"), ("overhead", "copies, 2x to 6x"), ("rebuild", "10+4")]
    {
        let file = dir.path().join(format!("{what}.svg"));
        let table = text(0, &run(&["--sweep", what, "--plot", file.to_str().unwrap()]));
        assert!(table.contains(word), "{table}");
        let drawn = std::fs::read_to_string(&file).unwrap();
        assert!(drawn.starts_with("<svg ") && drawn.contains(word) && drawn.contains("<polyline"), "{drawn}");
    }
    let answer = json(0, &["--sweep", "disks", "--disks", "9"]);
    let lines = answer["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 10);
    // Both models agree for one loss, as the thesis says.
    assert_eq!(lines[0]["points"], lines[1]["points"]);
    assert_eq!(lines[2]["points"].as_array().unwrap().len(), 7);
    for name in ["picture.png", "picture.gif"] {
        assert!(refused(&["--sweep", "disks", "--plot", name]).contains("must end in .svg"));
    }
}

#[test]
fn a_simulation_agrees() {
    let answer = json(0, &["3+1", "--mtbf", "400h", "--rebuild", "1d", "--simulate", "2000", "--seed", "5"]);
    for model in ["unchecked", "checked"] {
        let seen = &answer["codes"][0][model]["simulated"];
        assert_eq!((&seen["losses"], &seen["agrees"]), (&Value::from(2000), &Value::from(true)), "{seen}");
    }
    assert!(
        refused(&["10+4", "--read-errors", "1e-17", "--simulate", "1000"]).contains("too rarely to be seen")
    );
    assert!(refused(&["3+1", "--simulate", "3"]).contains("too few"));
}

#[test]
fn disks_that_cannot_be_are_refused_by_name() {
    for (arguments, word) in [
        (&["--capacity", "0"][..], "a capacity of 0"),
        (&["--mtbf", "-5h"], "a mean time between failures of -5"),
        (&["--mtbf", "nan"], "'nan' is not a decimal number"),
        (&["--mtbf", "inf"], "'inf' is not a decimal number"),
        (&["--afr", "0%"], "an annual failure rate of 0"),
        (&["--rebuild", "0"], "a rebuild time of 0"),
        (&["--rebuild", "3 fortnights"], "fortnights"),
        (&["--read-errors", "-1e-15"], "a read error rate of -0.000000000000001"),
        (&["--silent", "200%"], "a share of silent errors of 2"),
        (&["--mtbf", "1e6", "--afr", "2%"], "cannot be used with"),
        (&["0+3"], "at least one data block"),
        (&["10"], "is not a code"),
        (&["10+4", "--disks", "9"], "9 disks are too few for 10+4"),
        (&["4+2", "--disks", "25", "--grouped"], "do not make whole groups of 6"),
        (&["1000+1000"], "more than 1024"),
        (&["--at-most", "2", "--disks", "8"], "a chance of loss of 2"),
        (&["--overhead", "-1", "--disks", "8"], "an overhead of -1"),
        (&["--pool", "/nowhere"], "/nowhere"),
    ] {
        let said = refused(arguments);
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn a_pool_is_worth_what_its_files_have() {
    let dir = tempfile::tempdir().unwrap();
    let gabion = |code: i32, arguments: &[&str]| {
        let output = run_in(dir.path(), &[arguments, &["--pools", "names"]].concat());
        text(code, &output)
    };
    let forecast = |code: i32, arguments: &[&str]| -> Value {
        let all = [&["forecast", "--pool", "tank", "--rebuild", "1h", "--json"], arguments].concat();
        serde_json::from_str(&gabion(code, &all)).unwrap()
    };
    let mut create = vec!["pool", "create", "tank", "--stripe", "3", "--block", "4KiB", "--redundancy", "2"];
    create.extend(["--targets", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"]);
    gabion(0, &create);
    assert_eq!(forecast(0, &[])["together"], Value::Null);
    for number in 0..12u8 {
        let name = format!("file{number}");
        std::fs::write(dir.path().join(&name), vec![number; 30_000]).unwrap();
        gabion(0, &["pool", "put", "tank", &name, "/"]);
    }
    // Nothing is protected yet: the first disk that goes takes a file with it.
    let bare = forecast(1, &[]);
    assert_eq!(
        (&bare["unprotected_files"], &bare["together"]["fewest_fatal"]),
        (&Value::from(12), &Value::from(1))
    );
    gabion(0, &["protect", "tank"]);
    let safe = forecast(0, &[]);
    let class = &safe["classes"][0];
    assert_eq!(
        (&class["files"], &class["tolerated"], &class["bytes"]),
        (&Value::from(12), &Value::from(2), &Value::from(360_000))
    );
    assert!(class["code"].as_str().unwrap().contains("3+2"), "{class}");
    assert_eq!(safe["together"]["fewest_fatal"], 3);
    let years = |answer: &Value| answer["together"]["checked"]["mean_years"].as_f64().unwrap();
    assert!(years(&safe) > 1e6 * years(&bare), "{safe}");
    // Twelve files use few of all combinations, so the pool is better than one in which all are used.
    let same = ["3+2", "--disks", "8", "--rebuild", "1h", "--read-errors", "0", "--json"];
    let spread: Value = serde_json::from_str(&text(0, &run(&same))).unwrap();
    let quiet = forecast(0, &["--read-errors", "0"]);
    assert!(
        years(&quiet) >= spread["codes"][0]["checked"]["mean_years"].as_f64().unwrap(),
        "{quiet} {spread}"
    );
    // Without a target files can lose less; a domain here is a target.
    std::fs::rename(dir.path().join("d8"), dir.path().join("away")).unwrap();
    let degraded = forecast(1, &["--fails", "domain"]);
    assert!(
        degraded["degraded_files"].as_u64().unwrap() > 0 && years(&degraded) < years(&safe),
        "{degraded}"
    );
    assert_eq!((&degraded["units"], &degraded["lost_files"]), (&Value::from(7), &Value::from(0)));
}
