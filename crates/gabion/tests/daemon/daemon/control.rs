//! Requests to a daemon, and commands on a vault that a daemon has locked.

use super::fixture::{Fixture, rot};
use super::test_rng::TestRng;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

#[test]
fn pause_resume_flush_and_stop() {
    let mut fixture = Fixture::new();
    fixture.write("slow.toml", b"[default]\ncode = \"4+2\"\nquiet = \"1h\"\n");
    let photos = fixture.watched("photos", "").replace("policy.toml", "slow.toml");
    let music = fixture.watched("music", "");
    fixture.configure(&format!("{photos}{music}"));
    fixture.start();
    fixture.until_protected("music", "music", 4);
    // What is there has just been written, and does not rest for an hour because someone asks.
    fixture.expect(0, &["daemon", "protect", "photos"]);
    fixture.until("photos", "files are known", |source| source["files"]["known"] == 4);
    fixture.expect(0, &["daemon", "pause"]);
    fixture.until("photos", "it is paused", |source| source["state"] == "paused");
    fixture.until("music", "it is paused", |source| source["state"] == "paused");
    assert!(fixture.refused(&["daemon", "scrub", "photos"]).contains("resume"));
    fixture.write("photos/new", b"new");
    fixture.until("photos", "it is recorded", |source| source["live"]["recorded"].as_u64() > Some(0));
    // Without the pause this one would be protected within a second.
    let encoded = fixture.source("music")["live"]["encoded"].as_u64().unwrap();
    let recorded = fixture.source("music")["live"]["recorded"].as_u64();
    fixture.write("music/new", b"new");
    fixture.until("music", "it is recorded", |source| source["live"]["recorded"].as_u64() > recorded);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(fixture.source("music")["live"]["encoded"], encoded);
    fixture.expect(0, &["daemon", "resume"]);
    fixture.until("photos", "it goes on", |source| source["state"] == "running");
    fixture.until("music", "it is protected", |source| source["live"]["encoded"] == encoded + 1);
    let done: Value =
        serde_json::from_str(&fixture.expect(0, &["daemon", "protect", "photos", "--json"])).unwrap();
    assert_eq!((&done["outcome"], &done["encoded"]), (&json!("fine"), &json!(1)), "{done}");
    let done: Value =
        serde_json::from_str(&fixture.expect(0, &["daemon", "scrub", "photos", "--json"])).unwrap();
    assert_eq!((&done["outcome"], &done["files"]), (&json!("fine"), &json!(5)), "{done}");
    assert!(fixture.refused(&["daemon", "rebuild", "photos"]).contains("no pool"));
    // The command that shows how files are tells of the daemon as well.
    let status: Value = serde_json::from_str(&fixture.expect(0, &["status", "photos", "--json"])).unwrap();
    assert_eq!(status["daemon"]["process"], fixture.daemon.as_ref().unwrap().id(), "{status}");
    assert!(fixture.expect(0, &["status", "photos"]).contains("keeps it protected"));
    let watched = fixture.refused(&["watch", "photos"]);
    assert!(watched.contains("gabion daemon run") && watched.contains("process"), "{watched}");
    fixture.expect(0, &["daemon", "stop"]);
    assert_eq!(fixture.wait(), Some(0));
    let nobody = fixture.refused(&["daemon", "status"]);
    assert!(nobody.contains("no daemon answers") && nobody.contains("gabion daemon run"), "{nobody}");
}

/// The daemon does not scrub here, and counts files only now and then.
#[test]
fn damage_that_another_process_found_is_in_the_status_at_once() {
    let mut fixture = Fixture::new();
    // What is written below is not examined by the watch for an hour.
    fixture.write("policy.toml", b"[default]\ncode = \"4+2\"\nquiet = \"1h\"\n");
    let photos = fixture.watched("photos", "");
    fixture.configure(&photos);
    fixture.start();
    fixture.expect(0, &["daemon", "protect", "photos"]);
    fixture.expect(0, &["daemon", "status"]);
    rot(&fixture.path("photos/a"), 5000, 1);
    fixture.expect(1, &["scrub", "photos"]);
    let status = fixture.expect(1, &["daemon", "status"]);
    assert!(status.contains("1 damaged"), "{status}");
    fixture.expect(1, &["status", "photos", "--no-scan"]);
    fixture.stop(Signal::TERM);
}

