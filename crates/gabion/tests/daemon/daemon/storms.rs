//! Hostile and slow clients of the API: they get errors, cost a bounded amount, and keep nobody else from his answers.

use super::fixture::Fixture;
use super::http::{Answer, request};
use super::test_rng::TestRng;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn started() -> Fixture {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    fixture.configure(&photos);
    fixture.start();
    fixture
}

#[test]
fn malformed_requests_get_errors_and_are_harmless() {
    let mut fixture = started();
    let status = |bytes: &[u8]| {
        let answer = fixture.send(bytes);
        (!answer.is_empty()).then(|| Answer::parse(&answer).status)
    };
    // What is no HTTP, and what is too long or unfinished.
    for bytes in [
        &b"\n"[..],
        b"{\"version\":1,\"request\":\"stop\"}\n",
        b"\xff\xfe\x00\x01\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
    ] {
        assert!(matches!(status(bytes), None | Some(400 | 408 | 505)), "{bytes:?}: {:?}", status(bytes));
    }
    let mut long = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec();
    long.extend(vec![b'x'; 100_000]);
    assert!(matches!(status(&long), None | Some(431)), "{:?}", status(&long));
    let many: String = (0..1000).map(|number| format!("X{number}: 1\r\n")).collect();
    let many = format!("GET /api/v1/status HTTP/1.1\r\n{many}\r\n");
    assert!(matches!(status(many.as_bytes()), None | Some(400 | 431)));
    let big = request("POST", "/api/v1/sources/photos/scrub", &[], &" ".repeat(200_000));
    assert!(matches!(status(&big), None | Some(413)));
    // Requests that are HTTP, and wrong.
    let code = |method: &str, path: &str, body: &str| {
        let answer = fixture.http(method, path, body);
        (answer.status, answer.error())
    };
    for (method, path, body, wanted) in [
        ("GET", "/nothing", "", "not_found"),
        ("GET", "/api/v2/status", "", "not_found"),
        ("GET", "/api/v1/sources/nobody", "", "not_found"),
        ("GET", "/api/v1/sources/..%2f..%2fetc", "", "not_found"),
        ("GET", "/api/v1/sources/%ff", "", "invalid_request"),
        ("GET", "/api/v1/jobs/9999", "", "not_found"),
        ("GET", "/api/v1/jobs/x", "", "not_found"),
        ("GET", "/api/v1/jobs/1?wait=100000", "", "invalid_request"),
        ("GET", "/api/v1/status?colour=red", "", "invalid_request"),
        ("GET", "/api/v1/status", "{}", "invalid_request"),
        ("PUT", "/api/v1/status", "", "method_not_allowed"),
        ("POST", "/api/v1/status", "{}", "method_not_allowed"),
        ("GET", "/api/v1/sources/photos/files?state=happy", "", "invalid_request"),
        ("GET", "/api/v1/sources/photos/files?limit=0", "", "invalid_request"),
        ("GET", "/api/v1/sources/photos/files?cursor=%00", "", "invalid_request"),
        ("GET", "/api/v1/sources/photos/files?cursor=AAAA", "", "invalid_request"),
        ("GET", "/api/v1/sources/photos/events?kind=dance", "", "invalid_request"),
        ("GET", "/api/v1/sources/photos/policy?path=../../etc/passwd", "", "invalid_request"),
        ("GET", "/api/v1/sources/photos/policy?path=/etc/passwd", "", "invalid_request"),
        ("GET", "/api/v1/sources/photos/policy?path=none", "", "not_found"),
        ("GET", "/api/v1/sources/photos/whatif?lose=moon", "", "invalid_request"),
        ("GET", "/api/v1/forecast?code=1000%2B1000", "", "invalid_request"),
        ("GET", "/api/v1/forecast?code=8%2B2&disks=4294967297", "", "invalid_request"),
        ("GET", "/api/v1/forecast", "", "invalid_request"),
        ("POST", "/api/v1/sources/photos/scrub", "{\"percent\":0}", "invalid_request"),
        ("POST", "/api/v1/sources/photos/scrub", "{\"percent\":1,\"due\":true}", "invalid_request"),
        ("POST", "/api/v1/sources/photos/scrub", "{\"colour\":1}", "invalid_request"),
        ("POST", "/api/v1/sources/photos/scrub", "[", "invalid_request"),
        ("POST", "/api/v1/sources/photos/rebuild", "{}", "not_a_pool"),
        ("POST", "/api/v1/sources/photos/approve", "{\"digest\":\"../x\"}", "invalid_request"),
        (
            "POST",
            "/api/v1/sources/photos/approve",
            "{\"digest\":\"0123456789abcdef0123456789abcdef\"}",
            "digest_mismatch",
        ),
        ("POST", "/api/v1/sources/photos/repair", "{\"digest\":\"x\"}", "digest_mismatch"),
        ("POST", "/api/v1/sources/photos/repair", "{}", "invalid_request"),
    ] {
        let (status, found) = code(method, path, body);
        assert_eq!(found, wanted, "{method} {path} {body}: {status}");
    }
    let deep = format!("{{\"percent\":{}", "[".repeat(20_000));
    assert_eq!(code("POST", "/api/v1/sources/photos/scrub", &deep), (400, "invalid_request".to_owned()));
    let form = b"POST /api/v1/stop HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(Answer::parse(&fixture.send(form)).error(), "invalid_request");
    let of_proxy =
        b"GET http://evil.example/api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(Answer::parse(&fixture.send(of_proxy)).error(), "invalid_request");
    // Chance, and half of what would be a request.
    let mut seed = TestRng(0xbad);
    let whole = request("GET", "/api/v1/status", &[], "");
    for _ in 0..150 {
        let size = seed.below(600) as usize;
        let mut bytes = seed.bytes(size);
        bytes.extend(&whole[..(seed.next() as usize) % whole.len()]);
        let mut stream = UnixStream::connect(fixture.path("sock")).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    fixture.write("photos/after", b"after all that");
    fixture.until_protected("photos", "photos", 5);
    fixture.stop(Signal::TERM);
}

/// More connections than there may be, all silent or slow. The next request is answered once they end; while they are
/// open it is refused with a reason.
#[test]
fn a_thousand_silent_connections_cost_little_and_end() {
    let mut fixture = started();
    let process = fixture.daemon.as_ref().unwrap().id();
    let count = |what: &str| std::fs::read_dir(format!("/proc/{process}/{what}")).unwrap().count();
    let (files, threads) = (count("fd"), count("task"));
    let mut silent = Vec::new();
    for number in 0..1000 {
        let mut stream = UnixStream::connect(fixture.path("sock")).unwrap();
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: ");
        }
        silent.push(stream);
    }
    let full = Answer::parse(&fixture.send(&request("GET", "/api/v1/status", &[], "")));
    assert_eq!((full.status, full.error()), (503, "too_many".to_owned()));
    assert!(count("fd") < files + 150 && count("task") < threads + 20, "{} {}", count("fd"), count("task"));
    // Slow ones are ended by the daemon: nobody has to go away for others to be served.
    gabion_testkit::until("requests are answered again", || {
        Answer::parse(&fixture.send(&request("GET", "/api/v1/status", &[], ""))).status == 200
    });
    drop(silent);
    gabion_testkit::until("the connections are closed", || count("fd") <= files + 5);
    fixture.stop(Signal::TERM);
}
