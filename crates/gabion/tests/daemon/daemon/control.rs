//! Commands that speak to a daemon, and those that find one at work.

use super::ground::{Ground, rot};
use super::seed::Seed;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

#[test]
fn pause_resume_flush_and_stop() {
    let mut ground = Ground::new();
    ground.write("slow.toml", b"[default]\ncode = \"4+2\"\nquiet = \"1h\"\n");
    let photos = ground.watched("photos", "").replace("policy.toml", "slow.toml");
    let music = ground.watched("music", "");
    ground.configure(&format!("{photos}{music}"));
    ground.start();
    ground.until_protected("music", "music", 4);
    // What is there has just been written, and does not rest for an hour because someone asks.
    ground.expect(0, &["daemon", "protect", "photos"]);
    ground.until("photos", "files are known", |source| source["files"]["known"] == 4);
    ground.expect(0, &["daemon", "pause"]);
    ground.until("photos", "it is paused", |source| source["state"] == "paused");
    ground.until("music", "it is paused", |source| source["state"] == "paused");
    assert!(ground.refused(&["daemon", "scrub", "photos"]).contains("resume"));
    ground.write("photos/new", b"new");
    ground.until("photos", "it is recorded", |source| source["live"]["recorded"].as_u64() > Some(0));
    // Without the pause this one would be protected within a second.
    let encoded = ground.source("music")["live"]["encoded"].as_u64().unwrap();
    let recorded = ground.source("music")["live"]["recorded"].as_u64();
    ground.write("music/new", b"new");
    ground.until("music", "it is recorded", |source| source["live"]["recorded"].as_u64() > recorded);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(ground.source("music")["live"]["encoded"], encoded);
    ground.expect(0, &["daemon", "resume"]);
    ground.until("photos", "it goes on", |source| source["state"] == "running");
    ground.until("music", "it is protected", |source| source["live"]["encoded"] == encoded + 1);
    let done: Value =
        serde_json::from_str(&ground.expect(0, &["daemon", "protect", "photos", "--json"])).unwrap();
    assert_eq!((&done["outcome"], &done["encoded"]), (&json!("fine"), &json!(1)), "{done}");
    let done: Value =
        serde_json::from_str(&ground.expect(0, &["daemon", "scrub", "photos", "--json"])).unwrap();
    assert_eq!((&done["outcome"], &done["files"]), (&json!("fine"), &json!(5)), "{done}");
    assert!(ground.refused(&["daemon", "rebuild", "photos"]).contains("no pool"));
    // The command that shows how files are tells of the daemon as well.
    let status: Value = serde_json::from_str(&ground.expect(0, &["status", "photos", "--json"])).unwrap();
    assert_eq!(status["daemon"]["process"], ground.daemon.as_ref().unwrap().id(), "{status}");
    assert!(ground.expect(0, &["status", "photos"]).contains("keeps it protected"));
    let watched = ground.refused(&["watch", "photos"]);
    assert!(watched.contains("gabion daemon run") && watched.contains("process"), "{watched}");
    ground.expect(0, &["daemon", "stop"]);
    assert_eq!(ground.wait(), Some(0));
    let nobody = ground.refused(&["daemon", "status"]);
    assert!(nobody.contains("no daemon answers") && nobody.contains("gabion daemon run"), "{nobody}");
}