#[test]
fn commands_on_a_vault_of_the_daemon_are_sent_to_it() {
    let mut fixture = Fixture::new();
    let mut seed = TestRng(9);
    for number in 0..40 {
        fixture.write(&format!("photos/{number}"), &seed.bytes(400_000));
    }
    // So slow that it is under way while we look.
    let photos = fixture.watched("photos", "scrub = { every = '1d', limit = '500KiB/s' }");
    fixture.configure(&photos);
    fixture.start();
    fixture.until_protected("photos", "photos", 44);
    let scrubs = |source: &Value| {
        let job = &source["job"];
        job["work"] == "scrub" && job["waiting_for"].is_null() && job["step"] == "scrubbing"
    };
    // The first run found little to scrub; a person wants all of it.
    fixture.expect(0, &["daemon", "scrub", "photos", "--no-wait"]);
    fixture.until("photos", "it scrubs", scrubs);
    let refused = fixture.refused(&["scrub", "photos/sub"]);
    assert!(
        refused.contains("gabion daemon run (scrub)") && refused.contains("daemon pause photos"),
        "{refused}"
    );
    let refused = fixture.refused(&["protect", "photos", "--code", "6+3"]);
    assert!(refused.contains("--wait"), "{refused}");
    // It waits until the scrub is over, or someone stops that.
    fixture.write("photos/more", b"more");
    let mut protect = fixture.command(&["protect", "photos", "--json"]);
    let mut waiting = protect.stdout(Stdio::piped()).stderr(fixture.captured.as_stdio()).spawn().unwrap();
    fixture.until("photos", "it waits for its turn", |source| source["waiting"] == 1);
    assert!(waiting.try_wait().unwrap().is_none());
    fixture.expect(0, &["daemon", "pause", "photos"]);
    fixture.until("photos", "nothing is at work", |source| source["job"].is_null());
    fixture.expect(0, &["daemon", "resume", "photos"]);
    let output = waiting.wait_with_output().unwrap();
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&done["outcome"], &done["files"]), (&json!("fine"), &json!(45)), "{done}");
    fixture.stop(Signal::TERM);
}

#[test]
fn held_changes_are_listed_and_approved() {
    let mut fixture = Fixture::new();
    let policy = b"[default]\ncode = \"4+2\"\nquiet = \"0s\"\n[guard]\nat_least = 5\nremoved = \"25%\"\n";
    fixture.write("policy.toml", policy);
    for number in 0..20 {
        fixture.write(&format!("photos/{number}"), b"something");
    }
    let photos = fixture.watched("photos", "");
    fixture.configure(&photos);
    fixture.start();
    fixture.until_protected("photos", "photos", 24);
    for number in 0..15 {
        std::fs::remove_file(fixture.path(&format!("photos/{number}"))).unwrap();
    }
    let source = fixture.until("photos", "it is held", |source| source["live"]["held"]["removed"] == 15);
    let digest = source["live"]["held"]["digest"].as_str().unwrap().to_owned();
    let shown = fixture.expect(1, &["daemon", "status"]);
    assert!(shown.contains("HELD") && shown.contains(&digest), "{shown}");
    let other = "0123456789abcdef0123456789abcdef";
    assert!(fixture.refused(&["daemon", "approve", "photos", other]).contains(&digest));
    let captured = fixture.expect(0, &["approve", &digest, "photos"]);
    assert!(captured.contains("the daemon carries it out"), "{captured}");
    fixture.until("photos", "it is released", |source| {
        source["live"]["held"].is_null() && source["files"]["known"] == 9
    });
    // The history is in the repository: it is read while the daemon runs, and after it.
    let kinds = |args: &[&str]| -> Vec<Value> {
        let text = fixture.expect(0, &[&["events", "photos", "--json"], args].concat());
        let document: Value = serde_json::from_str(&text).unwrap();
        document["events"].as_array().unwrap().iter().map(|event| event["kind"].clone()).collect()
    };
    let decisions = ["--kind", "change_set_held", "--kind", "approved"];
    gabion_testkit::until("both are in the history", || {
        let kinds = kinds(&decisions);
        kinds.first().is_some_and(|kind| kind == "change_set_held")
            && kinds.last().is_some_and(|kind| kind == "approved")
    });
    fixture.stop(Signal::TERM);
    let kinds = |args: &[&str]| fixture.expect(0, &[&["events", "photos"], args].concat());
    let text = kinds(&decisions);
    assert!(text.lines().next().unwrap().contains("warning") && text.lines().count() > 1, "{text}");
    assert_eq!(kinds(&["--least", "warning", "--since", "1h", "--last", "1"]).lines().count(), 1);
    assert!(kinds(&["--kind", "lost"]).contains("no events"));
    fixture.refused(&["events", "photos", "--kind", "nothing"]);
}

