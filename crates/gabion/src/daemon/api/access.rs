//! Who may use the API: users by the credentials of the Unix socket, programs on other sockets by tokens. Requests that
//! a browser sends on behalf of another site are refused.

use crate::daemon::config::ApiConfig;
use crate::daemon::refusal::{ErrorCode, Refusal};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use rustix::net::UCred;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Shortest and longest token, and most tokens of a file.
const MIN_TOKEN: usize = 32;
const MAX_TOKEN: usize = 512;
const MAX_TOKENS: usize = 64;

/// Most bytes of a file with tokens, a key or certificates.
const MAX_FILE: u64 = 1 << 18;

/// What a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Read everything.
    Read,
    /// Also change things.
    Admin,
}

/// The members of the group that may read, by user and group numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::daemon) struct Readers {
    /// Number of the group, if it exists.
    pub(super) group: Option<u32>,
    users: Vec<u32>,
}

impl Readers {
    /// Of a group, from any source that the system uses.
    pub(super) fn of_group(name: &str) -> Readers {
        let Some(line) = getent("group", name) else { return Readers::default() };
        let mut fields = line.trim_end().split(':').skip(2);
        let group = fields.next().and_then(|number| number.parse().ok());
        let users = fields.next().unwrap_or_default().split(',').filter(|name| !name.is_empty());
        let number = |name: &str| getent("passwd", name)?.split(':').nth(2)?.parse().ok();
        Readers { group, users: users.filter_map(number).collect() }
    }

    fn has(&self, peer: &UCred) -> bool {
        self.group.is_some_and(|group| group == peer.gid.as_raw()) || self.users.contains(&peer.uid.as_raw())
    }
}

fn getent(database: &str, name: &str) -> Option<String> {
    let found = std::process::Command::new("getent").args([database, "--", name]).output().ok()?;
    found.status.success().then(|| String::from_utf8(found.stdout).ok())?
}

/// The role of a user at the Unix socket. The mode of the socket keeps others out too, but it can be changed, and not
/// every system checks it.
pub(super) fn role_of_peer(peer: io::Result<UCred>, readers: &Readers) -> Result<Role, Refusal> {
    let ours = rustix::process::geteuid();
    match peer {
        Ok(peer) if peer.uid == ours || peer.uid.is_root() => Ok(Role::Admin),
        Ok(peer) if readers.has(&peer) => Ok(Role::Read),
        Ok(peer) => Err(Refusal::new(
            ErrorCode::Forbidden,
            format!(
                "user {} may not use this daemon, only user {} who runs it, root, and readers of its group",
                peer.uid.as_raw(),
                ours.as_raw()
            ),
        )),
        Err(error) => Err(Refusal::new(
            ErrorCode::Forbidden,
            format!("the user of this connection is not known: {error}"),
        )),
    }
}

/// The tokens of the API, as hashes: comparing these takes the same time for all tokens.
#[derive(Clone, Default)]
pub(super) struct Tokens(Vec<(blake3::Hash, Role)>);

impl Tokens {
    /// Reads the files of a configuration.
    pub(super) fn load(config: &ApiConfig) -> io::Result<Tokens> {
        let mut tokens = Vec::new();
        for (path, role) in [(&config.read_tokens, Role::Read), (&config.admin_tokens, Role::Admin)] {
            let Some(path) = path else { continue };
            let text =
                String::from_utf8(read_secret(path)?).map_err(|_| invalid(path, "it is no UTF-8 text"))?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            for (number, token) in lines.enumerate() {
                let plain = token.bytes().all(|byte| byte.is_ascii_graphic());
                if !(MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) || !plain || number >= MAX_TOKENS {
                    let why = format!(
                        "it has one token per line, at most {MAX_TOKENS}, of {MIN_TOKEN} to {MAX_TOKEN} printable ASCII \
                         characters"
                    );
                    return Err(invalid(path, &why));
                }
                tokens.push((blake3::hash(token.as_bytes()), role));
            }
        }
        Ok(Tokens(tokens))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The role of the token of a request.
    pub(super) fn role(&self, headers: &HeaderMap) -> Result<Role, Refusal> {
        let unauthorized = |why: &str| Refusal::new(ErrorCode::Unauthorized, why);
        let value = headers.get(AUTHORIZATION).ok_or_else(|| {
            unauthorized(
                "a token is needed: Authorization: Bearer TOKEN, from the files that daemon.toml names",
            )
        })?;
        let text = value.to_str().unwrap_or_default();
        let (scheme, token) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthorized("only Authorization: Bearer TOKEN is supported"));
        }
        let given = blake3::hash(token.trim().as_bytes());
        // All are compared, in constant time each.
        let fits = self.0.iter().filter(|(known, _)| *known == given).map(|(_, role)| *role);
        fits.max().ok_or_else(|| unauthorized("the token is not known"))
    }
}