#[test]
fn commands_that_find_the_daemon_at_work_are_done_by_it() {
    let mut ground = Ground::new();
    let mut seed = Seed(9);
    for number in 0..40 {
        ground.write(&format!("photos/{number}"), &seed.bytes(400_000));
    }
    // So slow that it is under way while we look.
    let photos = ground.watched("photos", "scrub = { every = '1d', limit = '500KiB/s' }");
    ground.configure(&photos);
    ground.start();
    ground.until_protected("photos", "photos", 44);
    let scrubs = |source: &Value| {
        let job = &source["job"];
        job["work"] == "scrub" && job["waiting_for"].is_null() && job["step"] == "scrubbing"
    };
    // The first run found little to scrub; a person wants all of it.
    ground.expect(0, &["daemon", "scrub", "photos", "--no-wait"]);
    ground.until("photos", "it scrubs", scrubs);
    let refused = ground.refused(&["scrub", "photos/sub"]);
    assert!(
        refused.contains("gabion daemon run (scrub)") && refused.contains("daemon pause photos"),
        "{refused}"
    );
    let refused = ground.refused(&["protect", "photos", "--code", "6+3"]);
    assert!(refused.contains("--wait"), "{refused}");
    // It waits until the scrub is over, or someone stops that.
    ground.write("photos/more", b"more");
    let mut protect = ground.command(&["protect", "photos", "--json"]);
    let mut waiting = protect.stdout(Stdio::piped()).stderr(ground.said.here()).spawn().unwrap();
    ground.until("photos", "it waits for its turn", |source| source["waiting"] == 1);
    assert!(waiting.try_wait().unwrap().is_none());
    ground.expect(0, &["daemon", "pause", "photos"]);
    ground.until("photos", "nothing is at work", |source| source["job"].is_null());
    ground.expect(0, &["daemon", "resume", "photos"]);
    let output = waiting.wait_with_output().unwrap();
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&done["outcome"], &done["files"]), (&json!("fine"), &json!(45)), "{done}");
    ground.stop(Signal::TERM);
}

#[test]
fn what_is_held_is_shown_and_released() {
    let mut ground = Ground::new();
    let policy = b"[default]\ncode = \"4+2\"\nquiet = \"0s\"\n[guard]\nat_least = 5\nremoved = \"25%\"\n";
    ground.write("policy.toml", policy);
    for number in 0..20 {
        ground.write(&format!("photos/{number}"), b"something");
    }
    let photos = ground.watched("photos", "");
    ground.configure(&photos);
    ground.start();
    ground.until_protected("photos", "photos", 24);
    for number in 0..15 {
        std::fs::remove_file(ground.path(&format!("photos/{number}"))).unwrap();
    }
    let source = ground.until("photos", "it is held", |source| source["live"]["held"]["removed"] == 15);
    let digest = source["live"]["held"]["digest"].as_str().unwrap().to_owned();
    let shown = ground.expect(1, &["daemon", "status"]);
    assert!(shown.contains("HELD") && shown.contains(&digest), "{shown}");
    let other = "0123456789abcdef0123456789abcdef";
    assert!(ground.refused(&["daemon", "approve", "photos", other]).contains(&digest));
    let said = ground.expect(0, &["approve", &digest, "photos"]);
    assert!(said.contains("the daemon carries it out"), "{said}");
    ground.until("photos", "it is released", |source| {
        source["live"]["held"].is_null() && source["files"]["known"] == 9
    });
    ground.stop(Signal::TERM);
}