#[test]
fn the_configuration_is_checked_and_read_again() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    fixture.configure(&photos);
    let shown = fixture.expect(0, &["daemon", "run", "daemon.toml", "--check"]);
    assert!(shown.contains("photos: watch") && shown.contains("rescan = 1h"), "{shown}");
    fixture.expect(0, &["daemon", "run", "daemon.toml", "--check", "--json"]);
    // Directories that do not exist were accepted without a word.
    let text = "[[source]]\nname = 'a'\nwatch = 'nowhere'\nrepository = 'never/r'\n\
                [[source]]\nname = 'b'\npool = 'lake'\nat = 'daemon.toml'\n";
    fixture.write("missing.toml", text.as_bytes());
    let check = fixture.expect(1, &["daemon", "run", "missing.toml", "--check", "--json"]);
    let check: serde_json::Value = serde_json::from_str(&check).unwrap();
    let missing = check["missing"].as_array().unwrap();
    for (at, words) in ["a: directory ", "a: directory of the repository", "b: mount point", "b: pool lake"]
        .iter()
        .enumerate()
    {
        assert!(missing[at].as_str().unwrap().starts_with(words), "{check}");
    }
    assert_eq!(missing.len(), 4, "{check}");
    fixture.write("wrong.toml", b"[[source]]\nname = 'a'\nwatch = 'x'\nscrub = { evry = '1d' }\n");
    let wrong = fixture.refused(&["daemon", "run", "wrong.toml"]);
    assert!(wrong.contains("line 4") && wrong.contains("evry"), "{wrong}");
    fixture.start();
    fixture.until_protected("photos", "photos", 4);
    // One more source; the first one goes on as it was.
    let scans = fixture.source("photos")["since"].clone();
    let music = fixture.watched("music", "");
    fixture.configure(&format!("{photos}{music}"));
    let told = fixture.expect(0, &["daemon", "reload"]);
    assert!(told.contains("begun: music") && told.contains("kept: photos"), "{told}");
    fixture.until_protected("music", "music", 4);
    assert_eq!(fixture.source("photos")["since"], scans);
    // What cannot be used changes nothing.
    fixture.configure("[[source]]\n");
    assert!(fixture.refused(&["daemon", "reload"]).contains("nothing is changed"));
    // By the signal: the first source goes.
    fixture.configure(&music);
    rustix::process::kill_process(fixture.process(), Signal::HUP).unwrap();
    let began = gabion_vault::world::Stopwatch::start();
    while fixture.status()["sources"].as_array().unwrap().len() != 1 {
        assert!(began.elapsed() < super::fixture::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // It is free now.
    fixture.expect(0, &["protect", "photos"]);
    fixture.stop(Signal::TERM);
}

/// `gabion status | head -1` used to end in a panic and a trace.
#[test]
fn who_reads_no_further_ends_the_command_without_a_word() {
    let fixture = Fixture::new();
    fixture.watched("photos", "");
    fixture.expect(0, &["protect", "photos"]);
    for args in [&["status", "photos"][..], &["--help"], &["info"], &["status", "photos", "--json"]] {
        let mut command = fixture.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.is_empty(), "{args:?}: {error}");
        // What clap prints by itself ends as clap likes.
        let quiet = output.status.signal() == Some(13) || args == ["--help"];
        assert!(quiet, "{args:?}: {:?}", output.status);
    }
}

