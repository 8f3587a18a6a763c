//! The HTTP API: answers fit their description, files come in pages, events are kept and streamed, and users, tokens
//! and pages of other sites get what they may have.

use super::fixture::{Fixture, PATIENCE, rot};
use super::http::{Answer, exchange, request};
use super::schema::misfit;
use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;

/// Checks an answer against the description of its route.
fn check(document: &Value, route: &str, method: &str, answer: &Answer) -> Value {
    let responses = &document["paths"][route][method]["responses"];
    let of_status = &responses[answer.status.to_string()];
    let schema = if of_status.is_object() { of_status } else { &responses["default"] };
    let schema = &schema["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{method} {route} {} is not described", answer.status);
    let body = answer.json();
    assert_eq!(body["version"], 1, "{body}");
    assert_eq!(misfit(document, schema, &body, route), None);
    body
}

#[test]
fn answers_fit_the_description_of_the_api() {
    let mut fixture = Fixture::new();
    let tank = fixture.pool("rebuild = { look = '1s' }");
    let photos = fixture.watched("photos", "");
    fixture.configure(&format!("{photos}{tank}"));
    let can_mount = super::fixture::can_mount("answers");
    if !can_mount {
        fixture.configure(&photos);
    }
    let odd = std::ffi::OsStr::from_bytes(b"photos/odd \xff\x1b[2J");
    std::fs::write(fixture.path("photos").parent().unwrap().join(odd), vec![7; 70_000]).unwrap();
    fixture.start();
    fixture.until_protected("photos", "photos", 5);
    let document = fixture.get_document();
    let printed: Value = serde_json::from_str(&fixture.expect(0, &["daemon", "openapi"])).unwrap();
    assert_eq!(printed, document);
    for path in ["photos/a", "photos/sub/b"] {
        rot(&fixture.path(path), 5000, 1);
    }
    rot(&fixture.path("photos").parent().unwrap().join(odd), 5000, 1);
    // Once a later file is protected, the writes above are recorded, and nothing waits for its turn.
    fixture.write("photos/later", b"later");
    fixture.until_protected("photos", "photos", 6);
    let scrub = fixture.job("/api/v1/sources/photos/scrub", "{}");
    assert_eq!(
        (&scrub["outcome"], &scrub["report"]["damaged"]),
        (&Value::from("open"), &Value::from(3)),
        "{scrub}"
    );
    let route = |path: &str| {
        path.split('?').next().unwrap().replace("/photos", "/{source}").replace("/tank", "/{source}")
    };
    let get = |path: &str| {
        let answer = fixture.http("GET", path, "");
        assert_eq!(answer.status, 200, "{path} {answer:?}");
        check(&document, &route(path), "get", &answer)
    };
    let mut paths = vec![
        "/api/v1/status",
        "/api/v1/sources",
        "/api/v1/sources/photos",
        "/api/v1/sources/photos/files",
        "/api/v1/sources/photos/problems",
        "/api/v1/sources/photos/targets",
        "/api/v1/sources/photos/redundancy",
        "/api/v1/sources/photos/events",
        "/api/v1/sources/photos/policy?path=sub/b",
        "/api/v1/sources/photos/whatif?lose=repository",
        "/api/v1/forecast?code=8+2&disks=12&mtbf=500000h",
        "/api/v1/events?limit=3",
        "/api/v1/jobs",
    ];
    if can_mount {
        paths.extend([
            "/api/v1/sources/tank",
            "/api/v1/sources/tank/targets",
            "/api/v1/sources/tank/whatif?lose=t1",
        ]);
    }
    paths.iter().for_each(|path| drop(get(path)));
    // What is not UTF-8 has its bytes, and is read by them.
    let problems = get("/api/v1/sources/photos/problems")["files"].take();
    let of_odd = problems.as_array().unwrap().iter().find(|file| file["path_bytes"].is_string());
    let of_odd = of_odd.unwrap_or_else(|| panic!("{problems}"));
    assert_eq!(of_odd["path_bytes"], "b2RkIP8bWzJK", "{of_odd}");
    assert_eq!(
        (&of_odd["state"], of_odd["problems"].as_array().unwrap().len()),
        (&Value::from("damaged"), 1)
    );
    let one = get("/api/v1/sources/photos/files?prefix=odd%20%ff%1b[2J");
    assert_eq!(one["files"].as_array().unwrap().len(), 1);
    let text = fixture.expect(1, &["daemon", "scrub", "photos"]);
    assert!(!text.contains('\x1b'), "{text:?}");
    // A repair is planned, and carried out once by the digest of its plan.
    let plan = fixture.job("/api/v1/sources/photos/repair/plan", "{}");
    assert_eq!(plan["report"]["files"], 3, "{plan}");
    let digest = plan["report"]["digest"].as_str().unwrap();
    let body = format!("{{\"digest\":\"{digest}\"}}");
    let wrong = fixture.http("POST", "/api/v1/sources/photos/repair", "{\"digest\":\"0000\"}");
    assert_eq!((wrong.status, wrong.error()), (409, "digest_mismatch".to_owned()));
    check(&document, "/api/v1/sources/{source}/repair", "post", &wrong);
    let repair = fixture.job("/api/v1/sources/photos/repair", &body);
    assert_eq!(repair["outcome"], "fine", "{repair}");
    let again = fixture.http("POST", "/api/v1/sources/photos/repair", &body);
    assert_eq!(again.error(), "digest_mismatch");
    let id = repair["id"].as_u64().unwrap();
    let job = fixture.http("GET", &format!("/api/v1/jobs/{id}"), "");
    check(&document, "/api/v1/jobs/{id}", "get", &job);
    assert_eq!(get("/api/v1/sources/photos/problems")["files"], Value::Array(Vec::new()));
    // The others, with their answers.
    for (path, body) in [
        ("/api/v1/sources/photos/pause", ""),
        ("/api/v1/sources/photos/resume", "{}"),
        ("/api/v1/pause", ""),
        ("/api/v1/resume", ""),
        ("/api/v1/sources/photos/protect", ""),
        ("/api/v1/sources/photos/scrub", "{\"percent\":50}"),
        ("/api/v1/reload", ""),
    ] {
        let answer = fixture.http("POST", path, body);
        assert!(matches!(answer.status, 200 | 202), "{path}: {answer:?}");
        check(&document, &route(path), "post", &answer);
    }
    // What happened is in the history, in order, with times.
    let events = get("/api/v1/sources/photos/events?kind=damage_found&kind=repaired")["events"].take();
    let kinds: Vec<&str> =
        events.as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["damage_found", "damage_found", "repaired"], "{events}");
    assert_eq!(events[2]["data"]["files"], 3, "{events}");
    assert!(events[0]["time"].as_str().unwrap().ends_with('Z'));
    let answer = fixture.http("POST", "/api/v1/stop", "");
    check(&document, "/api/v1/stop", "post", &answer);
    assert_eq!(fixture.wait(), Some(0));
}

