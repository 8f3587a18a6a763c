//! The changelog on a Redis server beside the embedded one, and beside what the server itself can do.

use super::deployment::{RedisServer, url};
use crate::commands::figures::{BenchOptions, Line};
use anyhow::{Context, Result, ensure};
use gabion_changelog::measure::{Load, measure};
use gabion_testkit::port;
use gabion_vault::changelog::{Change, Changelog, Embedded, Redis, Server, When, WorkerId};
use gabion_vault::world::Stopwatch;
use gabion_vault::world::Timestamp;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Clients of the server, and writers of the embedded changelog.
const CLIENTS: usize = 4;

/// Calls of a writer that are under way.
const IN_FLIGHT: usize = 1000;

/// Lease of claims: longer than any measurement.
const LEASE: Duration = Duration::from_secs(3600);

/// A server on loopback.
struct Local {
    _server: RedisServer,
    address: SocketAddr,
}

impl Local {
    fn start(place: &Path) -> Result<Local> {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port());
        let _server = RedisServer::start(Command::new("redis-server"), address, &place.join("redis"))?;
        RedisServer::wait_for(address)?;
        Ok(Local { _server, address })
    }

    fn client(&self, name: &str) -> Result<Redis> {
        let (url, name) = (url(self.address), name.to_owned());
        Ok(Redis::open(&Server { url, name, allow_forgetful: false })?)
    }
}

/// Changes per second of four clients beside four writers of the embedded changelog, in turns.
pub(super) fn durable(request: &BenchOptions) -> Result<Vec<Line>> {
    let place = request.place()?;
    let server = Local::start(place.path())?;
    let time = Duration::from_secs(if request.quick { 2 } else { 5 });
    let rounds = if request.quick { 1 } else { 3 };
    let mut lines = Vec::new();
    for (in_flight, how) in [(IN_FLIGHT, "many calls on their way"), (1, "one call at a time")] {
        let load = Load { writers: CLIENTS, files: 10_000, batch: 1, in_flight, rate: 0, time };
        let (mut redis, mut embedded) = (0f64, 0f64);
        for round in 0..rounds {
            let name = format!("durable-{in_flight}-{round}");
            let clients = (0..CLIENTS).map(|_| server.client(&name)).collect::<Result<Vec<Redis>>>()?;
            let clients: Vec<&dyn Changelog> = clients.iter().map(|it| it as &dyn Changelog).collect();
            redis = redis.max(measure(&clients, &load)?.per_second());
            let changelog = Embedded::open(&place.path().join(name))?;
            embedded = embedded.max(measure(&[&changelog], &load)?.per_second());
        }
        let conditions = format!(
            "{CLIENTS} clients of one server on loopback, {CLIENTS} writers of the embedded changelog, same disk, 10000 files, one \
             change per call, {in_flight} calls of each on their way, {} s, best of {rounds}",
            time.as_secs()
        );
        let case = format!("durable changes, {how}");
        let bar = (in_flight > 1).then_some(0.3);
        lines.push(Line::new("hosts", &case, (redis, "changes/s"), ("embedded", embedded), bar, conditions));
    }
    Ok(lines)
}

/// Calls of the changelog by one client, each waited for: those of the server beside those of the embedded one.
pub(super) fn operations(request: &BenchOptions) -> Result<Vec<Line>> {
    let place = request.place()?;
    let server = Local::start(place.path())?;
    let calls: u64 = if request.quick { 500 } else { 5000 };
    let redis = [server.client("recorded")?, server.client("claimed")?];
    let embedded =
        [Embedded::open(&place.path().join("recorded"))?, Embedded::open(&place.path().join("claimed"))?];
    let mut lines = plain(&server, calls)?;
    let ours = rates(&redis[0], &redis[1], calls)?;
    let reference = rates(&embedded[0], &embedded[1], calls)?;
    for (((case, ours), (_, reference)), each) in ours.into_iter().zip(reference).zip(EACH) {
        let conditions = format!("{calls} files, {each}, each call waited for and durable, 1 client");
        let reference = ("embedded", reference);
        lines.push(Line::new("hosts", case, (ours, "files/s"), reference, None, conditions));
    }
    Ok(lines)
}

