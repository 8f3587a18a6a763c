//! A changelog on a Redis server that is reached by TLS.
//!
//! Passwords and names of files went over the network in clear: `rediss://` was not understood.

use super::fixture::Fixture;
use gabion_testkit::kill::{Call, Point, can_kill};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const PASSWORD: &str = "hush hush";

/// A server that speaks TLS only, with the password [`PASSWORD`] and a certificate for the name `localhost`.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(dir: &Path, settings: &[&str]) -> Server {
        let port = gabion_testkit::port();
        let child = Command::new("redis-server")
            .current_dir(dir)
            .args(["--bind", "127.0.0.1", "--port", "0", "--tls-port", &port.to_string(), "--save", ""])
            .args(["--tls-cert-file", "server.crt", "--tls-key-file", "server.key"])
            .args(["--tls-ca-cert-file", "ours.crt", "--requirepass", PASSWORD])
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .expect("this test needs the program redis-server (Debian: apt install redis-server)");
        gabion_testkit::until("redis-server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Server { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl").current_dir(dir).args(args.split(' ')).output();
    let output = output.expect("this test needs the program openssl (Debian: apt install openssl)");
    assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an authority, `NAME.crt` and `NAME.key`.
fn make_authority(dir: &Path, name: &str) {
    openssl(
        dir,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj /CN={name} \
             -keyout {name}.key -out {name}.crt"
        ),
    );
}

/// Makes a certificate that the authority `ours` signs.
fn make_certificate(dir: &Path, name: &str, extension: &str) {
    std::fs::write(dir.join("extension"), extension).unwrap();
    openssl(
        dir,
        &format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} -keyout {name}.key -out request"
        ),
    );
    openssl(
        dir,
        &format!(
            "x509 -req -in request -CA ours.crt -CAkey ours.key -CAcreateserial -days 36500 -extfile extension \
             -out {name}.crt"
        ),
    );
}