#[test]
fn files_come_in_pages() {
    let mut fixture = Fixture::new();
    for number in 0..25 {
        fixture.write(&format!("photos/{}/{number}", number % 4), b"something");
    }
    let photos = fixture.watched("photos", "");
    fixture.configure(&photos);
    fixture.start();
    fixture.until_protected("photos", "photos", 29);
    let pages = |query: &str| {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = fixture.get(&format!("/api/v1/sources/photos/files?limit=4{query}{cursor}"));
            let files = page["files"].as_array().unwrap();
            assert!(files.len() <= 4);
            all.extend(files.iter().map(|file| file["path"].as_str().unwrap().to_owned()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return all,
            }
        }
    };
    let mut all = pages("");
    assert_eq!(all.len(), 29);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 29);
    let below = pages("&prefix=2");
    assert!(below.len() == 6 && below.iter().all(|path| path.starts_with("2/")), "{below:?}");
    assert_eq!(pages("&state=protected&prefix=sub/").len(), 2);
    assert_eq!(pages("&state=lost"), Vec::<String>::new());
    assert_eq!(pages("&prefix=su"), Vec::<String>::new());
    fixture.stop(Signal::TERM);
}

/// Reads events of a stream until one fits.
fn next_event(stream: &mut BufReader<UnixStream>, fits: impl Fn(&Value) -> bool) -> (String, Value) {
    let mut id = String::new();
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
        if let Some(text) = line.strip_prefix("id: ") {
            id = text.trim().to_owned();
        }
        // With chunks, lines of lengths are between these.
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(event["sequence"].to_string(), id);
        if fits(&event) {
            return (id, event);
        }
    }
}

