//! Sections `[[notify]]` and `[hooks]` of the configuration.

use super::{ConfigError, Reader};
use crate::daemon::events::Severity;
use crate::daemon::notifications::topic::Topic;
use crate::daemon::secret::SecretSource;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::policy::DurationText;
use gabion_vault::world::SECOND;
use lettre::message::Mailbox;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use ureq::http::Uri;

/// Most receivers of notifications; each has a thread while it delivers.
const MAX_RECEIVERS: usize = 32;

/// Defaults.
const COLLECT: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_secs(300);
const REMIND: Duration = Duration::from_secs(24 * 3600);
const TIMEOUT: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(300);
const HOOK_TIMEOUT: Duration = Duration::from_secs(600);

/// Longest time that a delivery or a hook may take.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// A receiver of notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyConfig {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub channel: Channel,
    /// Only these topics; all if empty.
    pub topics: BTreeSet<Topic>,
    /// Only these sources; all if empty.
    pub sources: BTreeSet<String>,
    /// Only what is at least this severe.
    pub least: Severity,
    /// How long events are collected before a message is composed.
    pub collect: Duration,
    /// Shortest time between two messages.
    pub interval: Duration,
    /// Time after which a state that lasts is told again; never if `None`.
    pub remind: Option<Duration>,
    /// Deadline of a delivery.
    pub timeout: Duration,
}

/// The way to a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// A command that gets the message as JSON.
    Command(Vec<OsString>),
    /// A POST request with the message as JSON.
    Webhook(Endpoint),
    /// A topic of an ntfy server.
    Ntfy(Endpoint),
    /// A mail server.
    Smtp(Smtp, Addresses),
    /// A command that gets the message as an e-mail.
    Sendmail(Vec<OsString>, Addresses),
    /// A request at each interval while all is well; another one when it is not.
    Heartbeat(Endpoint, Duration),
}

impl Channel {
    /// Its name in the configuration.
    pub fn word(&self) -> &'static str {
        match self {
            Channel::Command(_) => "command",
            Channel::Webhook(_) => "webhook",
            Channel::Ntfy(_) => "ntfy",
            Channel::Smtp(..) => "smtp",
            Channel::Sendmail(..) => "sendmail",
            Channel::Heartbeat(..) => "heartbeat",
        }
    }

    /// The places of its secrets.
    pub fn secrets(&self) -> Vec<&SecretSource> {
        match self {
            Channel::Command(_) | Channel::Sendmail(..) => Vec::new(),
            Channel::Webhook(to) | Channel::Ntfy(to) | Channel::Heartbeat(to, _) => {
                let address = match &to.address {
                    Address::Secret(source) => Some(source),
                    Address::Plain(_) => None,
                };
                address.into_iter().chain(&to.token).collect()
            }
            Channel::Smtp(smtp, _) => smtp.login.iter().map(|(_, password)| password).collect(),
        }
    }
}

/// An address of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: Address,
    /// Sent in the header `Authorization`.
    pub token: Option<SecretSource>,
    /// Certificates that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
}

/// An address of HTTP, or the place of one: the path of an address is often a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// The address.
    Plain(String),
    /// Where it is read.
    Secret(SecretSource),
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Without its path, which may be a secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Secret(source) => write!(f, "{source}"),
            Address::Plain(text) => match usable_address(text) {
                Ok(uri) => write!(
                    f,
                    "{}://{}/…",
                    uri.scheme_str().unwrap_or_default(),
                    uri.authority().map_or("", |authority| authority.as_str())
                ),
                Err(_) => f.write_str("…"),
            },
        }
    }
}

/// A mail server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Smtp {
    /// Its name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Encryption.
    pub tls: MailTls,
    /// User and password.
    pub login: Option<(String, SecretSource)>,
    /// Certificates that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
}

/// Encryption of the connection to a mail server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MailTls {
    /// From the start, port 465.
    Tls,
    /// After a command in plain text, port 587. Nothing is sent if the server refuses.
    Starttls,
    /// None: for servers on this host.
    None,
}