/// Reads a file that only the daemon's user may read.
pub(super) fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe in its place is opened without waiting, and refused below.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file =
        File::options().read(true).custom_flags(flags).open(path).map_err(|error| named(path, error))?;
    let found = file.metadata().map_err(|error| named(path, error))?;
    let owner = [rustix::process::geteuid().as_raw(), 0].contains(&found.uid());
    if !found.is_file() || !owner || found.mode() & 0o077 != 0 {
        let why = format!(
            "it has to be a file of the daemon's user with mode 0600, not of user {} with mode {:04o}",
            found.uid(),
            found.mode() & 0o7777
        );
        return Err(invalid(path, &why));
    }
    read_short(path, file)
}

/// Reads a file of limited length.
pub(super) fn read_public(path: &Path) -> io::Result<Vec<u8>> {
    read_short(path, File::open(path).map_err(|error| named(path, error))?)
}

fn read_short(path: &Path, file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| named(path, error))?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(invalid(path, "it is longer than 256 KiB")),
        false => Ok(bytes),
    }
}

pub(super) fn invalid(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Refuses what a browser sends for another site: another origin, or a name that is not this daemon's (a name of a
/// hostile site may lead to this address).
pub(super) fn check_origin(headers: &HeaderMap, is_local: bool, hosts: &[String]) -> Result<(), Refusal> {
    let refused = |why: String| Err(Refusal::new(ErrorCode::CrossOrigin, why));
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return refused("a request has one Host".to_owned());
    }
    let host = text(&HOST).unwrap_or_default();
    let name = without_port(host);
    let is_address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>().is_ok();
    // A tunnel brings browsers to the Unix socket, where no token is asked for. A hostile name has a dot in it.
    let is_local = is_local && !name.contains('.');
    let is_known = is_local || is_address || name == "localhost" || hosts.iter().any(|known| known == name);
    if !is_known {
        return refused(format!("Host {host:?} is no address, and not among api.hosts of the configuration"));
    }
    if let Some(origin) = text(&ORIGIN) {
        let own = [format!("https://{host}"), format!("http://{host}")];
        if !own.iter().any(|own| own == origin) {
            return refused(format!("requests of pages from {origin:?} are refused"));
        }
    }
    match text(&HeaderName::from_static("sec-fetch-site")) {
        Some(site @ ("cross-site" | "same-site")) => refused(format!("{site} requests are refused")),
        _ => Ok(()),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::{Role, Tokens, check_origin, read_secret};
    use crate::daemon::config::ApiConfig;
    use hyper::HeaderMap;
    use std::os::unix::fs::PermissionsExt;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn tokens_come_from_files_of_the_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let token = "0123456789abcdef0123456789abcdef";
        std::fs::write(&path, format!("# for the dashboard\n{token}\n\n")).unwrap();
        let config = ApiConfig { read_tokens: Some(path.clone()), ..ApiConfig::default() };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Tokens::load(&config).err().unwrap().to_string();
        assert!(
            refused.contains("0600") && refused.contains("0640") && !refused.contains(token),
            "{refused}"
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let tokens = Tokens::load(&config).unwrap();
        let role = |value: &str| tokens.role(&headers(&[("authorization", value)]));
        assert_eq!(role(&format!("Bearer {token}")).unwrap(), Role::Read);
        for wrong in
            ["", "Bearer", "Bearer ", &format!("Basic {token}"), &format!("Bearer {token}0"), "Bearer x"]
        {
            assert!(role(wrong).is_err(), "{wrong}");
        }
        assert!(tokens.role(&headers(&[])).unwrap_err().message.contains("Authorization"));
        for wrong in ["short\n", "with blanks in it, and long enough for it\n", &"x".repeat(1000)] {
            std::fs::write(&path, wrong).unwrap();
            assert!(Tokens::load(&config).is_err(), "{wrong}");
        }
        assert!(read_secret(dir.path()).is_err() && read_secret(&dir.path().join("none")).is_err());
    }

    #[test]
    fn requests_for_other_sites_are_refused() {
        let known = ["nas.example".to_owned()];
        let check = |is_local, pairs: &[(&'static str, &str)]| {
            check_origin(&headers(pairs), is_local, &known).is_ok()
        };
        for host in
            ["127.0.0.1:7443", "[::1]:7443", "[::1]", "localhost:7443", "nas.example", "nas.example:1"]
        {
            assert!(check(false, &[("host", host)]), "{host}");
            assert!(check(false, &[("host", host), ("origin", &format!("https://{host}"))]), "{host}");
            assert!(!check(false, &[("host", host), ("origin", "https://evil.example")]), "{host}");
            assert!(!check(false, &[("host", host), ("sec-fetch-site", "cross-site")]), "{host}");
        }
        let mut two = headers(&[("host", "localhost")]);
        two.append("host", "evil.example".parse().unwrap());
        assert!(check_origin(&two, false, &known).is_err());
        for host in ["", "evil.example", "evil.example:7443", "127.0.0.1.evil.example"] {
            assert!(!check(false, &[("host", host)]), "{host}");
        }
        assert!(check(true, &[("host", "127.0.0.1:7443")]) && !check(true, &[("host", "evil.example:7443")]));
        assert!(
            check(true, &[("host", "gabion")]) && !check(true, &[("host", "gabion"), ("origin", "null")])
        );
    }
}