fn open_stream(fixture: &Fixture, headers: &[(&str, &str)]) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(fixture.path("sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&request("GET", "/api/v1/events/stream", headers, "")).unwrap();
    BufReader::new(stream)
}

#[test]
fn events_are_streamed_and_resumed_after_the_last_one() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    fixture.configure(&photos);
    fixture.start();
    fixture.until_protected("photos", "photos", 4);
    let kind = |kind: &'static str| move |event: &Value| event["kind"] == kind;
    let last = fixture.get("/api/v1/status")["last_sequence"].to_string();
    let mut stream = open_stream(&fixture, &[("Last-Event-ID", &last)]);
    fixture.expect(0, &["daemon", "pause", "photos"]);
    let (paused, event) = next_event(&mut stream, |_| true);
    assert_eq!((&event["kind"], &event["source"]), (&Value::from("source_paused"), &Value::from("photos")));
    drop(stream);
    // What happens meanwhile, also over a crash and a new start, is sent after the last event that was seen.
    fixture.expect(0, &["daemon", "resume", "photos"]);
    fixture.kill();
    fixture.start();
    fixture.until("photos", "it runs", |source| source["state"] == "running");
    let mut stream = open_stream(&fixture, &[("Last-Event-ID", &paused)]);
    let (_, event) = next_event(&mut stream, |_| true);
    assert_eq!(event["kind"], "source_resumed", "{event}");
    next_event(&mut stream, kind("source_running"));
    next_event(&mut stream, kind("daemon_started"));
    let history = fixture.get(&format!("/api/v1/sources/photos/events?after={paused}"));
    assert_eq!(history["events"][0]["kind"], "source_resumed", "{history}");
    fixture.stop(Signal::TERM);
    next_event(&mut stream, kind("daemon_stopping"));
}

