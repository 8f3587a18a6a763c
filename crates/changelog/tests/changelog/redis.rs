//! The engine on a Redis server.

use crate::compare_with_model;
use crate::server::TestServer;
use gabion_changelog::measure::{Load, measure};
use gabion_changelog::{
    Change, Changelog, Durability, Error, Redis, Sequence, Server, When, WorkerId, conformance,
};
use gabion_platform::world::Timestamp;
use std::time::Duration;

fn site(server: &TestServer) -> impl Fn(&str) -> Box<dyn Changelog> + Sync {
    move |name| Box::new(Redis::open(&server.server(name)).expect("a changelog"))
}

fn create(path: &str) -> Change {
    Change::modify_whole(path, When::now(Timestamp::EPOCH, 0))
}

#[test]
fn conforms() {
    let server = TestServer::start();
    conformance::check(&site(&server));
}

#[test]
fn does_what_the_model_does() {
    let server = TestServer::start();
    compare_with_model(&site(&server));
}

/// Calls of functions that the server has answered.
fn calls(server: &TestServer) -> u64 {
    let client = redis::Client::open(server.server("x").url).expect("a client");
    let mut connection = client.get_connection().expect("a connection");
    let told: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).expect("an answer");
    let line =
        told.lines().find_map(|line| line.strip_prefix("cmdstat_fcall:calls=")).expect("there were some");
    line.split(',').next().expect("a number").parse().expect("a number")
}

const LEASE: Duration = Duration::from_nanos(10);

/// A worker renewed the claims of its batch one by one, a call each with a wait for the server's disk: the last ones
/// ran out meanwhile.
#[test]
fn all_claims_of_a_batch_are_renewed_in_one_call() {
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    let changes: Vec<Change> = (0..1000).map(|number| create(&number.to_string())).collect();
    log.record(&changes).expect("recorded");
    let held = log.claim(&WorkerId("first".to_owned()), 1000, LEASE, Timestamp::EPOCH).expect("claims");
    assert_eq!(held.len(), 1000);
    let before = calls(&server);
    let refused = log.renew_all(&held, LEASE, Timestamp::from_nanoseconds(9)).expect("an answer");
    assert_eq!((refused.len(), calls(&server) - before), (0, 1));
    let second = WorkerId("second".to_owned());
    assert!(log.claim(&second, 1000, LEASE, Timestamp::from_nanoseconds(18)).expect("claims").is_empty());
    assert_eq!(log.claim(&second, 1000, LEASE, Timestamp::from_nanoseconds(19)).expect("claims").len(), 1000);
    let refused = log.renew_all(&held, LEASE, Timestamp::from_nanoseconds(19)).expect("an answer");
    assert_eq!(refused.len(), 1000, "they are somebody else's");
}

#[test]
fn a_server_that_forgets_is_refused_unless_allowed() {
    let server = TestServer::start_with(&["--appendonly", "no"]);
    match Redis::open(&server.server("x")).map(drop) {
        Err(Error::Forgetful { appendonly, .. }) => assert_eq!(appendonly, "no"),
        other => panic!("{other:?}"),
    }
    let allowed = Server { allow_forgetful: true, ..server.server("x") };
    assert_eq!(Redis::open(&allowed).expect("allowed").durability(), Durability::Volatile);
}

