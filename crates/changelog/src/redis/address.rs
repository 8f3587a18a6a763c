//! Address of a Redis server, and the password apart from it.
//!
//! Settings, errors and copies on all targets of a pool have the address without a password. The password comes from
//! the environment variable [`PASSWORD`], from the file that [`PASSWORD_FILE`] names, which only its owner may read,
//! or from the URL that a command was given; that one is used for this process alone and stands in the list of
//! processes.
//!
//! Connections to `rediss://` addresses are encrypted. The certificate of the server must be valid for its name and
//! signed by an authority of this system, or by those in the file that [`CA_FILE`] names. A server that wants
//! certificates of its clients gets those of [`CERTIFICATE_FILE`] and [`KEY_FILE`].

use crate::error::{Error, Result};
use crate::server::without_password;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates,
};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time after which a connection ends on which the kernel of the server's host acknowledges nothing: the network is
/// cut. A slow server is waited for longer.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// Environment variable with the password.
pub const PASSWORD: &str = "GABION_REDIS_PASSWORD";

/// Environment variable with the path of a file whose first line is the password.
pub const PASSWORD_FILE: &str = "GABION_REDIS_PASSWORD_FILE";

/// Environment variable with the path of a file of certificates of authorities (PEM), in place of those of the system.
pub const CA_FILE: &str = "GABION_REDIS_CA_FILE";

/// Environment variable with the path of the certificate of this client (PEM).
pub const CERTIFICATE_FILE: &str = "GABION_REDIS_CERTIFICATE_FILE";

/// Environment variable with the path of the private key of that certificate (PEM), which only its owner may read.
pub const KEY_FILE: &str = "GABION_REDIS_KEY_FILE";

/// Longest password file, in bytes.
const MAX_PASSWORD: u64 = 4096;

/// Longest file of certificates or keys, in bytes.
const MAX_PEM: u64 = 16 << 20;

/// Passwords of URLs that this process was given, by their addresses.
static GIVEN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Keeps the password of a URL in memory, for later connections to the same address without a password.
pub fn remember_password(url: &str) {
    let Ok(info) = url.into_connection_info() else { return };
    if let Some(password) = info.redis_settings().password() {
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        given.insert(without_password(url), password.to_owned());
    }
}

/// A client for a URL, with the password from wherever it is kept.
pub(super) fn client(url: &str) -> Result<Client> {
    let wrong = |reason: RedisError| Error::Server {
        doing: "be addressed so",
        address: without_password(url),
        // What the parser says may quote the URL.
        reason: Arc::new(RedisError::from((reason.kind(), "the address is not understood"))),
    };
    let info = url.into_connection_info().map_err(wrong)?;
    let failed =
        |doing: &'static str| move |reason: io::Error| Error::System { doing, reason: Arc::new(reason) };
    let info = with_password(url, info).map_err(failed("read the password of the Redis server"))?;
    let connections = info.tcp_settings().clone().set_user_timeout(UNACKNOWLEDGED);
    let info = info.set_tcp_settings(connections);
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Client::open(info).map_err(wrong);
    }
    let certificates = certificates().map_err(failed("read the certificates for the Redis server"))?;
    Client::build_with_tls(info, certificates).map_err(|reason| Error::Server {
        doing: "be reached with these certificates",
        address: without_password(url),
        reason: Arc::new(reason),
    })
}

/// The certificates that the environment names.
fn certificates() -> io::Result<TlsCertificates> {
    let incomplete = || {
        let why = format!("{CERTIFICATE_FILE} and {KEY_FILE} go together: one of them is not set");
        io::Error::new(io::ErrorKind::InvalidInput, why)
    };
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let root_cert = named(CA_FILE).map(|path| read_pem(&path)).transpose()?;
    let client_tls = match (named(CERTIFICATE_FILE), named(KEY_FILE)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            let (client_cert, client_key) = (read_pem(&certificate)?, read_private(&key, MAX_PEM)?);
            Some(ClientTlsConfig { client_cert, client_key })
        }
        _ => return Err(incomplete()),
    };
    Ok(TlsCertificates { client_tls, root_cert })
}

fn read_pem(path: &Path) -> io::Result<Vec<u8>> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut text = Vec::new();
    std::fs::File::open(path).map_err(named)?.take(MAX_PEM).read_to_end(&mut text).map_err(named)?;
    Ok(text)
}

/// The environment goes before the URL: a URL may come from a copy of the settings.
fn with_password(url: &str, info: ConnectionInfo) -> io::Result<ConnectionInfo> {
    let password = match (std::env::var(PASSWORD), std::env::var_os(PASSWORD_FILE)) {
        (Ok(password), _) => password,
        (_, Some(path)) => read_password(Path::new(&path))?,
        _ => match GIVEN.lock().unwrap_or_else(PoisonError::into_inner).get(&without_password(url)) {
            Some(password) => password.clone(),
            None => return Ok(info),
        },
    };
    let settings = info.redis_settings().clone().set_password(password);
    Ok(info.set_redis_settings(settings))
}

fn read_password(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read_private(path, MAX_PASSWORD)?).map_err(io::Error::other)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Reads a file that only its owner can read.
fn read_private(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let refused =
        |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {why}", path.display()));
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(named)?;
    let found = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user && found.uid() != 0 {
        return Err(refused("it belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(refused("others than its owner can read it: `chmod 600` makes it private"));
    }
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text).map_err(named)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::read_password;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn passwords_come_from_private_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, "se cret\nmore\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(read_password(&path).unwrap_err().to_string().contains("chmod 600"));
        mode(0o600);
        assert_eq!(read_password(&path).unwrap(), "se cret");
    }
}