/// Sender and receivers of an e-mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The sender.
    pub from: Mailbox,
    /// The receivers.
    pub to: Vec<Mailbox>,
}

/// Commands before and after jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HooksConfig {
    /// By [`HookPoint`].
    commands: [Option<Vec<OsString>>; 6],
    /// Time after which one is killed.
    pub timeout: Duration,
}

impl Default for HooksConfig {
    fn default() -> HooksConfig {
        HooksConfig { commands: Default::default(), timeout: HOOK_TIMEOUT }
    }
}

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    /// Before a scrub.
    BeforeScrub,
    /// After a scrub.
    AfterScrub,
    /// Before protecting on request.
    BeforeProtect,
    /// After protecting on request.
    AfterProtect,
    /// Before a rebuild.
    BeforeRebuild,
    /// After a rebuild.
    AfterRebuild,
}

impl HookPoint {
    /// All of them.
    pub const ALL: [HookPoint; 6] = [
        HookPoint::BeforeScrub,
        HookPoint::AfterScrub,
        HookPoint::BeforeProtect,
        HookPoint::AfterProtect,
        HookPoint::BeforeRebuild,
        HookPoint::AfterRebuild,
    ];

    /// Its key in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            HookPoint::BeforeScrub => "before_scrub",
            HookPoint::AfterScrub => "after_scrub",
            HookPoint::BeforeProtect => "before_protect",
            HookPoint::AfterProtect => "after_protect",
            HookPoint::BeforeRebuild => "before_rebuild",
            HookPoint::AfterRebuild => "after_rebuild",
        }
    }
}

