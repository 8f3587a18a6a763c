//! `gabion-bench` as a user runs it, with runs of milliseconds.

use gabion_engine::kernel::{Backend, KERNEL_VARIABLE, kernel_sets};
use resvg::{tiny_skia, usvg};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion-bench"));
    command.arg("engine").args(arguments).env_remove(KERNEL_VARIABLE);
    command.output().expect("the program starts")
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn every_line_is_an_object_of_the_agreed_form() {
    let output = bench(&[
        "--json",
        "--quick",
        "--seconds=0.005",
        "--code=4+2",
        "--code=cauchy-good:3+2:w4:packets=64",
        "--block=4KiB",
        "--block=64KiB",
        "--threads=1",
        "--threads=2",
    ]);
    let lines = lines(&output);
    // Per size: encode, repair, update of two codes and multiply of two fields with 1 and 2 threads,
    // sign of two fields with one; three limits each.
    assert_eq!(lines.len(), 2 * (2 * 3 * 2 + 2 * 2 + 2) * 3);
    for line in &lines {
        let number = |member: &str| line[member].as_f64().unwrap_or_else(|| panic!("{member}: {line}"));
        assert_eq!((&line["bench"], &line["unit"]), (&"engine".into(), &"GB/s".into()));
        assert!(["copy", "read", "xor-stream"].contains(&line["against"].as_str().unwrap()));
        let ratio = number("value") / number("reference");
        assert!((number("ratio") / ratio - 1.0).abs() < 0.002, "{line}");
        assert!(number("median") <= number("value") && number("spread") >= 0.0, "{line}");
        assert_eq!(line["verified"], true);
        assert!(kernel_sets().iter().any(|row| line["kernel"] == row.name()));
    }
    let has = |case: &str| lines.iter().filter(|line| line["case"] == case).count();
    for case in [
        "encode 4+2 4KiB",
        "repair 4+2 64KiB 2threads",
        "update cauchy-good:3+2:w4:packets=64 4KiB",
        "multiply w4 64KiB 2threads",
        "sign w8 64KiB",
    ] {
        assert_eq!(has(case), 3, "{case}");
    }
}

#[test]
fn all_kernels_race_in_one_case() {
    let lines = lines(&bench(&[
        "--json",
        "--seconds=0.01",
        "--code=5+3",
        "--block=8KiB",
        "--kernel=all",
        "--op=repair",
        "--lost=2",
    ]));
    let supported: Vec<&str> =
        kernel_sets().iter().filter(|row| row.supported()).map(|row| row.name()).collect();
    assert_eq!(lines.len(), 3 * supported.len());
    for (three, kernel) in lines.chunks(3).zip(supported) {
        assert_eq!(three[0]["case"], format!("repair 5+3 8KiB lost=2 kernel={kernel}"));
        assert_eq!(three[0]["kernel"], kernel);
        // The limits are those of the same race, whichever the kernel.
        assert_eq!(three[1]["reference"], lines[1]["reference"]);
    }
}

