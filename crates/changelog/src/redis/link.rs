//! One connection to the server, made again when it breaks.

use crate::entry::Durability;
use crate::error::{Error, Result};
use crate::redis::answer::Answer;
use crate::redis::clock::{Compared, Shift};
use crate::server::Server;
use gabion_platform::world::{Stopwatch, Timestamp, unique_id};
use redis::{Client, Cmd, Connection, ConnectionAddr, RedisError, ServerErrorKind, Value};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LIBRARY: &str = concat!(
    include_str!("../functions.lua"),
    include_str!("../limits.lua"),
    include_str!("../claims.lua"),
    include_str!("../journal.lua"),
    include_str!("../tasks.lua"),
    include_str!("../monitors.lua"),
    include_str!("../windows.lua")
);
/// What the names of its functions begin with.
const PREFIX: &str = "gabion_changelog_5_";
const KEYS: [&str; 8] = ["counters", "entries", "paths", "waiting", "stamps", "firsts", "sums", "claims"];
/// After the key of this client, so that they have the numbers that the library knows.
const LATER_KEYS: [&str; 7] = ["journal", "workers", "draining", "tasks", "portions", "monitors", "limits"];

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// While the server is away: enough for a packet to be lost.
const SHORT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A call takes milliseconds, but `appendfsync always` may wait for a slow disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the server may take to bring its file to stable storage, where it has to be asked.
const SYNC_MILLISECONDS: u64 = 10_000;
/// How often a call is tried before the server counts as away; the pauses add up to three seconds, enough for a
/// server that is started again at once.
const ATTEMPTS: u32 = 6;
/// Time without a connection after which a call is not tried again: where the network is cut, each attempt takes
/// seconds. It is longer than the pauses together, and a server that is only slow gets all attempts.
const LONG: Duration = CONNECT_TIMEOUT;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// A client of the server that does one thing at a time.
pub(super) struct Link {
    client: Client,
    /// With what the server promised when it was made: settings of a server change, and another one may answer after
    /// a failover.
    connection: Option<Connected>,
    address: String,
    keys: Vec<String>,
    requests: u64,
    /// The last call found nobody. Until one succeeds, each tries once if there is no answer: several threads may wait
    /// for their turns.
    is_away: bool,
    /// The last attempt to connect succeeded.
    is_reached: bool,
    /// Take a server that forgets acknowledged changes when it crashes.
    allow_forgetful: bool,
}

/// What a server promises of acknowledged changes.
#[derive(Debug, Clone, Copy)]
struct Promise {
    durability: Durability,
    /// Wait after each call until the server's file is on stable storage.
    sync_each: bool,
}

/// A connection, with what is known of its server.
struct Connected {
    connection: Connection,
    promise: Promise,
    clocks: Compared,
}

/// Why a connection cannot be used.
enum Refused {
    /// Error of the server or the network.
    Redis(RedisError),
    /// The server promises too little durability.
    Promise(Error),
}

impl From<RedisError> for Refused {
    fn from(error: RedisError) -> Refused {
        Refused::Redis(error)
    }
}