#[test]
fn members_of_the_group_may_read_and_others_nothing() {
    if !rustix::process::geteuid().is_root() {
        gabion_testkit::skip!("members_of_the_group: we are not root");
        return;
    }
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    // nobody is in this group; in daemon, nobody is not.
    fixture.configure(&format!("[api]\ngroup = 'nogroup'\n{photos}"));
    fixture.start();
    std::fs::set_permissions(fixture.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(std::fs::metadata(fixture.path("sock")).unwrap().permissions().mode() & 0o777, 0o660);
    let run = |ids: [&str; 2], args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", ids[0], "--regid", ids[1], "--clear-groups"]);
        let command = command.arg(env!("CARGO_BIN_EXE_gabion")).args(args);
        command.env("GABION_SOCKET", fixture.path("sock")).output().unwrap()
    };
    fixture.until("photos", "it runs", |source| source["state"] == "running");
    let status = run(["65534", "65534"], &["daemon", "status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("photos: running"), "{status:?}");
    for args in [&["daemon", "stop"][..], &["daemon", "scrub", "photos"], &["daemon", "reload"]] {
        let refused = run(["65534", "65534"], args);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && error.contains("may only read"), "{refused:?}");
    }
    let refused = run(["2", "2"], &["daemon", "status"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another user"), "{refused:?}");
    // Also if the mode of the socket lets them connect.
    std::fs::set_permissions(fixture.path("sock"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let refused = run(["2", "2"], &["daemon", "status"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("user 2 may not"), "{refused:?}");
    fixture.stop(Signal::TERM);
}

const READ: &str = "reader-0123456789abcdef0123456789abcdef";
const ADMIN: &str = "admin-0123456789abcdef0123456789abcdef";

fn secret(fixture: &Fixture, name: &str, text: &str) {
    fixture.write(name, text.as_bytes());
    std::fs::set_permissions(fixture.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn tokens_decide_over_tcp_and_browsers_cannot_drive_it() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    let port = gabion_testkit::port();
    secret(&fixture, "readers", READ);
    secret(&fixture, "admins", ADMIN);
    let api =
        format!("[api]\nlisten = '127.0.0.1:{port}'\nread_tokens = 'readers'\nadmin_tokens = 'admins'\n");
    fixture.configure(&format!("{api}{photos}"));
    fixture.start();
    fixture.until("photos", "it runs", |source| source["state"] == "running");
    let host = format!("127.0.0.1:{port}");
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let stream = TcpStream::connect(&host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Answer::parse(&exchange(stream, &request(method, path, headers, "")))
    };
    let (reader, admin) = (format!("Bearer {READ}"), format!("Bearer {ADMIN}"));
    let with = |token: &str, method: &str, path: &str| {
        ask(method, path, &[("Host", &host), ("Authorization", token)])
    };
    assert_eq!(with(&reader, "GET", "/api/v1/status").status, 200);
    assert_eq!(with(&reader, "POST", "/api/v1/sources/photos/scrub").error(), "forbidden");
    assert_eq!(with(&reader, "POST", "/api/v1/stop").error(), "forbidden");
    assert_eq!(with(&admin, "POST", "/api/v1/sources/photos/scrub").status, 202);
    let none = ask("GET", "/api/v1/status", &[("Host", &host)]);
    assert_eq!((none.status, none.error()), (401, "unauthorized".to_owned()));
    assert!(none.header("www-authenticate").unwrap().starts_with("Bearer"));
    for wrong in
        ["Bearer x", "Bearer ", "Basic eDp5", &format!("Bearer {READ}x"), &format!("Bearer {}", &READ[1..])]
    {
        assert_eq!(with(wrong, "GET", "/api/v1/status").error(), "unauthorized", "{wrong}");
    }
    // No path is known without a token, and pages of other sites get nothing even with one.
    assert_eq!(ask("GET", "/nothing", &[("Host", &host)]).error(), "unauthorized");
    for other in [
        [("Host", "evil.example"), ("Authorization", admin.as_str())],
        [("Origin", "https://evil.example"), ("Authorization", admin.as_str())],
        [("Origin", "null"), ("Authorization", admin.as_str())],
        [("Sec-Fetch-Site", "cross-site"), ("Authorization", admin.as_str())],
    ] {
        assert_eq!(ask("POST", "/api/v1/stop", &other).error(), "cross_origin", "{other:?}");
    }
    for (name, value) in [("x-content-type-options", "nosniff"), ("cache-control", "no-store")] {
        assert_eq!(none.header(name), Some(value));
    }
    assert!(none.header("content-security-policy").unwrap().contains("frame-ancestors 'none'"));
    assert!(none.header("set-cookie").is_none() && none.header("access-control-allow-origin").is_none());
    // A new token counts after a reload; the old one no longer.
    secret(&fixture, "readers", "another-0123456789abcdef0123456789abcdef");
    fixture.expect(0, &["daemon", "reload"]);
    assert_eq!(with(&reader, "GET", "/api/v1/status").error(), "unauthorized");
    assert_eq!(with("Bearer another-0123456789abcdef0123456789abcdef", "GET", "/api/v1/status").status, 200);
    // Files that others may read are refused, and nothing changes.
    std::fs::set_permissions(fixture.path("admins"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(fixture.refused(&["daemon", "reload"]).contains("0600"));
    assert_eq!(with(&admin, "GET", "/api/v1/status").status, 200);
    // Silent connections at this socket keep nobody from the other one.
    let silent: Vec<_> = (0..200).filter_map(|_| TcpStream::connect(&host).ok()).collect();
    assert!(silent.len() > 100);
    assert_eq!(fixture.get("/api/v1/status")["version"], 1);
    drop(silent);
    fixture.stop(Signal::TERM);
    assert!(!fixture.captured.text().contains(READ) && !fixture.captured.text().contains(ADMIN));
}

#[test]
fn tls_is_served_and_needed_for_other_addresses() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    let port = gabion_testkit::port();
    secret(&fixture, "readers", READ);
    // An authority cannot be a server.
    let text = "[req]\ndistinguished_name = dn\nx509_extensions = v3\nprompt = no\n[dn]\nCN = localhost\n\
                [v3]\nbasicConstraints = CA:FALSE\nsubjectAltName = DNS:localhost\n";
    fixture.write("openssl.cnf", text.as_bytes());
    let args = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -config openssl.cnf \
                -keyout key.pem -out certificate.pem";
    let made = Command::new("openssl")
        .current_dir(fixture.path(""))
        .args(args.split_whitespace())
        .output()
        .expect("this test needs the program openssl (Debian: apt install openssl)");
    assert!(made.status.success(), "{made:?}");
    std::fs::set_permissions(fixture.path("key.pem"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let open = "[api]\nlisten = '0.0.0.0:1'\nread_tokens = 'readers'\n";
    fixture.configure(&format!("{open}{photos}"));
    assert!(fixture.refused(&["daemon", "run", "daemon.toml", "--check"]).contains("tls_certificate"));
    let api = format!(
        "[api]\nlisten = '127.0.0.1:{port}'\nread_tokens = 'readers'\ntls_certificate = 'certificate.pem'\ntls_key = 'key.pem'\n"
    );
    fixture.configure(&format!("{api}{photos}"));
    fixture.start();
    let mut roots = rustls::RootCertStore::empty();
    let certificate = std::fs::read(fixture.path("certificate.pem")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let settings = Arc::new(settings.unwrap().with_root_certificates(roots).with_no_client_auth());
    let connection =
        rustls::ClientConnection::new(settings, ServerName::try_from("localhost").unwrap()).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let token = format!("Bearer {READ}");
    let bytes = request("GET", "/api/v1/status", &[("Authorization", &token)], "");
    let answer = Answer::parse(&exchange(rustls::StreamOwned::new(connection, stream), &bytes));
    assert_eq!((answer.status, &answer.json()["version"]), (200, &Value::from(1)));
    // Without TLS there is no answer in clear.
    let clear = exchange(TcpStream::connect(("127.0.0.1", port)).unwrap(), &bytes);
    assert!(!clear.starts_with(b"HTTP"), "{clear:?}");
    fixture.stop(Signal::TERM);
}