impl HooksConfig {
    /// The command of a hook.
    pub fn command(&self, point: HookPoint) -> Option<&[OsString]> {
        self.commands[point as usize].as_deref()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NotifyText {
    name: Spanned<String>,
    command: Option<Spanned<Vec<String>>>,
    webhook: Option<Spanned<String>>,
    ntfy: Option<Spanned<String>>,
    heartbeat: Option<Spanned<String>>,
    smtp: Option<Spanned<String>>,
    sendmail: Option<Spanned<Vec<String>>>,
    token: Option<Spanned<String>>,
    ca: Option<Spanned<PathBuf>>,
    port: Option<Spanned<u16>>,
    tls: Option<Spanned<MailTls>>,
    user: Option<Spanned<String>>,
    password: Option<Spanned<String>>,
    from: Option<Spanned<String>>,
    to: Option<Spanned<Vec<String>>>,
    every: Option<Spanned<DurationText>>,
    events: Option<Spanned<Vec<String>>>,
    sources: Option<Spanned<BTreeSet<String>>>,
    least: Option<Severity>,
    collect: Option<DurationText>,
    interval: Option<DurationText>,
    remind: Option<DurationText>,
    timeout: Option<Spanned<DurationText>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct HooksText {
    before_scrub: Option<Spanned<Vec<String>>>,
    after_scrub: Option<Spanned<Vec<String>>>,
    before_protect: Option<Spanned<Vec<String>>>,
    after_protect: Option<Spanned<Vec<String>>>,
    before_rebuild: Option<Spanned<Vec<String>>>,
    after_rebuild: Option<Spanned<Vec<String>>>,
    timeout: Option<Spanned<DurationText>>,
}

impl Reader<'_> {
    /// The receivers of notifications.
    pub(super) fn receivers(
        &self,
        texts: Vec<Spanned<NotifyText>>,
        sources: &BTreeSet<String>,
    ) -> Result<Vec<NotifyConfig>, ConfigError> {
        if texts.len() > MAX_RECEIVERS {
            return Err(self.wrong(0, format!("there are more than {MAX_RECEIVERS} [[notify]]s")));
        }
        let mut names = BTreeSet::new();
        let mut receivers = Vec::new();
        for text in texts {
            let at = text.get_ref().name.span().start;
            let receiver = self.receiver(text, sources)?;
            if !names.insert(receiver.name.clone()) {
                return Err(self.wrong(at, format!("there are two receivers {:?}", receiver.name)));
            }
            receivers.push(receiver);
        }
        Ok(receivers)
    }

    fn receiver(
        &self,
        text: Spanned<NotifyText>,
        sources: &BTreeSet<String>,
    ) -> Result<NotifyConfig, ConfigError> {
        let begins = text.span().start;
        let text = text.into_inner();
        let name = self.plain_name(&text.name)?;
        let channel = self.channel(&text, begins)?;
        let mut topics = BTreeSet::new();
        if let Some(events) = &text.events {
            for word in events.get_ref() {
                let topic = Topic::ALL.into_iter().find(|topic| topic.word() == word);
                topics.insert(topic.ok_or_else(|| {
                    let known: Vec<&str> = Topic::ALL.iter().map(|topic| topic.word()).collect();
                    let why = format!("events: there is no {word:?}; there are {}", known.join(", "));
                    self.wrong(events.span().start, why)
                })?);
            }
        }
        if let Some(named) = &text.sources
            && let Some(unknown) = named.get_ref().iter().find(|name| !sources.contains(*name))
        {
            return Err(self.wrong(named.span().start, format!("there is no source {unknown:?}")));
        }
        Ok(NotifyConfig {
            name,
            channel,
            topics,
            sources: text.sources.map(Spanned::into_inner).unwrap_or_default(),
            least: text.least.unwrap_or(Severity::Info),
            collect: text.collect.map_or(COLLECT, |time| time.0),
            interval: text.interval.map_or(INTERVAL, |time| time.0),
            remind: Some(text.remind.map_or(REMIND, |time| time.0)).filter(|&time| time > Duration::ZERO),
            timeout: self.timeout(text.timeout.as_ref(), TIMEOUT)?,
        })
    }

    fn channel(&self, text: &NotifyText, begins: usize) -> Result<Channel, ConfigError> {
        let channel = match text {
            NotifyText { command: Some(command), webhook: None, ntfy: None, heartbeat: None, .. } => {
                Channel::Command(self.command(command)?)
            }
            NotifyText { command: None, webhook: Some(address), ntfy: None, heartbeat: None, .. } => {
                Channel::Webhook(self.endpoint(text, address)?)
            }
            NotifyText { command: None, webhook: None, ntfy: Some(address), heartbeat: None, .. } => {
                Channel::Ntfy(self.endpoint(text, address)?)
            }
            NotifyText { command: None, webhook: None, ntfy: None, heartbeat: Some(address), .. } => {
                let every = text.every.as_ref().map_or(HEARTBEAT, |every| every.get_ref().0);
                Channel::Heartbeat(self.endpoint(text, address)?, every.max(SECOND))
            }
            NotifyText { command: None, webhook: None, ntfy: None, heartbeat: None, .. } => {
                match (&text.smtp, &text.sendmail) {
                    (Some(host), None) => {
                        Channel::Smtp(self.smtp(text, host)?, self.addresses(text, begins)?)
                    }
                    (None, Some(command)) => {
                        Channel::Sendmail(self.command(command)?, self.addresses(text, begins)?)
                    }
                    _ => return Err(self.one_of(begins)),
                }
            }
            _ => return Err(self.one_of(begins)),
        };
        let has_mail = matches!(channel, Channel::Smtp(..) | Channel::Sendmail(..));
        let has_endpoint = matches!(channel, Channel::Webhook(_) | Channel::Ntfy(_) | Channel::Heartbeat(..));
        let is_smtp = matches!(channel, Channel::Smtp(..));
        let is_heartbeat = matches!(channel, Channel::Heartbeat(..));
        if !has_mail && (text.smtp.is_some() || text.sendmail.is_some()) {
            return Err(self.one_of(begins));
        }
        let span = |value: Option<std::ops::Range<usize>>| value.map(|span| span.start);
        for (key, at, applies) in [
            ("token", span(text.token.as_ref().map(Spanned::span)), has_endpoint),
            ("ca", span(text.ca.as_ref().map(Spanned::span)), has_endpoint || is_smtp),
            ("port", span(text.port.as_ref().map(Spanned::span)), is_smtp),
            ("tls", span(text.tls.as_ref().map(Spanned::span)), is_smtp),
            ("user", span(text.user.as_ref().map(Spanned::span)), is_smtp),
            ("password", span(text.password.as_ref().map(Spanned::span)), is_smtp),
            ("from", span(text.from.as_ref().map(Spanned::span)), has_mail),
            ("to", span(text.to.as_ref().map(Spanned::span)), has_mail),
            ("every", span(text.every.as_ref().map(Spanned::span)), is_heartbeat),
        ] {
            if let Some(at) = at.filter(|_| !applies) {
                return Err(self.wrong(at, format!("{key} does not apply to {}", channel.word())));
            }
        }
        Ok(channel)
    }

    fn one_of(&self, begins: usize) -> ConfigError {
        let why = "a [[notify]] has one of: command = [...], webhook = URL, ntfy = URL, smtp = HOST, sendmail = \
                   [...], heartbeat = URL";
        self.wrong(begins, why.to_owned())
    }

    /// A command; its program is looked up in `PATH`, or below the directory of the configuration if it has a slash.
    fn command(&self, text: &Spanned<Vec<String>>) -> Result<Vec<OsString>, ConfigError> {
        let words = text.get_ref();
        let Some(program) = words.first().filter(|program| !program.is_empty()) else {
            return Err(self.wrong(text.span().start, "the command is empty".to_owned()));
        };
        if words.iter().any(|word| word.contains('\0')) {
            return Err(self.wrong(text.span().start, "the command has a zero byte".to_owned()));
        }
        self.check_owner(text.span().start)?;
        let program = match program.contains('/') {
            true => self.base.join(program).into_os_string(),
            false => OsString::from(program),
        };
        Ok(std::iter::once(program).chain(words[1..].iter().map(OsString::from)).collect())
    }

    /// Refuses commands in a file that other users can change: they would run as the daemon's user.
    fn check_owner(&self, at: usize) -> Result<(), ConfigError> {
        let Ok(found) = std::fs::metadata(self.path) else { return Ok(()) };
        let user = rustix::process::geteuid().as_raw();
        let why = match () {
            () if found.mode() & 0o002 != 0 => "all users can write it",
            () if found.uid() != 0 && found.uid() != user => "it belongs to another user",
            () => return Ok(()),
        };
        let path = DisplayPath::path(self.path);
        Err(self.wrong(at, format!("commands are not taken from {path}, because {why}")))
    }

    fn endpoint(&self, text: &NotifyText, address: &Spanned<String>) -> Result<Endpoint, ConfigError> {
        let at = address.span().start;
        let token = text.token.as_ref().map(|token| self.secret("token", token)).transpose()?;
        let parsed = match SecretSource::parse(address.get_ref(), self.base) {
            Ok(source) => Address::Secret(source),
            Err(_) => {
                let uri = usable_address(address.get_ref()).map_err(|why| self.wrong(at, why))?;
                check_encrypted(&uri, token.is_some()).map_err(|why| self.wrong(at, why))?;
                Address::Plain(address.get_ref().clone())
            }
        };
        Ok(Endpoint { address: parsed, token, ca: self.ca(text) })
    }

    fn ca(&self, text: &NotifyText) -> Option<PathBuf> {
        text.ca.as_ref().map(|path| self.base.join(path.get_ref()))
    }

    fn secret(&self, key: &str, text: &Spanned<String>) -> Result<SecretSource, ConfigError> {
        SecretSource::parse(text.get_ref(), self.base)
            .map_err(|error| self.wrong(text.span().start, format!("{key}: {error}")))
    }

    fn smtp(&self, text: &NotifyText, host: &Spanned<String>) -> Result<Smtp, ConfigError> {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || ".-:_".contains(letter);
        let name = host.get_ref();
        if name.is_empty() || !name.chars().all(allowed) {
            return Err(self.wrong(host.span().start, format!("{name:?} is no name of a host")));
        }
        let tls = text.tls.as_ref().map_or(MailTls::Starttls, |tls| *tls.get_ref());
        let usual = match tls {
            MailTls::Tls => 465,
            MailTls::Starttls => 587,
            MailTls::None => 25,
        };
        let login = match (&text.user, &text.password) {
            (Some(user), Some(password)) => {
                if tls == MailTls::None && !is_loopback(name) {
                    let why = "a password is not sent without encryption: tls = \"tls\" or \"starttls\"";
                    return Err(self.wrong(password.span().start, why.to_owned()));
                }
                Some((user.get_ref().clone(), self.secret("password", password)?))
            }
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => {
                let why = "user and password belong together".to_owned();
                return Err(self.wrong(one.span().start, why));
            }
        };
        let port = text.port.as_ref().map_or(usual, |port| *port.get_ref());
        Ok(Smtp { host: name.clone(), port, tls, login, ca: self.ca(text) })
    }

    fn addresses(&self, text: &NotifyText, begins: usize) -> Result<Addresses, ConfigError> {
        let missing = |key: &str| self.wrong(begins, format!("{key} is missing: an e-mail address"));
        let parse = |text: &str, at| {
            let parsed = text.parse::<Mailbox>();
            let why =
                |error: &dyn fmt::Display| self.wrong(at, format!("{text:?} is no e-mail address: {error}"));
            // The parser of addresses accepts quoted names of any content.
            match parsed {
                Ok(_) if text.chars().any(char::is_control) => Err(why(&"it has control characters")),
                Ok(address) => Ok(address),
                Err(error) => Err(why(&error)),
            }
        };
        let from = text.from.as_ref().ok_or_else(|| missing("from"))?;
        let to = text.to.as_ref().filter(|to| !to.get_ref().is_empty()).ok_or_else(|| missing("to"))?;
        let to =
            to.get_ref().iter().map(|one| parse(one, text.to.as_ref().map_or(begins, |it| it.span().start)));
        Ok(Addresses { from: parse(from.get_ref(), from.span().start)?, to: to.collect::<Result<_, _>>()? })
    }

    fn timeout(
        &self,
        text: Option<&Spanned<DurationText>>,
        usual: Duration,
    ) -> Result<Duration, ConfigError> {
        let Some(text) = text else { return Ok(usual) };
        match text.get_ref().0 {
            time if (SECOND..=LONGEST_TIMEOUT).contains(&time) => Ok(time),
            _ => Err(self.wrong(text.span().start, "timeout is from 1s to 24h".to_owned())),
        }
    }

    /// Hooks; what a source does not set is as for all sources.
    pub(super) fn hooks(&self, text: &HooksText, all: &HooksConfig) -> Result<HooksConfig, ConfigError> {
        let given = [
            &text.before_scrub,
            &text.after_scrub,
            &text.before_protect,
            &text.after_protect,
            &text.before_rebuild,
            &text.after_rebuild,
        ];
        let mut hooks = all.clone();
        for (command, given) in hooks.commands.iter_mut().zip(given) {
            match given {
                // An empty command turns one off that is set for all sources.
                Some(given) if given.get_ref().is_empty() => *command = None,
                Some(given) => *command = Some(self.command(given)?),
                None => {}
            }
        }
        hooks.timeout = self.timeout(text.timeout.as_ref(), all.timeout)?;
        Ok(hooks)
    }
}

/// Checks an address of HTTP. The error does not repeat it.
pub(crate) fn usable_address(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|_| "it is no address: write https://HOST/PATH".to_owned())?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            Err("the address has a user or password: use token = \"file:PATH\"".to_owned())
        }
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("write https://HOST/PATH, or file:PATH or env:NAME of a secret address".to_owned()),
    }
}

/// Refuses to send a token without encryption to another host.
pub(crate) fn check_encrypted(uri: &Uri, has_token: bool) -> Result<(), String> {
    match uri.scheme_str() == Some("http") && has_token && !uri.host().is_some_and(is_loopback) {
        true => Err("a token is not sent without encryption: use https".to_owned()),
        false => Ok(()),
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The directory in which commands run.
pub(crate) fn directory(config: &Path) -> &Path {
    config.parent().unwrap_or(Path::new("/"))
}