impl Link {
    pub(super) fn new(server: &Server) -> Result<Link> {
        let name = &server.name;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            return Err(Error::Name { length: name.len() });
        }
        let client = super::address::client(&server.url)?;
        let address = match client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                format!("{host}:{port}")
            }
            other => other.to_string(),
        };
        let id = unique_id()
            .map_err(|reason| Error::System { doing: "name this client", reason: Arc::new(reason) })?;
        let id = format!("client:{:032x}", u128::from_be_bytes(id));
        // The braces keep all keys in one slot of a cluster.
        let keys = KEYS
            .iter()
            .copied()
            .chain([id.as_str()])
            .chain(LATER_KEYS)
            .map(|key| format!("gabion:{{{name}}}:{key}"));
        let keys = keys.collect();
        let allow_forgetful = server.allow_forgetful;
        Ok(Link {
            client,
            connection: None,
            address,
            keys,
            requests: 0,
            is_away: false,
            is_reached: false,
            allow_forgetful,
        })
    }

    /// A number for a call that must not be done twice, and has to be repeated with the same number.
    pub(super) fn next_request(&mut self) -> Vec<u8> {
        self.requests += 1;
        hex(self.requests)
    }

    /// The key under which the server keeps the last request of this client.
    pub(super) fn own_key(&self) -> String {
        self.keys[KEYS.len()].clone()
    }

    /// Calls a function of the library in the name of another client of this process.
    pub(super) fn call_for(
        &mut self,
        key: &str,
        function: &'static str,
        arguments: &[Vec<u8>],
    ) -> Result<Answer> {
        let own = std::mem::replace(&mut self.keys[KEYS.len()], key.to_owned());
        let answer = self.call(function, arguments);
        self.keys[KEYS.len()] = own;
        answer
    }

    /// Calls a function of the library whose arguments have no times.
    pub(super) fn call(&mut self, function: &'static str, arguments: &[Vec<u8>]) -> Result<Answer> {
        self.call_at(function, |_| arguments.to_vec())
    }

    /// Calls a function of the library with times by the server's clock.
    pub(super) fn call_at(
        &mut self,
        function: &'static str,
        arguments: impl Fn(Shift) -> Vec<Vec<u8>>,
    ) -> Result<Answer> {
        let keys = self.keys.clone();
        let (value, shift) = self.ask(function, &|shift| {
            let mut call = redis::cmd("FCALL");
            call.arg(format!("{PREFIX}{function}")).arg(keys.len()).arg(&keys).arg(arguments(shift));
            call
        })?;
        Ok(Answer { value, doing: function, address: self.address.clone(), shift })
    }

    fn ask(&mut self, doing: &'static str, command: &dyn Fn(Shift) -> Cmd) -> Result<(Value, Shift)> {
        let mut pause = FIRST_PAUSE;
        let mut attempts = 0;
        let mut unreached = Stopwatch::start();
        loop {
            attempts += 1;
            let reason = match self.attempt(command) {
                Ok((value, shift, true)) => {
                    self.is_away = false;
                    return Ok((value, shift));
                }
                Ok((_, _, false)) => {
                    let (address, waited_ms) = (self.address.clone(), SYNC_MILLISECONDS);
                    return Err(Error::NotSynced { address, waited_ms });
                }
                Err(Refused::Promise(error)) => return Err(error),
                Err(Refused::Redis(reason)) => reason,
            };
            let unknown = is_unknown_function(&reason);
            if !unknown && !is_transient(&reason) {
                return Err(Error::Server { doing, address: self.address.clone(), reason: Arc::new(reason) });
            }
            // The old connection may have half an answer left; a new one also loads the library.
            self.connection = None;
            if self.is_reached {
                unreached = Stopwatch::start();
            }
            let is_long = unreached.elapsed() >= LONG;
            if attempts >= ATTEMPTS || is_long || (self.is_away && is_silent(&reason)) {
                self.is_away = true;
                let address = self.address.clone();
                return Err(Error::Away { address, attempts, reason: Arc::new(reason) });
            }
            if !unknown {
                thread::sleep(pause);
                pause *= 2;
            }
        }
    }

    /// The answer, what it says of times, and true if it is on stable storage. All over one connection, because WAITAOF
    /// waits for the writes of its own connection.
    fn attempt(
        &mut self,
        command: &dyn Fn(Shift) -> Cmd,
    ) -> std::result::Result<(Value, Shift, bool), Refused> {
        let Connected { connection, promise, clocks } = self.connected()?;
        let shift = clocks.shift;
        let value = command(shift).query(connection)?;
        if !promise.sync_each {
            return Ok((value, shift, true));
        }
        let (local, _replicas): (u64, u64) =
            redis::cmd("WAITAOF").arg(1).arg(0).arg(SYNC_MILLISECONDS).query(connection)?;
        Ok((value, shift, local == 1))
    }

    /// The connection. The server is asked what it promises, and the time, first and from time to time.
    fn connected(&mut self) -> std::result::Result<&mut Connected, Refused> {
        let connected = match self.connection.take() {
            Some(connected) if !connected.clocks.is_old() => connected,
            Some(Connected { mut connection, .. }) => {
                let promise = self.promise(&mut connection)?;
                let clocks = Compared::ask(&mut connection)?;
                Connected { connection, promise, clocks }
            }
            None => {
                self.is_reached = false;
                let timeout = if self.is_away { SHORT_CONNECT_TIMEOUT } else { CONNECT_TIMEOUT };
                let mut connection = self.client.get_connection_with_timeout(timeout)?;
                self.is_reached = true;
                connection.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                connection.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                // A server that wants a password reports it for a short command only.
                redis::cmd("PING").exec(&mut connection)?;
                // The same library under the same name, if others loaded it meanwhile.
                let load =
                    redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(LIBRARY).exec(&mut connection);
                // A server without memory, or without the replicas that it wants, loads nothing, and still answers if
                // it has the library.
                let writes_nothing =
                    |error: &RedisError| ["OOM", "NOREPLICAS"].iter().any(|it| error.code() == Some(it));
                load.or_else(|error| if writes_nothing(&error) { Ok(()) } else { Err(error) })?;
                let promise = self.promise(&mut connection)?;
                let clocks = Compared::ask(&mut connection)?;
                Connected { connection, promise, clocks }
            }
        };
        Ok(self.connection.insert(connected))
    }

    /// What the server promises of acknowledged changes.
    pub(super) fn durability(&mut self) -> Result<Durability> {
        // The first question makes the connection, and tells what is wrong with it.
        self.ask("serve this client", &|_| redis::cmd("PING"))?;
        let volatile = Durability::Volatile;
        Ok(self.connection.as_ref().map_or(volatile, |connected| connected.promise.durability))
    }

    /// Reads the settings that decide what the server promises. A change counts as recorded when it is on stable
    /// storage: with `appendfsync everysec` only if the server can be made to wait for that (`WAITAOF`, since 7.2).
    fn promise(&self, connection: &mut Connection) -> std::result::Result<Promise, Refused> {
        let address = || self.address.clone();
        let mut setting = |name: &str| -> std::result::Result<String, RedisError> {
            match redis::cmd("CONFIG").arg("GET").arg(name).query::<Vec<String>>(connection) {
                Ok(pair) => Ok(pair.into_iter().nth(1).unwrap_or_else(|| "unknown".to_owned())),
                Err(error) if is_transient(&error) => Err(error),
                // Some providers forbid CONFIG.
                Err(_) => Ok("unknown".to_owned()),
            }
        };
        let volatile = Promise { durability: Durability::Volatile, sync_each: false };
        let policy = setting("maxmemory-policy")?;
        if policy.starts_with("allkeys") && setting("maxmemory")? != "0" {
            return match self.allow_forgetful {
                true => Ok(volatile),
                false => Err(Refused::Promise(Error::Evicting { address: address(), policy })),
            };
        }
        let (appendonly, appendfsync) = (setting("appendonly")?, setting("appendfsync")?);
        let stable = |sync_each| Ok(Promise { durability: Durability::Stable, sync_each });
        match (appendonly.as_str(), appendfsync.as_str()) {
            ("yes", "always") => stable(false),
            ("yes", "everysec") if knows_waitaof(connection)? => stable(true),
            _ if self.allow_forgetful => Ok(volatile),
            _ => Err(Refused::Promise(Error::Forgetful { address: address(), appendonly, appendfsync })),
        }
    }
}

