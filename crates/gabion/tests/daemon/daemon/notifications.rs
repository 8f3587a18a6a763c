//! Notifications and hooks of a daemon, with servers that receive them.

use super::fixture::{Fixture, rot};
use super::servers::{Identity, Request, Server, http, https, smtp};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// Receivers without waiting.
const AT_ONCE: &str = "collect = '0s'\ninterval = '0s'\n";

/// A request whose message has an item of this kind.
fn tells<'a>(event: &'a str, change: &'a str) -> impl Fn(&(u16, Request)) -> bool + 'a {
    move |(status, request)| {
        let message = request.json();
        let items = message["items"].as_array().unwrap();
        *status == 200 && items.iter().any(|item| item["event"] == event && item["change"] == change)
    }
}

fn of_event<'a>(message: &'a Value, event: &str) -> &'a Value {
    let items = message["items"].as_array().unwrap();
    items.iter().find(|item| item["event"] == event).unwrap_or_else(|| panic!("{message:#}"))
}

fn secret(fixture: &Fixture, name: &str, text: &str) {
    fixture.write(name, text.as_bytes());
    std::fs::set_permissions(fixture.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A watched source that is protected only on request, so that nothing but the test changes its state.
fn quiet(fixture: &Fixture, more: &str) -> String {
    fixture.write("policy.toml", b"[default]\ncode = \"4+2\"\nquiet = \"1h\"\n");
    fixture.watched("photos", more)
}

fn webhook(server: &Server<(u16, Request)>) -> String {
    format!("[[notify]]\nname = 'hook'\nwebhook = 'http://127.0.0.1:{}/gabion'\n{AT_ONCE}", server.port)
}

fn configure(fixture: &Fixture, sections: &str) {
    fixture.configure(&format!("state = 'state'\n{sections}"));
}

#[test]
fn damage_its_repair_and_the_end_of_it_are_told_once() {
    let mut fixture = Fixture::new();
    let server = http(|_| 200);
    configure(&fixture, &format!("{}{}", quiet(&fixture, ""), webhook(&server)));
    fixture.start();
    fixture.expect(0, &["daemon", "protect", "photos"]);
    rot(&fixture.path("photos/a"), 5000, 1);
    fixture.expect(1, &["daemon", "scrub", "photos"]);
    let (_, request) = server.until("damage is told", tells("damage_found", "began"));
    assert_eq!(request.line, "POST /gabion HTTP/1.1");
    let message = request.json();
    assert_eq!((&message["version"], &message["severity"]), (&1.into(), &"warning".into()), "{message:#}");
    let item = of_event(&message, "damage_found");
    assert_eq!((&item["source"], &item["details"][0]), (&"photos".into(), &"a".into()), "{message:#}");
    let text = message["text"].as_str().unwrap();
    assert!(text.contains("gabion daemon repair photos --known"), "{text}");
    assert!(message["subject"].as_str().unwrap().contains("photos: 1 file damaged"), "{message:#}");
    // The command that it names is the one that helps.
    fixture.expect(0, &["daemon", "repair", "photos", "--known"]);
    let (_, request) = server.until("the end is told", tells("damage_found", "ended"));
    let message = request.json();
    assert_eq!(message["all_well"], true, "{message:#}");
    assert!(message["text"].as_str().unwrap().contains("All is well again."), "{message:#}");
    // After a restart nothing is told again.
    let number = server.received().len();
    fixture.stop(Signal::TERM);
    fixture.start();
    fixture.until("photos", "files are counted", |source| source["files"]["known"] == 4);
    rot(&fixture.path("photos/a"), 5000, 1);
    fixture.expect(1, &["daemon", "scrub", "photos"]);
    let again = |it: &(u16, Request)| tells("damage_found", "began")(it);
    gabion_testkit::until("it is told again", || {
        server.received().iter().filter(|it| again(it)).count() == 2
    });
    let since: Vec<Value> = server.received()[number..].iter().map(|(_, request)| request.json()).collect();
    assert!(since.iter().all(|message| message["items"].as_array().unwrap().len() <= 2), "{since:#?}");
    fixture.stop(Signal::TERM);
}

#[test]
fn a_message_survives_kill_and_a_server_that_fails() {
    let mut fixture = Fixture::new();
    // The first request hangs, the second fails, the third arrives.
    let server = http(|number| [0, 500].get(number).copied().unwrap_or(200));
    configure(&fixture, &format!("{}{}timeout = '600s'\n", quiet(&fixture, ""), webhook(&server)));
    fixture.start();
    fixture.expect(0, &["daemon", "protect", "photos"]);
    rot(&fixture.path("photos/a"), 5000, 1);
    fixture.expect(1, &["daemon", "scrub", "photos"]);
    let delivering = |status: &Value| status["notifications"][0]["state"] == "delivering";
    gabion_testkit::until("it is under way", || delivering(&fixture.status()));
    let state = std::fs::read_to_string(fixture.path("state/notifications/hook.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let id = state["message"]["id"].as_str().unwrap().to_owned();
    // A delivery that hangs keeps nothing else waiting.
    fixture.expect(0, &["daemon", "scrub", "photos", "--no-wait"]);
    fixture.kill();
    fixture.start();
    let failing = |status: &Value| status["notifications"][0]["state"] == "failing";
    gabion_testkit::until("the failure is shown", || failing(&fixture.status()));
    let status = fixture.expect(1, &["daemon", "status"]);
    assert!(status.contains("NOT DELIVERED") && status.contains("answered 500: a reason"), "{status}");
    assert!(!status.contains('\u{1b}'), "{status:?}");
    // Retried at once instead of after half a minute, since the configuration changed.
    configure(&fixture, &format!("{}{}timeout = '601s'\n", quiet(&fixture, ""), webhook(&server)));
    fixture.expect(0, &["daemon", "reload"]);
    let (_, request) = server.until("it arrives", |(status, _)| *status == 200);
    assert_eq!(request.json()["id"], id, "the same message");
    let fine = |status: &Value| status["notifications"][0]["error"].is_null();
    gabion_testkit::until("it is fine again", || fine(&fixture.status()));
    fixture.stop(Signal::TERM);
    let state = std::fs::read_to_string(fixture.path("state/notifications/hook.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    assert!(state["message"].is_null() || state["message"]["id"] != id, "{state:#}");
}

#[test]
fn a_test_message_goes_every_way() {
    let fixture = Fixture::new();
    let identity = Identity::new(&fixture.path(""));
    let (plain, encrypted, mail, relay) =
        (http(|_| 200), https(&identity), smtp(Some(&identity)), smtp(None));
    secret(&fixture, "token", "top-secret-token\n");
    secret(&fixture, "password", "hunter2\n");
    secret(&fixture, "url", &format!("http://127.0.0.1:{}/secret-path\n", plain.port));
    fixture.write("receiver.sh", b"#!/bin/sh\n{ echo \"$GABION_SUBJECT $1\"; cat; } > command.txt\n");
    fixture.write("mta.sh", b"#!/bin/sh\ncat > mail.txt\n");
    for script in ["receiver.sh", "mta.sh"] {
        std::fs::set_permissions(fixture.path(script), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let addresses = "from = 'Gabion <gabion@example.org>'\nto = ['admin@example.org', 'b@example.org']";
    let ca = identity.authority.display();
    let sections = format!(
        "{}
[[notify]]\nname = 'command'\ncommand = ['./receiver.sh', 'one']
[[notify]]\nname = 'webhook'\nwebhook = 'https://localhost:{}/x'\nca = '{ca}'\ntoken = 'file:token'
[[notify]]\nname = 'ntfy'\nntfy = 'http://127.0.0.1:{}/disks'
[[notify]]\nname = 'beat'\nheartbeat = 'file:url'
[[notify]]\nname = 'mail'\nsmtp = 'localhost'\nport = {}\nca = '{ca}'\nuser = 'u'\npassword = 'file:password'\n{addresses}
[[notify]]\nname = 'relay'\nsmtp = '127.0.0.1'\nport = {}\ntls = 'none'\n{addresses}
[[notify]]\nname = 'sendmail'\nsendmail = ['./mta.sh']\n{addresses}
",
        fixture.watched("photos", ""),
        encrypted.port,
        plain.port,
        mail.port,
        relay.port
    );
    configure(&fixture, &sections);
    let printed = fixture.expect(0, &["notify", "test", "daemon.toml"]);
    for name in ["command", "webhook", "ntfy", "beat", "mail", "relay", "sendmail"] {
        assert!(printed.lines().any(|line| line.starts_with(&format!("{name}: "))), "{printed}");
    }
    let subject = format!("[gabion {}] test of the receiver", gabion_vault::world::host());
    let command = std::fs::read_to_string(fixture.path("command.txt")).unwrap();
    let (first, json) = command.split_once('\n').unwrap();
    assert_eq!(first, format!("{subject} command one"));
    assert_eq!(serde_json::from_str::<Value>(json).unwrap()["items"][0]["change"], "test");
    let (_, request) = encrypted.received().remove(0);
    assert_eq!(request.header("authorization"), Some("Bearer top-secret-token"));
    let published = plain.until("ntfy", |(_, request)| request.line.starts_with("POST / ")).1.json();
    assert_eq!(
        (&published["topic"], &published["title"]),
        (&"disks".into(), &format!("{subject} ntfy").into())
    );
    plain.until("heartbeat", |(_, request)| request.line.starts_with("POST /secret-path "));
    let got = mail.received().remove(0);
    assert!(got.encrypted);
    assert_eq!(got.login.as_deref(), Some("AHUAaHVudGVyMg=="));
    assert_eq!(got.to.len(), 2);
    for data in [
        got.data,
        relay.received().remove(0).data,
        std::fs::read_to_string(fixture.path("mail.txt")).unwrap(),
    ] {
        for part in ["Subject: ", "To: admin@example.org, b@example.org", "Auto-Submitted", "Message-ID: <"] {
            assert!(data.contains(part), "{part}: {data}");
        }
    }
    // Nothing of it shows secrets.
    let check = fixture.expect(0, &["daemon", "run", "daemon.toml", "--check"]);
    let json = fixture.expect(0, &["daemon", "run", "daemon.toml", "--check", "--json"]);
    for text in [&printed, &check, &json] {
        for secret in ["top-secret", "hunter2", "secret-path"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    assert!(check.contains("password = file:") && check.contains("notify mail: smtp"), "{check}");
    // One that fails is named, and the others are not.
    std::fs::write(fixture.path("password"), "wrong\nlines\n").unwrap();
    let printed = fixture.expect(1, &["notify", "test", "daemon.toml", "--name", "mail"]);
    assert!(printed.contains("NOT DELIVERED") && printed.lines().count() == 1, "{printed}");
    std::fs::set_permissions(fixture.path("token"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = fixture.refused(&["daemon", "run", "daemon.toml", "--check"]);
    assert!(refused.contains("chmod 600"), "{refused}");
    assert!(fixture.refused(&["notify", "test", "daemon.toml", "--name", "none"]).contains("no receiver"));
}

#[test]
fn errors_of_deliveries_show_no_secrets() {
    let fixture = Fixture::new();
    let identity = Identity::new(&fixture.path(""));
    let (refusing, silent, plain_mail, encrypted) =
        (http(|_| 403), http(|_| 0), smtp(None), https(&identity));
    secret(&fixture, "token", "top-secret-token\n");
    secret(&fixture, "url", "http://127.0.0.1:1/secret-path\n");
    secret(&fixture, "password", "hunter2\n");
    let mail = "user = 'u'\npassword = 'file:password'\nfrom = 'g@example.org'\nto = ['a@example.org']";
    let sections = format!(
        "{}
[[notify]]\nname = 'refused'\nwebhook = 'http://127.0.0.1:{}/secret-path'\ntoken = 'file:token'
[[notify]]\nname = 'silent'\nwebhook = 'http://127.0.0.1:{}/secret-path'\ntimeout = '1s'
[[notify]]\nname = 'closed'\nwebhook = 'file:url'
[[notify]]\nname = 'untrusted'\nwebhook = 'https://localhost:{}/secret-path'
[[notify]]\nname = 'unencrypted'\nsmtp = 'localhost'\nport = {}\n{mail}
[[notify]]\nname = 'command'\ncommand = ['sh', '-c', 'echo it does not work >&2; exit 7']
",
        fixture.watched("photos", ""),
        refusing.port,
        silent.port,
        encrypted.port,
        plain_mail.port,
    );
    configure(&fixture, &sections);
    let printed = fixture.expect(1, &["notify", "test", "daemon.toml"]);
    for secret in ["top-secret", "hunter2", "secret-path"] {
        assert!(!printed.contains(secret), "{printed}");
    }
    let line = |name: &str| {
        let line = printed.lines().find(|line| line.starts_with(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("{printed}"))
    };
    assert!(line("refused").contains("answered 403: a reason"), "{printed}");
    assert!(line("silent").contains("no answer within 1 s"), "{printed}");
    assert!(line("closed").contains("NOT DELIVERED") && line("untrusted").contains("NOT DELIVERED"));
    // A password is not sent to a server that does not encrypt.
    assert!(line("unencrypted").contains("NOT DELIVERED") && plain_mail.received().is_empty(), "{printed}");
    assert!(line("command").contains("exit code 7: it does not work"), "{printed}");
    assert_eq!(encrypted.received().len(), 0);
}

#[test]
fn held_changes_are_told_with_the_command_that_approves_them() {
    let mut fixture = Fixture::new();
    let server = http(|_| 200);
    let photos = quiet(&fixture, "");
    fixture.write(
        "policy.toml",
        b"[default]\ncode = \"4+2\"\nquiet = \"0s\"\n[guard]\nat_least = 2\nremoved = \"25%\"\n",
    );
    configure(&fixture, &format!("{photos}{}events = ['change_set_held']\n", webhook(&server)));
    fixture.start();
    fixture.until_protected("photos", "photos", 4);
    std::fs::remove_dir_all(fixture.path("photos/sub")).unwrap();
    std::fs::remove_file(fixture.path("photos/a")).unwrap();
    let (_, request) = server.until("it is told", tells("change_set_held", "began"));
    let message = request.json();
    let item = of_event(&message, "change_set_held");
    let command = item["next"].as_array().unwrap().iter().find_map(|step| {
        step.as_str().unwrap().split_once("type: gabion ").map(|(_, command)| command.to_owned())
    });
    let command = command.unwrap();
    fixture.expect(0, &command.split(' ').collect::<Vec<&str>>());
    server.until("the end is told", tells("change_set_held", "ended"));
    fixture.stop(Signal::TERM);
}

#[test]
fn a_heartbeat_stops_when_something_is_wrong() {
    let mut fixture = Fixture::new();
    let server = http(|_| 200);
    let beat = format!(
        "[[notify]]\nname = 'beat'\nheartbeat = 'http://127.0.0.1:{}/id?x=1'\nevery = '1s'\ncollect = '0s'\n",
        server.port
    );
    configure(&fixture, &format!("{}{beat}", quiet(&fixture, "")));
    fixture.start();
    let well = |it: &&(u16, Request)| it.1.line.starts_with("POST /id?x=1 ");
    gabion_testkit::until("it beats", || server.received().iter().filter(well).count() >= 2);
    // As when its disk is gone.
    std::fs::rename(fixture.path("photos"), fixture.path("away")).unwrap();
    let (_, request) =
        server.until("it says so", |(_, request)| request.line.starts_with("POST /id/fail?x=1 "));
    assert!(String::from_utf8(request.body).unwrap().contains("photos: nothing is protected"));
    std::fs::rename(fixture.path("away"), fixture.path("photos")).unwrap();
    let number = server.received().iter().filter(well).count();
    gabion_testkit::until("it beats again", || server.received().iter().filter(well).count() > number + 1);
    fixture.stop(Signal::TERM);
}

#[test]
fn hooks_run_around_jobs_and_can_skip_them() {
    let mut fixture = Fixture::new();
    fixture.write(
        "hook.sh",
        b"#!/bin/sh\ncd \"$1\" || exit 1\necho \"$GABION_HOOK $GABION_SOURCE $GABION_SCHEDULED $GABION_OUTCOME $(wc -c)\" >> log\n\
          test ! -e \"no_$GABION_HOOK\" || { echo the disk sleeps >&2; exit 4; }\n",
    );
    std::fs::set_permissions(fixture.path("hook.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = format!("['./hook.sh', '{}']", fixture.path("").display());
    let sections = format!(
        "[hooks]\nbefore_scrub = {command}\nafter_scrub = {command}\nafter_protect = {command}\n{}hooks = {{ before_protect = {command}, after_protect = [] }}\n",
        quiet(&fixture, "")
    );
    configure(&fixture, &sections);
    fixture.start();
    fixture.expect(0, &["daemon", "protect", "photos"]);
    fixture.expect(0, &["daemon", "scrub", "photos"]);
    let log = || std::fs::read_to_string(fixture.path("log")).unwrap();
    let lines: Vec<String> = log().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("before_protect photos 0  0"), "{lines:?}");
    assert!(lines[1].starts_with("before_scrub photos 0  0"), "{lines:?}");
    // The report of the job is its input.
    assert!(lines[2].starts_with("after_scrub photos 0 fine ") && !lines[2].ends_with(" 0"), "{lines:?}");
    fixture.write("no_before_scrub", b"");
    let refused = fixture.refused(&["daemon", "scrub", "photos"]);
    assert!(refused.contains("hook before_scrub failed") && refused.contains("the disk sleeps"), "{refused}");
    assert_eq!(log().lines().count(), 4, "the scrub did not run, and neither did the hook after it");
    fixture.until("photos", "it failed", |source| source["last"]["scrub"]["outcome"] == "failed");
    std::fs::remove_file(fixture.path("no_before_scrub")).unwrap();
    // One that fails afterwards changes nothing about the outcome.
    fixture.write("no_after_scrub", b"");
    fixture.expect(0, &["daemon", "scrub", "photos"]);
    fixture.stop(Signal::TERM);
}

#[test]
fn a_hook_that_hangs_is_killed_when_the_daemon_stops() {
    let mut fixture = Fixture::new();
    let sections = format!("[hooks]\nbefore_scrub = ['sleep', '100000']\n{}", quiet(&fixture, ""));
    configure(&fixture, &sections);
    fixture.start();
    fixture.expect(0, &["daemon", "scrub", "photos", "--no-wait"]);
    fixture.until("photos", "the hook runs", |source| source["job"]["step"] == "before_scrub");
    fixture.stop(Signal::TERM);
}

#[test]
fn two_daemons_do_not_share_their_state() {
    let mut fixture = Fixture::new();
    let server = http(|_| 200);
    configure(&fixture, &format!("{}{}", quiet(&fixture, ""), webhook(&server)));
    fixture.start();
    let other = fixture.refused(&["daemon", "run", "daemon.toml", "--socket", "other"]);
    assert!(other.contains("another daemon uses the state directory"), "{other}");
    fixture.stop(Signal::TERM);
}