#[test]
fn the_table_names_every_case() {
    let output = bench(&["--seconds=0.002", "--code=4+2", "--block=4KiB", "--block=64KiB"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1 + 2 * 5, "{text}");
    assert!(text.starts_with("case") && text.lines().next().unwrap().contains("of xor-stream"));
    assert!(text.lines().skip(1).all(|line| line.ends_with(" %")), "{text}");
}

fn drawn(path: &Path, arguments: &[&str]) {
    let plot = format!("--plot={}", path.display());
    let output = bench(&[arguments, &["--quick", "--seconds=0.002", plot.as_str()]].concat());
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn pictures_have_their_size_and_their_legend() {
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("speeds.svg");
    drawn(&svg, &["--code=4+2", "--code=8+3", "--block=4KiB", "--block=64KiB"]);
    let text = std::fs::read_to_string(&svg).unwrap();
    let tree = usvg::Tree::from_str(&text, &usvg::Options::default()).unwrap();
    assert_eq!((tree.size().width(), tree.size().height()), (1200.0, 700.0));
    for label in ["4+2", "8+3", "encode", "repair", "update", "multiply", "sign", "64KiB", "data in GB/s"] {
        assert!(text.contains(label), "{label}");
    }

    let png = directory.path().join("bars.png");
    drawn(&png, &["--code=4+2", "--block=4KiB", "--op=encode"]);
    let picture = tiny_skia::Pixmap::decode_png(&std::fs::read(&png).unwrap()).unwrap();
    assert_eq!((picture.width(), picture.height()), (1200, 700));
    // Only letters are where the title is: without a font that would be white.
    let title = picture.pixels().chunks(1200).take(50).flatten();
    assert!(title.filter(|pixel| pixel.red() < 128).count() > 100);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing else is left behind");
}

#[test]
fn figure_n_has_a_line_per_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("n.svg");
    drawn(&svg, &["--figure=n", "--block=4KiB"]);
    let text = std::fs::read_to_string(&svg).unwrap();
    for row in kernel_sets().iter().filter(|row| row.supported()) {
        assert!(text.contains(row.name()), "{}", row.name());
    }
    assert!(text.contains("25 % redundancy") && text.contains("blocks of 4KiB"));
}

#[test]
fn bad_arguments_are_errors_with_a_message() {
    for (arguments, message) in [
        (&["--block=0"][..], "is not a size above 0"),
        (&["--block=4kb"], "is not a size above 0"),
        (&["--code=reed:10+4"], "is not a code"),
        (&["--code=300+4"], "256"),
        (&["--op=decode"], "no operation 'decode'; there are: encode, repair, update, multiply, sign"),
        (&["--kernel=abacus"], "no kernel 'abacus'; this build has: scalar"),
        (&["--code=4+2", "--op=repair", "--lost=3"], "can repair 1 to 2 lost blocks, not 3"),
        (&["--code=4+0"], "has no redundancy"),
        (&["--code=cauchy:4+2:w4:packets=2048", "--block=4KiB", "--op=encode"], "no multiple of 8192"),
        (&["--code=4+2", "--block=100000000GiB"], "bytes of memory"),
        (&["--plot=speeds.jpg"], "must end in .svg or .png"),
        (&["--seconds=0"], "no number of seconds"),
        (&["--figure=n", "--code=4+2"], "cannot be used with"),
        (&["--threads=many"], "invalid value"),
        (&["--explain", "--block=4KiB"], "cannot be used with"),
        (&["--dump-asm", "--json"], "cannot be used with"),
        (&["--explain", "--code=4+2", "--op=repair", "--lost=3"], "can repair 1 to 2 lost blocks, not 3"),
    ] {
        let output = bench(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(message), "{arguments:?}: {text}");
        assert_eq!(text.matches("panicked").count(), 0);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let output =
        bench(&["--seconds=0.002", "--code=2+1", "--block=4KiB", "--op=encode", "--plot=no/such/dir/x.svg"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no/such/dir/x.svg"));
}

fn text(arguments: &[&str]) -> String {
    let output = bench(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn explain_counts_operations_after_each_pass() {
    let arguments =
        ["--explain", "--json", "--code=4+2", "--op=encode", "--op=repair", "--lost=1", "--kernel=all"];
    let lines = lines(&bench(&arguments));
    for row in kernel_sets().iter().filter(|row| row.supported()) {
        for case in ["encode 4+2", "repair 4+2 lost=1"] {
            let of = |line: &&Value| line["kernel"] == row.name() && line["case"] == case;
            let stages: Vec<&Value> = lines.iter().filter(of).collect();
            let (first, last) = (stages[0], *stages.last().unwrap());
            assert_eq!(
                (&first["stage"], &last["stage"]),
                (&"by matrix".into(), &"allocate".into()),
                "{stages:?}"
            );
            assert!(stages.iter().all(|line| line["bench"] == "explain"));
            assert!(last["adding_instructions"].is_u64() && last["moves"].is_u64());
            assert!(last["compile_seconds"].as_f64().unwrap() > 0.0);
            assert_eq!(last["runs"], if row.emits_code() { "code" } else { "steps" });
            let of_code = (last["code_bytes"].is_u64(), last["cycles"].is_f64());
            assert_eq!(of_code, (row.emits_code(), row.emits_code()));
        }
    }
    // Two outputs of four coefficients each, none of them 0 or 1.
    assert_eq!((&lines[0]["products"], &lines[0]["additions"]), (&8.into(), &6.into()));
}

#[test]
fn explain_has_a_table_per_plan_and_says_who_serves() {
    let explained = text(&["--explain", "--code=4+2", "--kernel=scalar"]);
    assert_eq!(explained.split("\n\n").count(), 3, "encode, repair, update:\n{explained}");
    assert!(
        explained.starts_with("encode 4+2, kernel scalar\n") && explained.contains("products  additions")
    );
    assert_eq!(explained.matches("steps are interpreted").count(), 3, "{explained}");
    let refused = text(&["--explain", "--code=4+2:w16", "--op=encode", "--kernel=scalar"]);
    assert!(refused.contains("not compiled, the generic kernels serve: words of 16 bits"), "{refused}");
    let output = bench(&["--explain", "--op=sign"]);
    assert!(output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().contains("left out: sign"));
}

#[test]
fn machine_code_is_listed_after_the_name_of_its_plan() {
    let listed = text(&["--dump-asm", "--code=4+2", "--op=encode", "--kernel=all"]);
    for row in kernel_sets().iter().filter(|row| row.supported()) {
        let head = format!("; encode 4+2, kernel {}", row.name());
        let listing = listed.lines().skip_while(|line| !line.starts_with(&head));
        let code: Vec<&str> = listing.skip(1).take_while(|line| !line.starts_with(';')).collect();
        assert_eq!(
            code.last().is_some_and(|line| line.ends_with("ret")),
            row.emits_code(),
            "{head}\n{listed}"
        );
    }
    assert!(listed.contains("kernel scalar: no code, interpreted"), "{listed}");
}

#[test]
fn operations_are_drawn_over_shapes_or_per_code() {
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("operations.svg");
    let plot = format!("--plot={}", svg.display());
    for (codes, label) in
        [(&[][..], "blocks of a stripe n"), (&["--code=4+2", "--code=raidz:4+3"], "raidz:4+3")]
    {
        text(&[&["--explain", "--kernel=scalar", plot.as_str()][..], codes].concat());
        let drawn = std::fs::read_to_string(&svg).unwrap();
        for label in ["products by matrix", "adding instructions, compiled", "encode, kernel scalar", label] {
            assert!(drawn.contains(label), "{label}");
        }
    }
}

#[cfg(feature = "gpu")]
fn bench_gpu(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion-bench"));
    command.arg("gpu").args(arguments).env_remove(KERNEL_VARIABLE);
    command.output().expect("the program starts")
}

/// A method of multiplication on whatever OpenCL device there is, PoCL in CI: checked, measured, recorded.
#[cfg(feature = "gpu")]
#[test]
fn methods_are_measured_on_an_opencl_device_and_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("gpu.jsonl");
    let output = bench_gpu(&[
        "--api=opencl",
        "--code=4+2",
        "--method=full",
        "--vector=4",
        "--raw-only",
        "--json",
        "--date=2026-01-31",
        &format!("--record={}", record.display()),
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("opencl is not available") {
        gabion_testkit::skip!("methods_are_measured_on_an_opencl_device_and_recorded: {said}");
        return;
    }
    let found = lines(&output);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!((&found[0]["bench"], &found[0]["date"]), (&"machine".into(), &"2026-01-31".into()));
    for (line, work) in found[1..].iter().zip(["encode", "repair"]) {
        assert_eq!(line["case"], format!("{work} 4+2 words raw full4"));
        assert_eq!((&line["verified"], &line["against"]), (&true.into(), &"copy".into()));
        assert!(line["value"].as_f64().unwrap() > 0.0);
    }
    let kept = std::fs::read_to_string(&record).unwrap();
    assert_eq!(kept.as_bytes(), output.stdout);
}

#[cfg(feature = "gpu")]
#[test]
fn what_a_library_does_not_have_is_refused() {
    let refused = |arguments: &[&str], why: &str| {
        let output = bench_gpu(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    };
    refused(&["--transfer=svm"], "add --api opencl");
    refused(&["--api=opencl", "--transfer=mapped"], "OpenCL has svm");
    refused(&["--check", "--part=3/2"], "with I from 1 to N");
    refused(&["--part=1/2"], "--check");
    refused(&["--api=opencl", "--device=99"], "99");
}

/// Operations take a second; what this CPU has no instruction for is named.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_machine_is_measured_recorded_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let (record, figures) = (dir.path().join("machine.jsonl"), dir.path().join("figures"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion-bench"));
    command.args(["machine", "--quick", "--part", "operations", "--json", "--date", "2026-11-15"]);
    command.arg("--record").arg(&record).arg("--plot").arg(&figures);
    let output = command.output().unwrap();
    let lines = lines(&output);
    let left_out = String::from_utf8(output.stderr).unwrap();
    assert!(left_out.contains("left out: affine scalar: needs"), "{left_out}");
    assert_eq!(lines.len() + left_out.lines().count(), 8 * 4);
    for line in &lines {
        let number = |member: &str| line[member].as_f64().unwrap_or_else(|| panic!("{member}: {line}"));
        assert_eq!(
            (&line["bench"], &line["unit"], &line["part"]),
            (&"machine".into(), &"GB/s".into(), &"operations".into())
        );
        assert!((number("value") / number("reference") / number("ratio") - 1.0).abs() < 1e-9, "{line}");
        assert!(number("value") > 0.0);
    }
    assert!(lines.iter().any(|line| line["case"] == "xor scalar" && line["ratio"] == 1.0));
    let recorded = std::fs::read_to_string(&record).unwrap();
    let first: Value = serde_json::from_str(recorded.lines().next().unwrap()).unwrap();
    assert_eq!((&first["bench"], &first["date"]), (&"machine".into(), &"2026-11-15".into()));
    assert_eq!(recorded.lines().count(), lines.len() + 1);
    let svg = std::fs::read_to_string(figures.join("machine-operations.svg")).unwrap();
    assert!(svg.contains("clmul") && svg.contains("scalar"));
}

/// An experiment that only counts, as a user runs it: points, a record, a picture, and a page made of the record.
#[test]
fn an_experiment_of_a_paper_becomes_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let paper = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion-bench"));
        command.arg("paper").args(arguments).env_remove(KERNEL_VARIABLE);
        command.output().unwrap()
    };
    let record = at("paper.jsonl");
    let found = lines(&paper(&[
        "002-operations",
        "--quick",
        "--json",
        "--date=2026-11-15",
        &format!("--record={record}"),
        &format!("--plot={}", at("drawn")),
    ]));
    assert!(found.iter().all(|line| line["experiment"] == "002-operations"));
    let by_matrix = |line: &&Value| line["series"] == "products by matrix" && line["x"] == 64.0;
    // 16 redundancy blocks of 48 data blocks each; a product with 1 counts for nothing.
    let products = found.iter().find(by_matrix).unwrap()["value"].as_f64().unwrap();
    assert!((600.0..=768.0).contains(&products), "{products}");
    assert!(std::fs::read_to_string(at("drawn/002-operations.svg")).unwrap().contains("products by matrix"));
    assert_eq!(std::fs::read_to_string(&record).unwrap().lines().count(), found.len() + 1);

    let page = at("papers.md");
    assert!(paper(&["--page", &page, "--from", &record]).status.success());
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("## 002-operations") && text.contains("2026-11-15"), "{text}");
    assert!(dir.path().join("figures/002-operations.svg").exists());

    let refused = paper(&["005"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no experiment '005'"));
    std::fs::write(&record, "nonsense").unwrap();
    let refused = paper(&["--page", &page, "--from", &record]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("paper.jsonl:1: "), "{refused:?}");
}
