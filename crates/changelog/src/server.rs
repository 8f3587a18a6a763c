//! Address of a Redis server, with and without the password in it.
//!
//! Compiled without the feature `redis` as well: settings that name a server are read, and opening its changelog
//! fails with [`Error::NotBuilt`](crate::Error::NotBuilt).

use crate::Changelog;
use crate::error::Result;
use std::fmt;
use std::sync::Arc;

/// The changelog of one vault on a Redis server.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// As in `redis://user:password@host:port/database`. The module `redis::address` lists other sources of the
    /// password.
    pub url: String,
    /// Name of the changelog on that server: 1 to 64 letters, digits, `-`, `_` or `.`.
    pub name: String,
    /// Use a server that may forget acknowledged changes when it crashes. Only a scan finds what it forgot.
    pub allow_forgetful: bool,
}

impl Server {
    /// Opens the changelog.
    ///
    /// # Errors
    /// Those of `Redis::open`; [`Error::NotBuilt`] without the feature `redis`.
    ///
    /// [`Error::NotBuilt`]: crate::Error::NotBuilt
    pub fn open(&self) -> Result<Arc<dyn Changelog>> {
        #[cfg(feature = "redis")]
        return Ok(Arc::new(crate::Redis::open(self)?));
        #[cfg(not(feature = "redis"))]
        return Err(crate::Error::NotBuilt { address: without_password(&self.url) });
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Server { url, name, allow_forgetful } = self;
        f.debug_struct("Server")
            .field("url", &without_password(url))
            .field("name", name)
            .field("allow_forgetful", allow_forgetful)
            .finish()
    }
}

/// An address without the password that it may have: `redis://user:password@host` becomes `redis://user@host`.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':').map_or(user, |(user, _)| user) {
            "" => format!("{scheme}://{host}{path}"),
            user => format!("{scheme}://{user}@{host}{path}"),
        },
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Server, without_password};

    #[test]
    fn addresses_are_kept_without_passwords() {
        for (with, without) in [
            ("redis://:secret@host:1/2", "redis://host:1/2"),
            ("rediss://user:se:cr@et@host/?protocol=resp3", "rediss://user@host/?protocol=resp3"),
            ("redis://user@host", "redis://user@host"),
            ("redis://host:6379/", "redis://host:6379/"),
            ("embedded", "embedded"),
        ] {
            assert_eq!(without_password(with), without);
        }
    }

    #[test]
    fn debug_output_has_no_password() {
        let url = "redis://user:secret@host".to_owned();
        let text = format!("{:?}", Server { url, name: "x".to_owned(), allow_forgetful: false });
        assert!(text.contains("redis://user@host") && !text.contains("secret"), "{text}");
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn without_the_feature_a_server_is_refused() {
        let server =
            Server { url: "redis://:secret@host".to_owned(), name: "x".to_owned(), allow_forgetful: false };
        let Err(error) = server.open() else { panic!("it was opened") };
        assert!(matches!(&error, crate::Error::NotBuilt { address } if address == "redis://host"));
    }
}
