//! The daemon's HTTP API, described in `docs/reference/api.md`.
//!
//! Modules, from the bottom up: `access` (who may do what), `listen` (sockets), `timed` (connections with a limit for
//! writes), `stream` (live events), `queries`, `redundancy` and `control` (what requests do), `openapi` (their
//! description), `routes` (the table of all requests), `server` (connections).

mod access;
mod control;
mod listen;
mod openapi;
mod queries;
mod redundancy;
mod routes;
mod server;
mod stream;
mod timed;

pub(super) use listen::Place;
pub use listen::SocketError;
pub(super) use server::{bind, serve};

use super::Daemon;
use super::config::ApiConfig;
use access::{Readers, Tokens};
use gabion_platform::sync::lock;
use std::io;
use std::sync::{Arc, Mutex};

/// Most bytes of the body of a request.
const MAX_BODY: usize = 64 << 10;

/// The OpenAPI document of this version.
///
/// # Errors
/// A type cannot be described, which is a defect.
pub fn openapi_document() -> serde_json::Result<String> {
    openapi::document()
}

/// Reads the tokens and certificates of a configuration.
///
/// # Errors
/// A file cannot be used.
pub fn check(config: &ApiConfig) -> io::Result<()> {
    Settings::load(config).map(drop)
}

/// What requests need.
pub(super) struct Api {
    daemon: Arc<Daemon>,
    /// Held while a request reads the headers of all files.
    survey: Mutex<()>,
}

/// Settings that a reload replaces.
#[derive(Default)]
pub(super) struct Settings {
    tokens: Tokens,
    readers: Readers,
    tls: Option<Arc<rustls::ServerConfig>>,
    hosts: Vec<String>,
}

impl Settings {
    /// Reads tokens, certificates and the group of a configuration.
    pub(super) fn load(config: &ApiConfig) -> io::Result<Settings> {
        let tokens = Tokens::load(config)?;
        if config.listen.is_some() && tokens.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the files of tokens have none"));
        }
        let (readers, tls) = (Readers::of_group(&config.group), listen::tls(config)?);
        Ok(Settings { tokens, readers, tls, hosts: config.hosts.clone() })
    }

    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }
}

impl Api {
    pub(super) fn new(daemon: Arc<Daemon>) -> Api {
        Api { daemon, survey: Mutex::new(()) }
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&lock(&self.daemon.settings))
    }
}