impl Fixture {
    /// With authorities, certificates and a password file.
    fn with_certificates() -> Fixture {
        let fixture = Fixture::new();
        make_authority(fixture.dir(), "ours");
        make_authority(fixture.dir(), "theirs");
        make_certificate(fixture.dir(), "server", "subjectAltName=DNS:localhost");
        make_certificate(fixture.dir(), "client", "extendedKeyUsage=clientAuth");
        let private = fixture.dir().join("password");
        std::fs::write(&private, format!("{PASSWORD}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(private, mode).unwrap();
        fixture
    }

    fn run_with(&self, variables: &[(&str, &str)], args: &[&str]) -> (Option<i32>, String) {
        let mut command = self.command(args);
        command.env("GABION_REDIS_PASSWORD_FILE", "password").envs(variables.iter().copied());
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = [stdout, stderr].concat();
        (status.code(), String::from_utf8(text).unwrap())
    }
}

#[test]
fn connections_are_encrypted_and_servers_must_prove_their_names() {
    let fixture = Fixture::with_certificates();
    let server = Server::start(fixture.dir(), &["--tls-auth-clients", "no"]);
    let url = |scheme: &str, host: &str| format!("{scheme}://{host}:{}", server.port);
    let ours = [("GABION_REDIS_CA_FILE", "ours.crt")];
    let refused = |variables: &[(&str, &str)], url: &str, why: &str| {
        let (code, said) = fixture.run_with(variables, &["protect", "tree", "--changelog", url]);
        assert_eq!(code, Some(2), "{url}: {said}");
        assert!(said.contains(why) && !said.contains(PASSWORD), "{url}: {said}");
    };
    // An authority that nobody knows, another one, another name, no encryption, and what switches the check off
    // elsewhere.
    refused(&[], &url("rediss", "localhost"), "certificate");
    refused(&[("GABION_REDIS_CA_FILE", "theirs.crt")], &url("rediss", "localhost"), "certificate");
    refused(&ours, &url("rediss", "127.0.0.1"), "certificate");
    refused(&ours, &format!("{}/#insecure", url("rediss", "localhost")), "");
    refused(&[("GABION_REDIS_CA_FILE", "missing.crt")], &url("rediss", "localhost"), "missing.crt");
    refused(&[], &url("redis", "localhost"), "");
    assert!(!fixture.path(".gabion").exists(), "a refused address leaves nothing behind");
    let (code, said) =
        fixture.run_with(&ours, &["protect", "tree", "--changelog", &url("rediss", "localhost")]);
    assert_eq!(code, Some(0), "{said}");
    fixture.write("new", b"more");
    let (code, said) = fixture.run_with(&ours, &["protect", "tree"]);
    assert_eq!(code, Some(0), "the address is kept: {said}");
    let (code, said) = fixture.run_with(&[], &["status", "tree"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
    let settings = std::fs::read_to_string(fixture.path(".gabion/vault.toml")).unwrap();
    assert!(settings.contains("rediss://localhost") && !settings.contains(PASSWORD), "{settings}");
}

#[test]
fn servers_can_ask_clients_for_certificates() {
    let fixture = Fixture::with_certificates();
    let server = Server::start(fixture.dir(), &["--tls-auth-clients", "yes"]);
    let url = format!("rediss://localhost:{}", server.port);
    let ca = ("GABION_REDIS_CA_FILE", "ours.crt");
    let certificate = ("GABION_REDIS_CERTIFICATE_FILE", "client.crt");
    let key = ("GABION_REDIS_KEY_FILE", "client.key");
    let protect = ["protect", "tree", "--changelog", &url];
    let (code, said) = fixture.run_with(&[ca], &protect);
    assert_eq!(code, Some(2), "{said}");
    let (code, said) = fixture.run_with(&[ca, certificate], &protect);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("GABION_REDIS_KEY_FILE"), "{said}");
    let (code, said) = fixture.run_with(&[ca, certificate, key], &protect);
    assert_eq!(code, Some(0), "{said}");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(fixture.dir().join("client.key"), mode).unwrap();
    let (code, said) = fixture.run_with(&[ca, certificate, key], &["protect", "tree"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("chmod 600"), "{said}");
}

/// From one host to several and back: nothing that is known or pending is lost on the way.
#[test]
fn a_changelog_is_moved_to_a_server_and_back() {
    let fixture = Fixture::with_certificates();
    let server = Server::start(fixture.dir(), &["--tls-auth-clients", "no"]);
    let address = format!("rediss://localhost:{}", server.port);
    let run = |code: i32, args: &[&str]| {
        let (status, text) = fixture.run_with(&[("GABION_REDIS_CA_FILE", "ours.crt")], args);
        assert_eq!(status, Some(code), "gabion {}: {text}", args.join(" "));
        text
    };
    let own = fixture.path(".gabion");
    run(0, &["protect", "tree"]);
    let damaged = std::fs::File::options().read(true).write(true).open(fixture.path("sub/b")).unwrap();
    let modified = damaged.metadata().unwrap().modified().unwrap();
    let content = std::fs::read(fixture.path("sub/b")).unwrap();
    damaged.write_all_at(&[!content[1000]], 1000).unwrap();
    damaged.set_modified(modified).unwrap();
    drop(damaged);
    run(1, &["scrub", "tree"]);
    fixture.write("a", b"changed");
    for (to, is_shared) in [(address.as_str(), true), ("embedded", false), (address.as_str(), true)] {
        let text = run(0, &["changelog", "move", "tree", "--to", to]);
        assert!(text.contains(&format!("the changelog is now {to}")), "{text}");
        assert_eq!(own.join("changelog").exists(), !is_shared, "{to}");
        assert_eq!(own.join("catalogue.sqlite").exists(), !is_shared, "{to}");
        let again = run(2, &["changelog", "move", "tree", "--to", to]);
        assert!(again.contains("already"), "{again}");
        let status = run(1, &["status", "tree"]);
        assert!(status.contains("damaged"), "damage is still known: {status}");
    }
    run(2, &["changelog", "move", "tree", "--to", "rediss://localhost:1"]);
    assert!(fixture.run_with(&[("GABION_REDIS_CA_FILE", "ours.crt")], &["protect", "tree"]).0 != Some(2));
    run(0, &["repair", "tree", "--yes"]);
    assert!(std::fs::read(fixture.path("sub/b")).unwrap() == content);
    run(0, &["scrub", "tree"]);
    run(0, &["status", "tree"]);
    run(0, &["changelog", "move", "tree", "--to", "embedded"]);
    drop(server);
    // No server is asked any more.
    fixture.expect(0, &["status", "tree"]);
    fixture.write("new", b"more");
    fixture.expect(1, &["status", "tree"]);
    fixture.expect(0, &["protect", "tree"]);
    fixture.expect(0, &["status", "tree"]);
}

/// Wherever a move is killed, the vault is on one side or the other, and nothing that is known is lost.
#[test]
fn a_move_of_a_changelog_may_be_killed_at_any_time() {
    if !can_kill("a_move_of_a_changelog_may_be_killed_at_any_time") {
        return;
    }
    let fixture = Fixture::new();
    let port = gabion_testkit::port();
    let child = Command::new("redis-server")
        .current_dir(fixture.dir())
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        .stdout(Stdio::null())
        .spawn()
        .expect("this test needs the program redis-server (Debian: apt install redis-server)");
    let _server = Server { child, port };
    gabion_testkit::until("redis-server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let address = format!("redis://127.0.0.1:{port}");
    fixture.expect(0, &["protect", "tree"]);
    let settings = || std::fs::read_to_string(fixture.path(".gabion/vault.toml")).unwrap();
    let calls =
        [(Call::Rename, 3), (Call::Unlink, 12), (Call::Sync, 12), (Call::Write, 24), (Call::Open, 40)];
    let (mut killed, mut sides) = (0, [0, 0]);
    for (call, most) in calls {
        for nth in (1..=most).step_by(if most > 12 { 3 } else { 1 }) {
            let is_shared = settings().contains("redis://");
            let to = if is_shared { "embedded" } else { &address };
            let arguments = ["changelog", "move", "tree", "--to", to];
            killed += u32::from(fixture.run_killed(Point { call, nth }, &arguments));
            let is_moved = settings().contains("redis://") != is_shared;
            sides[usize::from(is_moved)] += 1;
            let status = fixture.json(0, &["status", "tree"]);
            assert_eq!(status["matrix"][0]["files"], 5, "{nth} of {call:?}, moved: {is_moved}: {status}");
            if !is_moved {
                fixture.expect(0, &arguments);
            }
            fixture.expect(0, &["protect", "tree"]);
        }
    }
    assert!(killed > 20 && sides.iter().all(|&side| side > 0), "{killed} killed, {sides:?}");
}
