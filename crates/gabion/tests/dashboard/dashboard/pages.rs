//! What a person sees of healthy, damaged, lost and held sources and of a daemon that is gone, and what clicks do.

use super::browser::{Browser, can_browse};
use super::fixture::{Fixture, PATIENCE, can_mount, rot};
use super::http::{Answer, exchange, request};
use rustix::process::Signal;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

const TOKEN: &str = "admin-0123456789abcdef0123456789abcdef";

/// A name that would run a script, if it were taken for HTML, and one that would look like another.
const HOSTILE: &str = "<img src=x onerror=hostile=1>";
const DISGUISED: &str = "photo\u{202e}gpj.exe";

/// Adds a TCP socket to a configuration; gives its address.
fn listen(fixture: &Fixture, sources: &str) -> String {
    let port = gabion_testkit::port();
    let path = fixture.path("admins");
    std::fs::write(&path, TOKEN).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    fixture.configure(&format!("[api]\nlisten = '127.0.0.1:{port}'\nadmin_tokens = 'admins'\n{sources}"));
    format!("127.0.0.1:{port}")
}

/// Opens the page and gives it the token.
fn log_in(host: &str, width: u32) -> Browser {
    let browser = Browser::start(width);
    browser.open(&format!("http://{host}/"));
    browser.sees(&["A token is needed to see the state."]);
    browser.fill("#token", TOKEN);
    browser.click("#login");
    // The first request had none: that it was refused is in the console.
    browser.sees(&["Overview"]);
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|it| it.contains("401 (Unauthorized)")), "{complaints:?}");
    browser
}

#[test]
fn states_are_shown_and_each_view_works() {
    if !can_browse("states_are_shown_and_each_view_works") {
        return;
    }
    let mut fixture = Fixture::new();
    let (photos, music) = (fixture.watched("photos", ""), fixture.watched("music", ""));
    std::fs::create_dir(fixture.path("empty")).unwrap();
    fixture.write("slow.toml", b"[default]\ncode = \"4+2\"\nquiet = \"1h\"\n");
    let empty = "[[source]]\nname = 'empty'\nwatch = 'empty'\npolicy = 'slow.toml'\n";
    for name in [HOSTILE, DISGUISED] {
        fixture.write(&format!("music/{name}"), &[7; 70_000]);
    }
    let host = listen(&fixture, &format!("{photos}{music}{empty}"));
    fixture.start();
    fixture.until_protected("photos", "photos", 4);
    fixture.until_protected("music", "music", 6);
    fixture.until("empty", "it runs", |source| source["state"] == "running" && source["files"]["known"] == 0);
    let browser = log_in(&host, 1280);
    browser.sees(&[
        "✓ Protected",
        "All 10 files of 3 sources are protected.",
        "Exposed\nnothing",
        "4 protected, 0 degraded, 0 damaged, 0 lost",
        "actual 2",
        "free of",
        "○ No files",
    ]);
    // The page says nothing better than the command, here and below.
    fixture.expect(0, &["daemon", "status"]);
    fixture.write("empty/new", b"new");
    browser.sees(&["↻ Catching up", "empty: 1 change not protected yet", "1 pending"]);

    // Damage is shown as soon as it is found, by a word and a colour.
    for name in [HOSTILE, DISGUISED] {
        rot(&fixture.path(&format!("music/{name}")), 5000, 1);
    }
    fixture.write("music/later", b"later");
    fixture.until_protected("music", "music", 7);
    fixture.job("/api/v1/sources/music/scrub", "{}");
    browser.sees(&["! Attention", "music: 2 files damaged, and can be repaired (and 1 other finding)."]);
    assert_eq!(browser.script("return document.body.dataset.level"), "attention");
    fixture.expect(1, &["daemon", "status"]);

    // Names of files are text, whatever they contain.
    browser.click("#link-music");
    browser.sees(&["Source music", HOSTILE, "photo[U+202E]gpj.exe", "damaged", "data: bytes"]);
    assert!(!browser.text().contains('\u{202e}'));
    browser.click("#state option[value=all]");
    browser.fill("#prefix", "sub");
    browser.click("#show");
    browser.sees(&["sub/b", "sub/c", "2 files"]);
    assert!(!browser.text().contains("photo["), "only what is below sub");
    browser.fill("#prefix", HOSTILE);
    browser.click("#show");
    browser.sees(&[HOSTILE, "1 file"]);
    browser.click("#files a");
    browser.sees(&["Policy", "is protected by the rule default", HOSTILE, "4+2"]);
    browser.fill("#path", "none");
    browser.click("#ask");
    browser.sees(&["there is no file none"]);

    browser.click("#nav-targets");
    browser.click("#whatif-photos");
    browser.sees(&["Select at least one target."]);
    browser.click("#lose-photos-repository");
    browser.click("#whatif-photos");
    browser.sees(&["Nothing would be lost.", "keep data, lose redundancy", "4"]);
    browser.click("#nav-activity");
    browser.sees(&["Live: new events appear here.", "damage found", "scrub", "ended", "open"]);
    fixture.expect(0, &["daemon", "pause", "photos"]);
    browser.sees(&["source paused", "photos: it is paused"]);
    fixture.expect(0, &["daemon", "resume", "photos"]);
    browser.sees(&["source resumed"]);
    browser.click("#nav-forecast");
    browser.click("#ask");
    browser.sees(&["8+2 on 10 disks", "checked", "years"]);
    browser.click("#nav-decisions");
    browser.sees(&["Nothing needs a decision.", "none needed"]);

    // Data that is lost comes first.
    rot(&fixture.path("photos/a"), 0, 300_000);
    fixture.write("photos/later", b"later");
    fixture.until_protected("photos", "photos", 5);
    fixture.job("/api/v1/sources/photos/scrub", "{}");
    browser.sees(&["✗ Danger", "photos: 1 file lost beyond repair (and 2 other findings)."]);
    fixture.expect(3, &["daemon", "status"]);
    assert_eq!(
        browser.script("return [window.hostile ?? null, document.images.length]"),
        serde_json::json!([null, 0])
    );
    // A file that does not exist was asked for above.
    let complaints = browser.complaints();
    assert!(
        complaints.iter().all(|it| it.contains("policy?path=none") && it.contains("404")),
        "{complaints:?}"
    );
    fixture.stop(Signal::TERM);
}

