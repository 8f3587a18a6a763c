//! Deliveries of a message: commands, requests of HTTP, e-mails. Each has a deadline.

mod http;
mod mail;

use super::super::child::{self, ChildError};
use super::super::config::notify::{Channel, NotifyConfig};
use super::super::secret::SecretError;
use super::message::Message;
use super::topic::{Topic, line};
use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Most bytes of the output of a command, or of an answer, that are kept for an error message.
const MAX_ANSWER: usize = 4096;

/// Time that a delivery gets beyond its deadline, to end by itself and say why.
pub(super) const SLACK: Duration = Duration::from_secs(10);

/// Error of a delivery. Its text holds no secrets.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    /// A secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] ChildError),
    /// The configured address cannot be used.
    #[error("{0}")]
    Address(String),
    /// The certificates of `ca` cannot be used.
    #[error("ca: {0}")]
    Certificates(String),
    /// The server answered with an error.
    #[error("{host} answered {status}{}", after_colon(.text))]
    Refused {
        /// The server.
        host: String,
        /// Status of HTTP.
        status: u16,
        /// The beginning of its answer.
        text: String,
    },
    /// The server cannot be reached, or broke off.
    #[error("{host}: {why}")]
    Connection {
        /// The server.
        host: String,
        /// The reason.
        why: String,
    },
    /// The message has no form as an e-mail.
    #[error("the e-mail cannot be composed: {0}")]
    Mail(String),
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Delivers a message. `directory` is where commands run.
///
/// # Errors
/// See [`DeliveryError`].
pub(super) fn deliver(to: &NotifyConfig, directory: &Path, message: &Message) -> Result<(), DeliveryError> {
    let deadline = to.timeout;
    match &to.channel {
        Channel::Command(command) => {
            let input =
                serde_json::to_vec(message).map_err(|error| DeliveryError::Mail(error.to_string()))?;
            run(command, directory, &environment(message), &input, deadline)
        }
        Channel::Webhook(endpoint) => http::webhook(endpoint, message, deadline),
        Channel::Ntfy(endpoint) => http::ntfy(endpoint, message, deadline),
        Channel::Smtp(smtp, addresses) => mail::smtp(smtp, addresses, message, deadline),
        Channel::Sendmail(command, addresses) => {
            let input = mail::compose(addresses, message)?.formatted();
            run(command, directory, &environment(message), &input, deadline)
        }
        // A heartbeat carries no messages; a test sends the signal that all is well.
        Channel::Heartbeat(endpoint, _) => http::heartbeat(endpoint, true, &message.text, deadline),
    }
}

/// Delivers a message in a thread of its own, which is left behind if the delivery does not end.
///
/// # Errors
/// The error, as text.
pub(super) fn within_deadline(to: &NotifyConfig, directory: &Path, message: Message) -> Result<(), String> {
    let (done, result) = mpsc::channel();
    let (config, directory) = (to.clone(), directory.to_owned());
    let work = move || done.send(deliver(&config, &directory, &message).map_err(|error| error.to_string()));
    let thread = std::thread::Builder::new().name(format!("notify {}", to.name)).spawn(work);
    thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    let deadline = to.timeout;
    let ended = result.recv_timeout(deadline.saturating_add(SLACK));
    ended.unwrap_or_else(|_| Err(format!("the delivery did not end within {} s", deadline.as_secs())))
}

/// Sends the signal of a heartbeat.
///
/// # Errors
/// See [`DeliveryError`].
pub(super) fn beat(to: &NotifyConfig, is_well: bool, text: &str) -> Result<(), DeliveryError> {
    let deadline = to.timeout;
    match &to.channel {
        Channel::Heartbeat(endpoint, _) => http::heartbeat(endpoint, is_well, text, deadline),
        _ => Ok(()),
    }
}

fn run(
    command: &[OsString],
    directory: &Path,
    environment: &[(&'static str, OsString)],
    input: &[u8],
    deadline: Duration,
) -> Result<(), DeliveryError> {
    let most_output = MAX_ANSWER;
    let run =
        child::Run { command, directory, environment, input, deadline, most_output, stopped: &|| false };
    child::run(run)?.success(command)?;
    Ok(())
}

/// Variables of a command.
fn environment(message: &Message) -> Vec<(&'static str, OsString)> {
    let list = |mut words: Vec<&str>| {
        words.sort_unstable();
        words.dedup();
        words.join(",")
    };
    let sources = message.items.iter().map(|item| item.source.as_str()).filter(|name| !name.is_empty());
    let severity = serde_json::to_value(message.severity).ok();
    let variables = [
        ("GABION_ID", message.id.clone()),
        ("GABION_HOST", message.host.clone()),
        ("GABION_SUBJECT", message.subject.clone()),
        ("GABION_TEXT", message.text.clone()),
        ("GABION_SEVERITY", severity.as_ref().and_then(|it| it.as_str()).unwrap_or_default().to_owned()),
        ("GABION_ALL_WELL", u8::from(message.all_well).to_string()),
        ("GABION_SOURCES", list(sources.collect())),
        (
            "GABION_EVENTS",
            list(message.items.iter().filter_map(|item| item.event).map(Topic::word).collect()),
        ),
    ];
    variables.map(|(name, value)| (name, OsString::from(value))).into()
}

/// The text of a foreign error or answer as one short line.
fn foreign(text: &str) -> String {
    line(text.lines().map(str::trim).find(|text| !text.is_empty()).unwrap_or_default())
}
