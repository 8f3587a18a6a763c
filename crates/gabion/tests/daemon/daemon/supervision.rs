//! Notifications to the service manager, and a second daemon on the same socket.

use super::fixture::{Fixture, PATIENCE};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::net::UnixDatagram;

/// What is told until it fits.
fn hear(socket: &UnixDatagram, fits: impl Fn(&str) -> bool) -> Vec<String> {
    let mut heard = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let got = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{error} after {heard:?}"));
        let text = String::from_utf8(buffer[..got].to_vec()).unwrap();
        let done = fits(&text);
        heard.push(text);
        if done {
            return heard;
        }
    }
}

#[test]
fn the_service_manager_is_notified() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    fixture.configure(&format!("{photos}[[source]]\nname = 'missing'\nwatch = 'missing'\n"));
    let socket = UnixDatagram::bind(fixture.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = fixture.command(&["daemon", "run", "daemon.toml"]);
    command.env("NOTIFY_SOCKET", fixture.path("notify")).env("WATCHDOG_USEC", "1000000");
    fixture.start_with(command);
    let ready = hear(&socket, |text| text.starts_with("READY=1\n"));
    let last = ready.last().unwrap();
    assert!(last.contains("STATUS=1 of 2 sources do not run: missing"), "{ready:?}");
    hear(&socket, |text| text == "WATCHDOG=1\n");
    // It recovers, and that is told as well.
    std::fs::create_dir(fixture.path("missing")).unwrap();
    hear(&socket, |text| text == "STATUS=2 sources, all running\n");
    let process = fixture.process();
    kill_process(process, Signal::TERM).unwrap();
    hear(&socket, |text| text.starts_with("STOPPING=1\n"));
    assert_eq!(fixture.wait(), Some(0));
}

#[test]
fn a_second_daemon_is_refused_and_the_first_named() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    fixture.configure(&photos);
    fixture.start();
    let process = fixture.daemon.as_ref().unwrap().id().to_string();
    let refused = fixture.refused(&["daemon", "run", "daemon.toml"]);
    assert!(refused.contains("already") && refused.contains(&process), "{refused}");
    // With another socket it runs, but the source is not its own.
    let mut command = fixture.command(&["daemon", "run", "daemon.toml", "--socket", "other", "--json"]);
    let child =
        command.stdout(std::process::Stdio::piped()).stderr(fixture.captured.as_stdio()).spawn().unwrap();
    let began = gabion_vault::world::Stopwatch::start();
    let status = loop {
        let output = fixture.run(&["daemon", "status", "--socket", "other", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if status["sources"][0]["state"] == "failed" {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "{status}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    let why = status["sources"][0]["reason"].as_str().unwrap().to_owned();
    assert!(why.contains("gabion daemon run") && why.contains(&process), "{why}");
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    // The first one is still there, and its note too.
    fixture.until_protected("photos", "photos", 4);
    assert!(fixture.path("photos/.gabion/daemon").exists());
    fixture.stop(Signal::TERM);
}
