//! Metrics for Prometheus, checked by its own tool.

use super::fixture::{Fixture, rot};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `promtool check metrics`, which also finds names and units that are against the conventions.
fn check(text: &str) {
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test needs the program promtool (Debian: apt install prometheus)");
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stderr));
}

/// The value of a sample.
fn value(text: &str, sample: &str) -> Option<f64> {
    let line =
        text.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Names of families.
fn names(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned))
        .collect()
}

#[test]
fn metrics_count_what_happens() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "scrub = { every = '30d' }");
    fixture.configure(&photos);
    fixture.start();
    fixture.until_protected("photos", "photos", 4);
    let metrics = || {
        let answer = fixture.http("GET", "/metrics", "");
        assert!(
            answer.status == 200
                && answer.header("content-type").unwrap().starts_with("text/plain; version=0.0.4")
        );
        answer.body
    };
    gabion_testkit::until("bytes are counted", || {
        value(&metrics(), "gabion_bytes{source=\"photos\",state=\"protected\"}").is_some()
    });
    rot(&fixture.path("photos/a"), 5000, 1);
    fixture.write("photos/later", b"later");
    fixture.until_protected("photos", "photos", 5);
    fixture.job("/api/v1/sources/photos/scrub", "{}");
    let is_damaged = || value(&metrics(), "gabion_files{source=\"photos\",state=\"damaged\"}") == Some(1.0);
    gabion_testkit::until("the damaged file is counted", is_damaged);
    let text = metrics();
    check(&text);
    assert_eq!(value(&text, "gabion_source_up{source=\"photos\"}"), Some(1.0));
    assert_eq!(value(&text, "gabion_files{source=\"photos\",state=\"protected\"}"), Some(4.0));
    assert_eq!(value(&text, "gabion_pending_changes{source=\"photos\"}"), Some(0.0));
    assert_eq!(value(&text, "gabion_encoded_files_total{source=\"photos\"}"), Some(5.0));
    assert!(
        value(&text, "gabion_job_bytes_total{source=\"photos\",job=\"scrub\"}") > Some(300_000.0),
        "{text}"
    );
    gabion_testkit::until("the job is counted", || {
        value(&metrics(), "gabion_jobs_total{source=\"photos\",job=\"scrub\",outcome=\"open\"}") >= Some(1.0)
    });
    let event = "gabion_events_total{source=\"photos\",kind=\"damage_found\",severity=\"warning\"}";
    gabion_testkit::until("the event is counted", || value(&metrics(), event) >= Some(1.0));
    let of_status = fixture.run(&["status", "photos", "--format", "prometheus"]);
    let of_status = String::from_utf8(of_status.stdout).unwrap();
    check(&of_status);
    assert!(of_status.contains("state=\"damaged\"} 1\n"), "{of_status}");
    // Rules and dashboard name metrics that there are.
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../package");
    let rules: PathBuf = package.join("prometheus/gabion.rules.yml");
    let checked = Command::new("promtool").args(["check", "rules"]).arg(&rules).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let dashboard = std::fs::read_to_string(package.join("grafana/gabion.json")).unwrap();
    let _: Value = serde_json::from_str(&dashboard).unwrap();
    let known = names(&text);
    for text in [std::fs::read_to_string(&rules).unwrap(), dashboard] {
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        for name in words.filter(|word| word.starts_with("gabion_")) {
            assert!(known.contains(name), "{name}");
        }
    }
    fixture.stop(Signal::TERM);
}