#[test]
fn the_configuration_is_checked_and_read_again() {
    let mut ground = Ground::new();
    let photos = ground.watched("photos", "");
    ground.configure(&photos);
    let shown = ground.expect(0, &["daemon", "run", "daemon.toml", "--check"]);
    assert!(shown.contains("photos: watch") && shown.contains("rescan = 1h"), "{shown}");
    ground.expect(0, &["daemon", "run", "daemon.toml", "--check", "--json"]);
    ground.write("wrong.toml", b"[[source]]\nname = 'a'\nwatch = 'x'\nscrub = { evry = '1d' }\n");
    let wrong = ground.refused(&["daemon", "run", "wrong.toml"]);
    assert!(wrong.contains("line 4") && wrong.contains("evry"), "{wrong}");
    ground.start();
    ground.until_protected("photos", "photos", 4);
    // One more source; the first one goes on as it was.
    let scans = ground.source("photos")["since"].clone();
    let music = ground.watched("music", "");
    ground.configure(&format!("{photos}{music}"));
    let told = ground.expect(0, &["daemon", "reload"]);
    assert!(told.contains("begun: music") && told.contains("kept: photos"), "{told}");
    ground.until_protected("music", "music", 4);
    assert_eq!(ground.source("photos")["since"], scans);
    // What cannot be used changes nothing.
    ground.configure("[[source]]\n");
    assert!(ground.refused(&["daemon", "reload"]).contains("nothing is changed"));
    // By the signal: the first source goes.
    ground.configure(&music);
    rustix::process::kill_process(ground.process(), Signal::HUP).unwrap();
    let began = gabion_vault::world::Stopwatch::start();
    while ground.status()["sources"].as_array().unwrap().len() != 1 {
        assert!(began.elapsed() < super::ground::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // It is free now.
    ground.expect(0, &["protect", "photos"]);
    ground.stop(Signal::TERM);
}

/// `gabion status | head -1` used to end in a panic and a trace.
#[test]
fn who_reads_no_further_ends_the_command_without_a_word() {
    let ground = Ground::new();
    ground.watched("photos", "");
    ground.expect(0, &["protect", "photos"]);
    for args in [&["status", "photos"][..], &["--help"], &["info"], &["status", "photos", "--json"]] {
        let mut command = ground.command(args);
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

/// `daemon scrub` called lost files damaged, `daemon repair` said `repaired` of a file that it could not bring back, and a status
/// right after that counted no lost file and ended with 0: the daemon counts files every few seconds only.
#[test]
fn lost_files_are_called_lost_at_once() {
    let mut ground = Ground::new();
    let photos = ground.watched("photos", "");
    ground.configure(&photos);
    ground.start();
    ground.until_protected("photos", "photos", 4);
    (0..300_000).step_by(2048).for_each(|at| rot(&ground.path("photos/a"), at));
    rot(&ground.path("photos/sub/b"), 5000);
    let lines = |text: &str| -> Vec<String> { text.lines().map(|line| line.trim().to_owned()).collect() };
    let said = lines(&ground.expect(3, &["daemon", "scrub", "photos"]));
    assert!(
        said.contains(&"LOST      a".to_owned()) && said.contains(&"damaged   sub/b".to_owned()),
        "{said:?}"
    );
    let status = ground.expect(3, &["daemon", "status"]);
    assert!(status.contains("1 damaged, 1 lost"), "{status}");
    let said = lines(&ground.expect(3, &["daemon", "repair", "photos"]));
    assert!(
        said.contains(&"LOST      a".to_owned()) && said.contains(&"repaired  sub/b".to_owned()),
        "{said:?}"
    );
    let status = ground.expect(3, &["daemon", "status"]);
    assert!(status.contains("0 damaged, 1 lost"), "{status}");
    ground.stop(Signal::TERM);
}

/// `gabion status` named files whose scrub was overdue by their policy, and the report of the daemon was green.
#[test]
fn overdue_scrubs_are_named_by_the_daemon_as_by_status() {
    let policy = |scrub: &str| {
        format!("[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\nscrub = \"{scrub}\"\n")
    };
    let mut ground = Ground::new();
    ground.configure(&ground.watched("photos", ""));
    ground.write("policy.toml", policy("1s").as_bytes());
    ground.expect(0, &["protect", "photos", "--policy", "policy.toml", "-q"]);
    let overdue = || {
        let output = ground.run(&["status", "photos", "--json"]).stdout;
        serde_json::from_slice::<Value>(&output).unwrap()["scrub_overdue"].clone()
    };
    gabion_testkit::until("the scrubs are overdue", || overdue()["files"] == 4);
    let before = overdue();
    ground.start();
    let counted = |source: &Value| !source["scrub_overdue"].is_null();
    let source = ground.until("photos", "overdue scrubs are counted", counted);
    assert_eq!(source["scrub_overdue"], before);
    let said = ground.expect(1, &["daemon", "status"]);
    assert!(said.contains("the scrub of 4 files is overdue by the policy, the oldest "), "{said}");
    ground.write("photos/.gabion/policy.toml", policy("30d").as_bytes());
    ground.expect(0, &["daemon", "scrub", "photos"]);
    ground.until("photos", "nothing is overdue", |source| source["scrub_overdue"]["files"] == 0);
    ground.expect(0, &["daemon", "status"]);
    ground.stop(Signal::TERM);
}