/// `daemon scrub` called lost files damaged, `daemon repair` said `repaired` of a file that it could not bring back,
/// and a status right after that counted no lost file and ended with 0: the daemon counts files every few seconds
/// only.
#[test]
fn lost_files_are_called_lost_at_once() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    fixture.configure(&photos);
    fixture.start();
    fixture.until_protected("photos", "photos", 4);
    (0..300_000).step_by(2048).for_each(|at| rot(&fixture.path("photos/a"), at, 1));
    rot(&fixture.path("photos/sub/b"), 5000, 1);
    // The daemon heard of the writes. Once a later file is protected they are recorded, and nothing waits for its turn.
    fixture.write("photos/later", b"later");
    fixture.until_protected("photos", "photos", 5);
    let lines = |text: &str| -> Vec<String> { text.lines().map(|line| line.trim().to_owned()).collect() };
    let captured = lines(&fixture.expect(3, &["daemon", "scrub", "photos"]));
    assert!(
        captured.contains(&"LOST      a".to_owned()) && captured.contains(&"damaged   sub/b".to_owned()),
        "{captured:?}"
    );
    let status = fixture.expect(3, &["daemon", "status"]);
    assert!(status.contains("1 damaged, 1 lost"), "{status}");
    let captured = lines(&fixture.expect(3, &["daemon", "repair", "photos"]));
    assert!(
        captured.contains(&"LOST      a".to_owned()) && captured.contains(&"repaired  sub/b".to_owned()),
        "{captured:?}"
    );
    let status = fixture.expect(3, &["daemon", "status"]);
    assert!(status.contains("0 damaged, 1 lost"), "{status}");
    fixture.stop(Signal::TERM);
}

/// `gabion status` named files whose scrub was overdue by their policy, and the report of the daemon was green.
#[test]
fn overdue_scrubs_are_named_by_the_daemon_as_by_status() {
    let policy = |scrub: &str| {
        format!("[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\nscrub = \"{scrub}\"\n")
    };
    let mut fixture = Fixture::new();
    fixture.configure(&fixture.watched("photos", ""));
    fixture.write("policy.toml", policy("1s").as_bytes());
    fixture.expect(0, &["protect", "photos", "--policy", "policy.toml", "-q"]);
    let overdue = || {
        let output = fixture.run(&["status", "photos", "--json"]).stdout;
        serde_json::from_slice::<Value>(&output).unwrap()["scrub_overdue"].clone()
    };
    gabion_testkit::until("the scrubs are overdue", || overdue()["files"] == 4);
    let before = overdue();
    fixture.start();
    let counted = |source: &Value| !source["scrub_overdue"].is_null();
    let source = fixture.until("photos", "overdue scrubs are counted", counted);
    assert_eq!(source["scrub_overdue"], before);
    let captured = fixture.expect(1, &["daemon", "status"]);
    assert!(captured.contains("the scrub of 4 files is overdue by the policy, the oldest "), "{captured}");
    fixture.write("photos/.gabion/policy.toml", policy("30d").as_bytes());
    fixture.expect(0, &["daemon", "scrub", "photos"]);
    fixture.until("photos", "nothing is overdue", |source| source["scrub_overdue"]["files"] == 0);
    fixture.expect(0, &["daemon", "status"]);
    fixture.stop(Signal::TERM);
}