#[test]
fn held_changes_are_approved_and_a_dead_daemon_is_noticed() {
    if !can_browse("held_changes_are_approved_and_a_dead_daemon_is_noticed") {
        return;
    }
    let mut fixture = Fixture::new();
    let policy = b"[default]\ncode = \"4+2\"\nquiet = \"0s\"\n[guard]\nat_least = 5\nremoved = \"25%\"\n";
    fixture.write("policy.toml", policy);
    for number in 0..20 {
        fixture.write(&format!("photos/{number}"), b"something");
    }
    let photos = fixture.watched("photos", "");
    let host = listen(&fixture, &photos);
    fixture.start();
    fixture.until_protected("photos", "photos", 24);
    // A phone.
    let browser = log_in(&host, 500);
    browser.sees(&["✓ Protected"]);
    for number in 0..15 {
        std::fs::remove_file(fixture.path(&format!("photos/{number}"))).unwrap();
    }
    let source = fixture.until("photos", "it is held", |source| source["live"]["held"]["removed"] == 15);
    let digest = source["live"]["held"]["digest"].as_str().unwrap();
    browser.sees(&["! Attention", "photos: 15 changes held until you decide", "1 needed"]);
    let overflow = "return document.documentElement.scrollWidth - window.innerWidth";
    assert!(browser.script(overflow).as_i64().unwrap() <= 0, "the page is wider than a phone");
    browser.click("#to-decisions");
    browser.sees(&["photos: 15 files removed, 0 files changed", digest]);
    // Whoever goes back changes nothing. The button is used by the keyboard.
    browser.click("#approve-photos");
    browser.sees(&["Approve the changes of photos?", "cannot be undone"]);
    assert_eq!(browser.script("return document.activeElement.id"), "dialog-cancel");
    browser.press(&["\u{e007}"]);
    assert_eq!(browser.script("return document.querySelectorAll('dialog').length"), 0);
    assert_eq!(fixture.source("photos")["live"]["held"]["digest"], digest);
    browser.click("#approve-photos");
    browser.click("#dialog-go");
    browser.sees(&["is approved", "Nothing needs a decision.", "All 9 files of 1 source are protected."]);
    fixture.until("photos", "it is released", |source| {
        source["live"]["held"].is_null() && source["files"]["known"] == 9
    });
    assert_eq!(browser.complaints(), Vec::<String>::new());

    fixture.kill();
    browser.sees(&["? No answer", "The daemon does not answer", "The last answer came at"]);
    assert_eq!(browser.script("return document.body.classList.contains('gone')"), true);
    assert!(!browser.text().contains("✓"), "nothing is shown as protected: {}", browser.text());
    fixture.start();
    browser.sees(&["✓ Protected", "All 9 files of 1 source are protected."]);
    assert_eq!(browser.script("return document.body.classList.contains('gone')"), false);
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|it| it.contains("net::ERR_")), "{complaints:?}");
    // Without the token it is asked for again.
    browser.click("#forget");
    browser.sees(&["A token is needed"]);
    assert_eq!(browser.script("return sessionStorage.length"), 0);
    browser.fill("#token", "a-token-that-nobody-gave-0123456789");
    browser.click("#login");
    browser.sees(&["the token is not known"]);
    fixture.stop(Signal::TERM);
}