/// Since 7.2.
fn knows_waitaof(connection: &mut Connection) -> std::result::Result<bool, RedisError> {
    let known: Vec<Value> = redis::cmd("COMMAND").arg("INFO").arg("WAITAOF").query(connection)?;
    Ok(known.first().is_some_and(|command| !matches!(command, Value::Nil)))
}

fn is_unknown_function(reason: &RedisError) -> bool {
    reason.to_string().contains("Function not found")
}

/// True if nothing answered, not even a server that is starting.
fn is_silent(reason: &RedisError) -> bool {
    reason.is_io_error() || reason.is_connection_dropped() || reason.is_timeout()
}

/// True if the same command may succeed a moment later.
fn is_transient(reason: &RedisError) -> bool {
    let busy = [ServerErrorKind::BusyLoading, ServerErrorKind::TryAgain, ServerErrorKind::MasterDown];
    is_silent(reason)
        || busy.iter().any(|&kind| reason.kind() == redis::ErrorKind::Server(kind))
        || reason.code() == Some("BUSY")
}

/// As the library wants its numbers.
pub(super) fn hex(number: u64) -> Vec<u8> {
    format!("{number:016x}").into_bytes()
}

/// As the library wants its times: in an order without sign.
pub(super) fn time(time: Timestamp) -> Vec<u8> {
    hex(time.nanoseconds().cast_unsigned() ^ 1 << 63)
}