/// Files of a call, by operation.
const EACH: [&str; 6] =
    ["1 per call", "1 per call", "1 per call", "64 per call", "64 per call", "64 per call"];

/// Files per second of each operation of two empty changelogs: those that record, and those of workers.
fn rates(recorded: &dyn Changelog, claimed: &dyn Changelog, files: u64) -> Result<Vec<(&'static str, f64)>> {
    let when = When::now(Timestamp::from_nanoseconds(1), 0);
    let (worker, mut rates) = (WorkerId("bench".to_owned()), Vec::new());
    let mut record = |case, change: &dyn Fn(u64) -> Change| -> Result<()> {
        let clock = Stopwatch::start();
        (0..files).try_for_each(|number| recorded.record(&[change(number)]).map(|_| ()))?;
        rates.push((case, files as f64 / clock.seconds()));
        Ok(())
    };
    record("record: modify", &|number| Change::modify(format!("a/{number}"), 0..4096, when))?;
    record("record: rename", &|number| Change::rename(format!("a/{number}"), format!("b/{number}"), when))?;
    record("record: delete", &|number| Change::delete(format!("b/{number}"), when))?;
    let changes: Vec<Change> =
        (0..files).map(|number| Change::modify_whole(format!("c/{number}"), when)).collect();
    changes.chunks(256).try_for_each(|some| claimed.record(some).map(|_| ()))?;
    let (mut claims, mut seconds) = (Vec::new(), [0.0; 3]);
    while claims.len() < files as usize {
        let clock = Stopwatch::start();
        let some = claimed.claim(&worker, 64, LEASE, Timestamp::from_nanoseconds(2))?;
        seconds[0] += clock.seconds();
        ensure!(!some.is_empty(), "{} of {files} files can be claimed", claims.len());
        claims.extend(some);
    }
    for some in claims.chunks(64) {
        let clock = Stopwatch::start();
        ensure!(
            claimed.renew_all(some, LEASE, Timestamp::from_nanoseconds(2))?.is_empty(),
            "claims were refused"
        );
        seconds[1] += clock.seconds();
        let (clock, some) = (Stopwatch::start(), some.iter().collect::<Vec<_>>());
        for completion in claimed.complete_all(&some)? {
            completion?;
        }
        seconds[2] += clock.seconds();
    }
    let pending = claimed.pending()?.entries();
    ensure!(pending == 0, "{pending} of {files} files are still pending");
    let cases = ["claim", "renew", "complete"].into_iter().zip(seconds);
    rates.extend(cases.map(|(case, seconds)| (case, files as f64 / seconds)));
    Ok(rates)
}

/// What the server can do by itself, by its own program.
fn plain(server: &Local, calls: u64) -> Result<Vec<Line>> {
    let run = |keep: &[&str]| -> Result<Vec<(String, f64)>> {
        let mut command = Command::new("redis-benchmark");
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &server.address.port().to_string(),
            "-a",
            super::deployment::PASSWORD,
        ]);
        command.args(["-n", &(calls * 4).to_string(), "-c", &CLIENTS.to_string(), "--csv"]).args(keep);
        let output = command.output().context("redis-benchmark cannot be run (package redis-tools)")?;
        ensure!(output.status.success(), "redis-benchmark: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let row = |line: &str| {
            let mut cells = line.split(',').map(|cell| cell.trim_matches('"'));
            Some((cells.next()?.to_owned(), cells.next()?.parse().ok()?))
        };
        let rows: Vec<(String, f64)> = text.lines().filter_map(row).collect();
        ensure!(!rows.is_empty(), "redis-benchmark said {text}");
        Ok(rows)
    };
    let tests = ["-t", "ping_mbulk,set,get,incr,lpush,hset,zadd"];
    let rows = run(&tests)?;
    let ping = rows.first().map_or(1.0, |(_, rate)| *rate);
    let line = |(name, rate): (String, f64)| {
        let case = format!("server: {}", name.split(' ').next().unwrap_or("").to_lowercase());
        let conditions = format!(
            "redis-benchmark, {} calls, {CLIENTS} clients, one call at a time, writes durable",
            calls * 4
        );
        Line::new("hosts", &case, (rate, "calls/s"), ("ping", ping), None, conditions)
    };
    Ok(rows.into_iter().map(line).collect())
}
