//! The sockets of the API: a Unix socket with its lock file, and TCP with TLS where it is configured.

use super::access::{Readers, invalid, read_public, read_secret};
use crate::daemon::config::ApiConfig;
use gabion_platform::lock::Lockable;
use rustix::fs::Mode;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Error of a socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon listens on it.
    #[error("another daemon already listens at {}: {holder}", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
        /// Process and host of that daemon.
        holder: String,
    },
    /// A system call failed.
    #[error("the socket {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The API cannot be served over TCP.
    #[error("[api]: {0}")]
    Api(io::Error),
}

/// The listening socket with its lock file: one daemon at a time.
#[derive(Debug)]
pub(in crate::daemon) struct Place {
    path: PathBuf,
    pub(super) listener: UnixListener,
    // Held, not read.
    _lock: Lockable,
}

impl Place {
    /// Binds the socket, with mode 0600, or 0660 for the group of readers.
    pub(in crate::daemon) fn take(path: &Path, readers: &Readers) -> Result<Place, SocketError> {
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            // Readers have to get at the socket.
            let mode = if readers.group.is_some() { 0o750 } else { 0o700 };
            std::fs::DirBuilder::new().recursive(true).mode(mode).create(directory).map_err(failed)?;
            if readers.group.is_some() {
                let _ = std::os::unix::fs::chown(directory, None, readers.group);
            }
        }
        let lock = take_lock(path, &failed)?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        // By umask, so that no other user can connect before the mode is set.
        let usual = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(usual);
        let listener = bound.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        // A user who is not in the group cannot give the socket to it: then only the owner uses it.
        if readers.group.is_some() && std::os::unix::fs::chown(path, None, readers.group).is_ok() {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(failed)?;
        }
        Ok(Place { path: path.to_owned(), listener, _lock: lock })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn take_lock(path: &Path, failed: &dyn Fn(io::Error) -> SocketError) -> Result<Lockable, SocketError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(&name)
        .map_err(failed)?;
    // The file is overwritten: it must belong to this user and have no other name.
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.nlink() != 1 {
        let why = format!("{} is no lock file of this user", Path::new(&name).display());
        return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, why)));
    }
    let file = Lockable::from(file);
    if file.try_lock().is_err() {
        let mut holder = [0; 256];
        let got = file.read_at(&mut holder, 0).map_err(failed)?;
        let holder = String::from_utf8_lossy(&holder[..got]).trim_end().to_owned();
        return Err(SocketError::Taken { path: path.to_owned(), holder });
    }
    let text = format!("process {} on {}\n", gabion_vault::world::process(), gabion_vault::world::host());
    file.set_len(0).and_then(|()| file.write_all_at(text.as_bytes(), 0)).map_err(failed)?;
    Ok(file)
}

/// Binds the TCP address.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("listen = {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(named)?;
    listener.set_nonblocking(true).map_err(named)?;
    Ok(listener)
}

/// The TLS settings of a configuration, if it names a certificate.
pub(super) fn tls(config: &ApiConfig) -> io::Result<Option<Arc<rustls::ServerConfig>>> {
    let (Some(certificate), Some(key)) = (&config.tls_certificate, &config.tls_key) else { return Ok(None) };
    let chain = CertificateDer::pem_slice_iter(&read_public(certificate)?).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| invalid(certificate, &error.to_string()))?;
    if chain.is_empty() {
        return Err(invalid(certificate, "it has no certificate in PEM"));
    }
    let private = PrivateKeyDer::from_pem_slice(&read_secret(key)?)
        .map_err(|error| invalid(key, &error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let settings = builder
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| invalid(certificate, &error.to_string()))?;
    Ok(Some(Arc::new(settings)))
}
