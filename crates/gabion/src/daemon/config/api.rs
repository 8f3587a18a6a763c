//! The section `[api]` of the configuration.

use super::{ConfigError, Reader};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::Spanned;

/// Group whose members may read.
const GROUP: &str = "gabion";

/// Settings of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiConfig {
    /// TCP address; none by default.
    pub listen: Option<SocketAddr>,
    /// Certificate chain in PEM.
    pub tls_certificate: Option<PathBuf>,
    /// Private key in PEM.
    pub tls_key: Option<PathBuf>,
    /// File with the tokens that may read.
    pub read_tokens: Option<PathBuf>,
    /// File with the tokens that may change things.
    pub admin_tokens: Option<PathBuf>,
    /// Group whose members may read at the Unix socket.
    pub group: String,
    /// Names of this host that requests may have in `Host`.
    pub hosts: Vec<String>,
}

impl Default for ApiConfig {
    fn default() -> ApiConfig {
        ApiConfig {
            listen: None,
            tls_certificate: None,
            tls_key: None,
            read_tokens: None,
            admin_tokens: None,
            group: GROUP.to_owned(),
            hosts: Vec::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApiText {
    listen: Option<Spanned<String>>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    read_tokens: Option<PathBuf>,
    admin_tokens: Option<PathBuf>,
    group: Option<String>,
    #[serde(default)]
    hosts: Vec<String>,
}

impl Reader<'_> {
    pub(super) fn api(&self, text: Option<Spanned<ApiText>>) -> Result<ApiConfig, ConfigError> {
        let Some(text) = text else { return Ok(ApiConfig::default()) };
        let begins = text.span().start;
        let text = text.into_inner();
        let join = |path: &PathBuf| self.base.join(path);
        let mut config = ApiConfig {
            listen: None,
            tls_certificate: text.tls_certificate.as_ref().map(join),
            tls_key: text.tls_key.as_ref().map(join),
            read_tokens: text.read_tokens.as_ref().map(join),
            admin_tokens: text.admin_tokens.as_ref().map(join),
            group: text.group.unwrap_or_else(|| GROUP.to_owned()),
            hosts: text.hosts,
        };
        if config.tls_certificate.is_some() != config.tls_key.is_some() {
            let why = "api: tls_certificate and tls_key belong together".to_owned();
            return Err(self.wrong(begins, why));
        }
        let Some(listen) = text.listen else { return Ok(config) };
        let at = listen.span().start;
        let address: SocketAddr = listen.get_ref().parse().map_err(|_| {
            let why = format!(
                "api: listen = {:?} is no address with a port, such as 127.0.0.1:7443",
                listen.get_ref()
            );
            self.wrong(at, why)
        })?;
        if config.read_tokens.is_none() && config.admin_tokens.is_none() {
            let why = "api: listen needs read_tokens or admin_tokens: files with tokens".to_owned();
            return Err(self.wrong(at, why));
        }
        if !address.ip().is_loopback() && config.tls_certificate.is_none() {
            let why = format!(
                "api: listen = {address} is reachable from other hosts and needs tls_certificate and tls_key"
            );
            return Err(self.wrong(at, why));
        }
        config.listen = Some(address);
        Ok(config)
    }
}
