//! Requests of HTTP: webhooks, ntfy, heartbeats.

use super::super::super::config::notify::{Address, Endpoint, check_encrypted, usable_address};
use super::super::super::events::Severity;
use super::super::super::secret::Secret;
use super::super::message::Message;
use super::{DeliveryError, MAX_ANSWER, foreign};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// ntfy makes longer messages attachments.
const MAX_NTFY: usize = 3800;

/// An endpoint with its secrets.
struct Opened {
    address: String,
    uri: Uri,
    /// Not to be shown: the token, and the path of the address.
    secrets: Vec<Secret>,
    token: Option<Secret>,
}

fn open(endpoint: &Endpoint) -> Result<Opened, DeliveryError> {
    let mut secrets = Vec::new();
    let address = match &endpoint.address {
        Address::Plain(address) => address.clone(),
        Address::Secret(source) => {
            let secret = source.read()?;
            let address = secret.reveal().to_owned();
            secrets.push(secret);
            address
        }
    };
    let token = endpoint.token.as_ref().map(|token| token.read()).transpose()?;
    let uri = usable_address(&address).map_err(DeliveryError::Address)?;
    check_encrypted(&uri, token.is_some()).map_err(DeliveryError::Address)?;
    secrets.extend(token.clone());
    Ok(Opened { address, uri, secrets, token })
}

/// Sends a message as JSON.
pub(super) fn webhook(to: &Endpoint, message: &Message, deadline: Duration) -> Result<(), DeliveryError> {
    let body = serde_json::to_vec(message).map_err(|error| DeliveryError::Address(error.to_string()))?;
    let opened = open(to)?;
    let address = opened.address.clone();
    post(to, &opened, &address, "application/json", &body, deadline)
}

/// A message for ntfy. As JSON, because headers hold ASCII only and end at a line feed.
#[derive(Serialize)]
struct NtfyMessage<'a> {
    topic: &'a str,
    title: &'a str,
    message: &'a str,
    priority: u8,
    tags: [&'static str; 1],
}

/// Publishes a message on a topic, which is the last part of the path.
pub(super) fn ntfy(to: &Endpoint, message: &Message, deadline: Duration) -> Result<(), DeliveryError> {
    let opened = open(to)?;
    let path = opened.uri.path().trim_end_matches('/');
    let (above, topic) = path.rsplit_once('/').filter(|(_, topic)| !topic.is_empty()).ok_or_else(|| {
        DeliveryError::Address(
            "the address of ntfy ends with a topic: https://ntfy.example.org/TOPIC".to_owned(),
        )
    })?;
    let (scheme, host) = (opened.uri.scheme_str().unwrap_or("https"), authority(&opened.uri));
    let server = format!("{scheme}://{host}{above}/");
    let text = &message.text[..message.text.floor_char_boundary(MAX_NTFY)];
    let (priority, tag) = match message.severity {
        Severity::Error => (5, "rotating_light"),
        Severity::Warning => (4, "warning"),
        Severity::Info => (3, "white_check_mark"),
    };
    let published = NtfyMessage { topic, title: &message.subject, message: text, priority, tags: [tag] };
    let body = serde_json::to_vec(&published).map_err(|error| DeliveryError::Address(error.to_string()))?;
    post(to, &opened, &server, "application/json", &body, deadline)
}

/// Requests the address of a heartbeat, or `/fail` below it.
pub(super) fn heartbeat(
    to: &Endpoint,
    is_well: bool,
    text: &str,
    deadline: Duration,
) -> Result<(), DeliveryError> {
    let opened = open(to)?;
    let address = match is_well {
        true => opened.address.clone(),
        false => {
            let (path, query) = match opened.address.split_once('?') {
                Some((path, query)) => (path, format!("?{query}")),
                None => (opened.address.as_str(), String::new()),
            };
            format!("{}/fail{query}", path.trim_end_matches('/'))
        }
    };
    post(to, &opened, &address, "text/plain; charset=utf-8", text.as_bytes(), deadline)
}

fn authority(uri: &Uri) -> &str {
    uri.authority().map_or("", |authority| authority.as_str())
}

fn post(
    to: &Endpoint,
    opened: &Opened,
    address: &str,
    kind: &str,
    body: &[u8],
    deadline: Duration,
) -> Result<(), DeliveryError> {
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(deadline))
        // A redirect could lead the token and the message to another server.
        .max_redirects(0)
        .http_status_as_error(false)
        .user_agent(concat!("gabion/", env!("CARGO_PKG_VERSION")));
    if opened.uri.scheme_str() == Some("https") {
        config = config.tls_config(tls(to.ca.as_deref())?);
    }
    let mut request = config.build().new_agent().post(address).header("content-type", kind);
    if let Some(token) = &opened.token {
        request = request.header("authorization", format!("Bearer {}", token.reveal()));
    }
    let host = authority(&opened.uri).to_owned();
    let shown = |text: &str| {
        let path = opened.uri.path_and_query().map(|path| path.as_str()).filter(|path| path.len() > 1);
        let hidden = opened.secrets.iter().fold(text.to_owned(), |text, secret| secret.redact(&text));
        foreign(&path.map_or_else(|| hidden.clone(), |path| hidden.replace(path, "/…")))
    };
    let broken = |error: ureq::Error| {
        let why = match &error {
            ureq::Error::Timeout(_) => format!("no answer within {} s", deadline.as_secs()),
            other => shown(&other.to_string()),
        };
        DeliveryError::Connection { host: host.clone(), why }
    };
    let mut answer = request.send(body).map_err(broken)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let text = answer.body_mut().with_config().limit(MAX_ANSWER as u64).lossy_utf8(true).read_to_string();
    let text = text.map(|text| shown(&text)).unwrap_or_default();
    Err(DeliveryError::Refused { host, status: status.as_u16(), text })
}

/// The certificates of the system, and those of `ca`; the provider of cryptography that Redis connections use.
fn tls(ca: Option<&Path>) -> Result<TlsConfig, DeliveryError> {
    let system = rustls_native_certs::load_native_certs().certs;
    let mut roots: Vec<Certificate<'static>> =
        system.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
    if let Some(path) = ca {
        let text = std::fs::read(path).map_err(|error| DeliveryError::Certificates(error.to_string()))?;
        let before = roots.len();
        for item in parse_pem(&text) {
            match item {
                Ok(PemItem::Certificate(one)) => roots.push(one),
                Ok(_) => {}
                Err(error) => return Err(DeliveryError::Certificates(error.to_string())),
            }
        }
        if roots.len() == before {
            return Err(DeliveryError::Certificates("there is no certificate in it".to_owned()));
        }
    }
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots))
        .build())
}