#[test]
fn mounted_loss_of_targets_is_shown_and_confirmed() {
    if !can_browse("mounted_loss_of_targets_is_shown_and_confirmed") || !can_mount("loss_in_the_dashboard") {
        return;
    }
    let mut fixture = Fixture::new();
    let tank = fixture.pool("rebuild = { after = '1s', look = '1s' }");
    let host = listen(&fixture, &tank);
    fixture.start();
    for number in 0..6 {
        fixture.write(&format!("mnt/file {number}"), &vec![number; 50_000]);
    }
    fixture.until_protected("tank", "tank", 6);
    let browser = log_in(&host, 1280);
    browser.sees(&["All 6 files of 1 source are protected.", "8 targets"]);
    for number in [4, 6, 8] {
        let directory = fixture.path(&format!("t{number}"));
        std::fs::rename(&directory, directory.with_extension("away")).unwrap();
    }
    let source = fixture.until("tank", "it asks", |source| source["pool"]["ask"]["agreement"].is_string());
    let agreement = source["pool"]["ask"]["agreement"].as_str().unwrap();
    browser.sees(&["has to be confirmed", "1 needed"]);
    browser.click("#nav-decisions");
    browser.sees(&["tank: are", agreement]);
    browser.click("#nav-targets");
    browser.sees(&["offline", "gone"]);
    browser.click("#nav-decisions");
    browser.click("#agree-tank");
    browser.sees(&["Give up and rebuild"]);
    browser.click("#dialog-go");
    browser.sees(&["rebuilds tank"]);
    fixture.until("tank", "the question was answered", |source| source["pool"]["ask"].is_null());
    browser.sees(&["Nothing needs a decision."]);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    fixture.stop(Signal::TERM);
}

#[test]
fn the_page_needs_no_token_and_has_a_strict_policy() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    let host = listen(&fixture, &photos);
    fixture.start();
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let stream = TcpStream::connect(&host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Answer::parse(&exchange(stream, &request(method, path, headers, "")))
    };
    for (path, kind) in [
        ("/", "text/html"),
        ("/style.css", "text/css"),
        ("/app.js", "text/javascript"),
        ("/client.js", "text/javascript"),
        ("/page.js", "text/javascript"),
        ("/verdict.js", "text/javascript"),
        ("/views.js", "text/javascript"),
    ] {
        // A link from another site leads to the page.
        let answer = ask("GET", path, &[("Host", &host), ("Sec-Fetch-Site", "cross-site")]);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert!(answer.header("content-type").unwrap().starts_with(kind), "{path}: {answer:?}");
        let policy = answer.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.split(';').any(|it| it.trim() == part), "{part} is not in {policy}");
        }
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert!(answer.header("set-cookie").is_none());
        let head = ask("HEAD", path, &[("Host", &host)]);
        assert_eq!((head.status, head.body.as_str()), (200, ""));
    }
    assert_eq!(ask("POST", "/", &[("Host", &host)]).error(), "unauthorized");
    assert_eq!(ask("GET", "/api/v1/status", &[("Host", &host)]).error(), "unauthorized");
    // At the Unix socket too, for a tunnel; but not for a page whose name leads to the tunnel.
    assert_eq!(fixture.http("GET", "/", "").status, 200);
    let rebound = request("GET", "/api/v1/status", &[("Host", "evil.example:7443")], "");
    assert_eq!(Answer::parse(&fixture.send(&rebound)).error(), "cross_origin");
    fixture.stop(Signal::TERM);
}