/// A server that syncs once a second may lose what it acknowledged, unless it can be asked to wait for its file (7.2
/// and later).
#[test]
fn a_server_that_syncs_every_second_is_refused_unless_it_can_wait() {
    let server = TestServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let client = redis::Client::open(server.server("x").url).expect("a client");
    let mut connection = client.get_connection().expect("a connection");
    let known: Vec<redis::Value> =
        redis::cmd("COMMAND").arg("INFO").arg("WAITAOF").query(&mut connection).expect("an answer");
    match Redis::open(&server.server("x")) {
        Ok(log) => {
            assert!(known[0] != redis::Value::Nil, "it cannot wait");
            assert_eq!(log.durability(), Durability::Stable);
            assert_eq!(log.record(&[create("a")]).expect("recorded"), Sequence(1));
        }
        Err(Error::Forgetful { appendfsync, .. }) => {
            assert!(known[0] == redis::Value::Nil && appendfsync == "everysec");
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// Durability was checked when the changelog was opened and never again: a server whose settings changed, or another
/// one that took its place, went unnoticed.
#[test]
fn durability_is_checked_after_each_reconnection() {
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    log.record(&[create("a")]).expect("recorded");
    server.set("appendonly", "no");
    let client = redis::Client::open(server.server("x").url).expect("a client");
    let mut connection = client.get_connection().expect("a connection");
    let ended: u64 =
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query(&mut connection).expect("an answer");
    assert!(ended >= 2, "{ended}");
    match log.record(&[create("b")]) {
        Err(Error::Forgetful { appendonly, .. }) => assert_eq!(appendonly, "no"),
        other => panic!("{other:?}"),
    }
    server.set("appendonly", "yes");
    log.record(&[create("c")]).expect("recorded");
}

/// Two errors and the debug output of the settings had the password.
#[test]
fn passwords_are_not_shown() {
    for url in ["redis://user:hush@127.0.0.1:1/x/y", "redis://:hush@127.0.0.1:999999/", "redis://user:hush@/"]
    {
        let server = Server { url: url.to_owned(), name: "x".to_owned(), allow_forgetful: false };
        let error = Redis::open(&server).map(drop).expect_err("no server there");
        for told in [error.to_string(), format!("{error:?}"), format!("{server:?}")] {
            assert!(!told.contains("hush"), "{told}");
        }
    }
}

/// A server whose memory is full made room by dropping changes that it had acknowledged.
#[test]
fn a_server_that_drops_what_it_has_is_refused_unless_allowed() {
    let server = TestServer::start();
    server.set("maxmemory-policy", "allkeys-lru");
    drop(Redis::open(&server.server("x")).expect("without a bound nothing is dropped"));
    server.set("maxmemory", "100mb");
    match Redis::open(&server.server("x")).map(drop) {
        Err(Error::Evicting { policy, .. }) => assert_eq!(policy, "allkeys-lru"),
        other => panic!("{other:?}"),
    }
    let allowed = Server { allow_forgetful: true, ..server.server("x") };
    assert_eq!(Redis::open(&allowed).expect("allowed").durability(), Durability::Volatile);
    server.set("maxmemory-policy", "noeviction");
    drop(Redis::open(&server.server("x")).expect("a changelog"));
}

/// A wrong password was told as a server that may forget changes.
#[test]
fn a_server_that_refuses_says_why() {
    let settings = ["--appendonly", "yes", "--appendfsync", "always", "--requirepass", "right"];
    let server = TestServer::start_with(&settings);
    let with = |password: &str| {
        let plain = server.server("x");
        let url = plain.url.replace("redis://", &format!("redis://{password}"));
        Redis::open(&Server { url, ..plain })
    };
    for (password, words) in [("", "Authentication required"), (":wrong@", "authentication failed")] {
        let error = with(password).map(drop).expect_err("a refusal");
        assert!(matches!(error, Error::Server { .. }) && !error.is_transient(), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("127.0.0.1") && told.contains(words) && !told.contains("wrong"), "{told}");
    }
    let log = with(":right@").expect("a changelog");
    log.record(&[create("a")]).expect("recorded");
    drop(log);

    // No memory left: what was not taken is said not to be taken, and what was is still there.
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    log.record(&[create("a")]).expect("recorded");
    server.set("maxmemory", "1");
    let error = log.record(&[create("b")]).expect_err("no memory");
    assert!(error.to_string().contains("maxmemory"), "{error}");
    let other = Redis::open(&server.server("x")).expect("it answers");
    assert_eq!(other.entries(None, 10).expect("entries").len(), 1);
    let error = other.record(&[create("b")]).expect_err("no memory");
    assert!(error.to_string().contains("maxmemory"), "{error}");
    server.set("maxmemory", "0");
    assert_eq!(log.entries(None, 10).expect("entries").len(), 1);
    log.record(&[create("b")]).expect("recorded");
    assert_eq!(log.entries(None, 10).expect("entries").len(), 2);
}

#[test]
fn a_server_that_is_away_is_said_to_be() {
    let mut server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    assert_eq!(log.durability(), Durability::Stable);
    log.record(&[create("a")]).expect("recorded");
    server.kill();
    let away = log.record(&[create("b")]);
    assert!(
        matches!(&away, Err(error @ Error::Away { attempts: 6, .. }) if error.is_transient()),
        "{away:?}"
    );
    assert!(matches!(log.pending(), Err(Error::Away { .. })));
    server.restart();
    assert_eq!(log.record(&[create("c")]).expect("recorded"), Sequence(2));
    assert_eq!(log.pending().expect("sums").entries(), 2);
}

#[test]
fn a_library_that_was_flushed_is_loaded_again() {
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    log.record(&[create("a")]).expect("recorded");
    let client = redis::Client::open(server.server("x").url).expect("a client");
    let mut connection = client.get_connection().expect("a connection");
    redis::cmd("FUNCTION").arg("FLUSH").exec(&mut connection).expect("flushed");
    assert_eq!(log.record(&[create("b")]).expect("recorded"), Sequence(2));
    assert_eq!(log.pending().expect("sums").entries(), 2);
}

/// A rename sent twice because the first answer got lost would cancel what the first one moved.
#[test]
fn a_request_that_is_repeated_counts_once() {
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    log.record(&[create("a")]).expect("recorded");
    let client = redis::Client::open(server.server("x").url).expect("a client");
    let mut connection = client.get_connection().expect("a connection");
    let keys =
        ["counters", "entries", "paths", "waiting", "stamps", "firsts", "sums", "claims", "client:test"];
    let time = format!("{:016x}", 1_u64 << 63);
    for _ in 0..2 {
        let last: u64 = redis::cmd("FCALL")
            .arg("gabion_changelog_5_record")
            .arg(keys.len())
            .arg(keys.map(|key| format!("gabion:{{x}}:{key}")).as_slice())
            .arg(&[
                "0000000000000007",
                "",
                "rename",
                "a",
                "b",
                "",
                "",
                &time,
                &time,
                &time,
                "0",
                "",
                "",
                "",
                "",
            ])
            .query(&mut connection)
            .expect("recorded");
        assert_eq!(last, 2);
    }
    let entry = log.entries(None, 9).expect("entries").remove(0);
    assert!(entry.ranges.is_whole() && entry.origin.as_deref() == Some(b"a"), "{entry:?}");
}

#[test]
fn names_that_would_break_keys_are_refused() {
    for name in ["", "a{b}", "a b", &"x".repeat(65)] {
        let server =
            Server { url: "redis://127.0.0.1:1/".to_owned(), name: name.to_owned(), allow_forgetful: false };
        assert!(
            matches!(Redis::open(&server).map(drop), Err(Error::Name { length }) if length == name.len())
        );
    }
}

#[test]
fn can_be_measured() {
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    let load =
        Load { writers: 2, files: 100, batch: 10, in_flight: 10, rate: 0, time: Duration::from_secs(1) };
    gabion_testkit::until("changes are recorded", || {
        measure(&[&log], &load).expect("measured").per_second() > 0.0
    });
}

#[test]
fn a_server_that_lost_its_files_is_known_by_what_it_says_of_its_memory() {
    let mut server = TestServer::start();
    let one = Redis::open(&server.server("log")).expect("a changelog");
    let before = one.memory().expect("an answer").expect("a server says so");
    one.record(&[create("a")]).expect("recorded");
    let other = Redis::open(&server.server("log")).expect("a changelog");
    let then = other.memory().expect("an answer").expect("a server says so");
    assert_eq!((&then.identity, then.sequence), (&before.identity, before.sequence.next()));
    assert!(!before.is_lost(&then) && then.is_lost(&before));
    server.kill();
    server.restart();
    assert_eq!(one.memory().expect("an answer"), Some(then.clone()));
    server.forget();
    server.restart();
    one.record(&[create("b"), create("c")]).expect("recorded");
    let now = one.memory().expect("an answer").expect("a server says so");
    assert!(now.sequence > then.sequence && then.is_lost(&now), "it counts anew");
}

/// Regression: a server that came back with less than it had gave numbers of claims again. What a worker had begun
/// before completed the claim of another one, whose newer change was forgotten.
#[test]
fn a_claim_from_before_a_loss_is_refused() {
    let mut server = TestServer::start();
    let log = Redis::open(&server.server("log")).expect("a changelog");
    log.record(&[create("a"), create("b")]).expect("recorded");
    let state = server.state();
    let lease = Duration::from_secs(60);
    let claim = |name: &str, path: &str| {
        let worker = WorkerId(name.to_owned());
        let (mut claims, taken) =
            log.claim_paths(&worker, &[path.into()], lease, Timestamp::EPOCH).expect("claims");
        assert!(taken.is_empty());
        claims.pop().expect("a claim")
    };
    let before = claim("first", "a");
    server.restore(&state);
    let after = claim("second", "a");
    assert_eq!(before.token, after.token, "the server does not know that it gave this number");
    assert!(!log.still_mine(&before).expect("an answer"));
    assert_eq!(log.which_are_mine(&[&before, &after]).expect("an answer"), [false, true]);
    assert_eq!(
        log.renew_all(std::slice::from_ref(&before), lease, Timestamp::EPOCH).expect("an answer"),
        [before.token]
    );
    assert!(log.renew(&mut before.clone(), lease, Timestamp::EPOCH).is_err());
    assert!(log.release(&before, Timestamp::EPOCH, Timestamp::EPOCH).is_err());
    assert!(log.complete(&before).is_err());
    assert!(log.complete_all(&[&before]).expect("an answer")[0].is_err());
    log.give_back(&[&before], Timestamp::EPOCH).expect("an answer");
    assert_eq!(log.pending().expect("an answer").claimed, 1);
    log.complete(&after).expect("it holds the claim");
}

/// Regression: a server that came back with less than it had, and counted past the last number that anybody knew before
/// it was asked, was trusted.
#[test]
fn a_server_that_forgot_and_counted_on_is_known_by_who_recorded() {
    let mut server = TestServer::start();
    let [one, other] = [(); 2].map(|()| Redis::open(&server.server("log")).expect("a changelog"));
    let memory = |log: &Redis| log.memory().expect("an answer").expect("a server says so");
    one.record(&[create("a")]).expect("recorded");
    let state = server.state();
    one.record(&[create("b")]).expect("recorded");
    let [then, of_other] = [&one, &other].map(memory);
    assert_eq!(then, of_other);
    server.restore(&state);
    other.record(&[create("c"), create("d")]).expect("recorded");
    let now = memory(&one);
    assert!(now.sequence > then.sequence && then.is_lost(&now), "it forgot b");
    assert!(!now.is_lost(&memory(&one)), "that is known now");
    one.record(&[create("b")]).expect("recorded");
    let [now, again] = [memory(&one), memory(&one)];
    assert!(!now.is_lost(&again));
}
