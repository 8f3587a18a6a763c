//! Settings of a daemon's configuration with their defaults, as `gabion daemon run --check` prints them.

use gabion::daemon::config::notify::{Channel, HookPoint, HooksConfig, NotifyConfig};
use gabion::daemon::config::{Config, RebuildConfig, ScrubConfig, SourceConfig, What};
use gabion::daemon::events::Severity;
use gabion::live::Access;
use gabion::report::system_path_text;
use gabion_vault::policy::{DurationText, Size};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// The settings of a daemon.
#[derive(Serialize)]
pub(super) struct Settings<'a> {
    config: String,
    socket: Option<String>,
    stop_within: String,
    api: ApiSettings<'a>,
    sources: Vec<SourceSettings<'a>>,
    notify: Vec<ReceiverSettings<'a>>,
    /// Directories and pools that are not there now.
    missing: Vec<String>,
}

/// The settings of the API, without its secrets.
#[derive(Serialize)]
struct ApiSettings<'a> {
    group: &'a str,
    listen: Option<String>,
    tls: bool,
    hosts: &'a [String],
}

/// The settings of a source.
#[derive(Serialize)]
pub(super) struct SourceSettings<'a> {
    name: &'a str,
    kind: &'static str,
    path: String,
    at: Option<String>,
    repository: Option<String>,
    policy: Option<String>,
    code: Option<&'a str>,
    changelog: Option<&'a str>,
    workers: usize,
    device: String,
    cpu_takeover: bool,
    limit: Option<String>,
    rescan: String,
    events: Option<String>,
    threads: Option<usize>,
    private: Option<bool>,
    read_only: Option<bool>,
    verify: Option<bool>,
    continue_without_changelog: Option<bool>,
    scrub: Option<ScrubSettings>,
    rebuild: Option<RebuildSettings>,
    hooks: Option<HookSettings>,
}

/// Commands before and after jobs, by their keys.
#[derive(Serialize)]
struct HookSettings {
    #[serde(flatten)]
    commands: BTreeMap<&'static str, Vec<String>>,
    timeout: String,
}

/// The settings of a receiver of notifications. Of secrets there are only the places.
#[derive(Serialize)]
pub(super) struct ReceiverSettings<'a> {
    name: &'a str,
    kind: &'static str,
    command: Option<Vec<String>>,
    address: Option<String>,
    token: Option<String>,
    ca: Option<String>,
    tls: Option<String>,
    user: Option<&'a str>,
    password: Option<String>,
    from: Option<String>,
    to: Option<Vec<String>>,
    every: Option<String>,
    events: Vec<&'static str>,
    sources: &'a BTreeSet<String>,
    least: Severity,
    collect: String,
    interval: String,
    remind: Option<String>,
    timeout: String,
}

#[derive(Serialize)]
struct ScrubSettings {
    by_policy: bool,
    every: String,
    percent: u8,
    repair: bool,
    hours: Option<String>,
    limit: Option<String>,
    run_every: String,
}

#[derive(Serialize)]
struct RebuildSettings {
    after: Option<String>,
    limit: Option<String>,
    look: String,
}

impl<'a> Settings<'a> {
    pub(super) fn new(config: &'a Config, socket: Option<&Path>, missing: Vec<String>) -> Settings<'a> {
        Settings {
            config: system_path_text(&config.path),
            socket: socket.map(system_path_text),
            stop_within: time(config.stop_within),
            api: ApiSettings {
                group: &config.api.group,
                listen: config.api.listen.map(|listen| listen.to_string()),
                tls: config.api.tls_certificate.is_some(),
                hosts: &config.api.hosts,
            },
            sources: config.sources.iter().map(SourceSettings::new).collect(),
            notify: config.receivers.iter().map(ReceiverSettings::new).collect(),
            missing,
        }
    }
}

impl<'a> SourceSettings<'a> {
    pub(super) fn new(source: &'a SourceConfig) -> SourceSettings<'a> {
        let (verify, events) = match &source.what {
            What::Watch { events, .. } => (None, Some(format!("{events:?}").to_lowercase())),
            What::Mount { verify, .. } => (Some(*verify), None),
            What::Pool { .. } => (Some(true), None),
        };
        let (show, protection) = (source.show(), &source.protection);
        SourceSettings {
            name: &source.name,
            kind: source.kind(),
            path: system_path_text(source.path()),
            at: show.map(|show| system_path_text(&show.at)),
            repository: source.repository.as_deref().map(system_path_text),
            policy: protection.policy.as_deref().map(system_path_text),
            code: protection.code.as_deref(),
            changelog: protection.changelog.as_deref(),
            workers: source.workers,
            device: source.device.to_string(),
            cpu_takeover: source.cpu_takeover,
            limit: rate(source.limit),
            rescan: time(source.rescan),
            events,
            threads: show.map(|show| show.threads),
            private: show.map(|show| show.access == Access::Owner),
            read_only: show.map(|show| show.read_only),
            verify,
            continue_without_changelog: show.map(|show| show.continue_without_changelog),
            scrub: source.scrub.as_ref().map(ScrubSettings::new),
            rebuild: source.rebuild().map(RebuildSettings::new),
            hooks: HookSettings::new(&source.hooks),
        }
    }
}

impl HookSettings {
    fn new(hooks: &HooksConfig) -> Option<HookSettings> {
        let commands =
            HookPoint::ALL.into_iter().filter_map(|point| Some((point.word(), words(hooks.command(point)?))));
        let commands: BTreeMap<&'static str, Vec<String>> = commands.collect();
        (!commands.is_empty()).then(|| HookSettings { commands, timeout: time(hooks.timeout) })
    }
}

impl<'a> ReceiverSettings<'a> {
    pub(super) fn new(receiver: &'a NotifyConfig) -> ReceiverSettings<'a> {
        let endpoint = match &receiver.channel {
            Channel::Webhook(to) | Channel::Ntfy(to) | Channel::Heartbeat(to, _) => Some(to),
            _ => None,
        };
        let smtp = match &receiver.channel {
            Channel::Smtp(smtp, _) => Some(smtp),
            _ => None,
        };
        let (command, addresses) = match &receiver.channel {
            Channel::Command(command) => (Some(command), None),
            Channel::Sendmail(command, addresses) => (Some(command), Some(addresses)),
            Channel::Smtp(_, addresses) => (None, Some(addresses)),
            _ => (None, None),
        };
        let every = match receiver.channel {
            Channel::Heartbeat(_, every) => Some(time(every)),
            _ => None,
        };
        let server = smtp.map(|smtp| format!("{}:{}", smtp.host, smtp.port));
        let ca = endpoint.and_then(|to| to.ca.as_deref()).or(smtp.and_then(|smtp| smtp.ca.as_deref()));
        let login = smtp.and_then(|smtp| smtp.login.as_ref());
        ReceiverSettings {
            name: &receiver.name,
            kind: receiver.channel.word(),
            command: command.map(|command| words(command)),
            address: endpoint.map(|to| to.address.to_string()).or(server),
            token: endpoint.and_then(|to| to.token.as_ref()).map(ToString::to_string),
            ca: ca.map(system_path_text),
            tls: smtp.map(|smtp| format!("{:?}", smtp.tls).to_lowercase()),
            user: login.map(|(user, _)| user.as_str()),
            password: login.map(|(_, password)| password.to_string()),
            from: addresses.map(|addresses| addresses.from.to_string()),
            to: addresses.map(|addresses| addresses.to.iter().map(ToString::to_string).collect()),
            every,
            events: receiver.topics.iter().map(|topic| topic.word()).collect(),
            sources: &receiver.sources,
            least: receiver.least,
            collect: time(receiver.collect),
            interval: time(receiver.interval),
            remind: receiver.remind.map(time),
            timeout: time(receiver.timeout),
        }
    }
}

fn words(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| system_path_text(Path::new(word))).collect()
}

impl ScrubSettings {
    fn new(scrub: &ScrubConfig) -> ScrubSettings {
        ScrubSettings {
            by_policy: scrub.by_policy,
            every: time(scrub.rhythm.every),
            percent: scrub.rhythm.percent,
            repair: scrub.repair,
            hours: scrub.rhythm.hours.map(|hours| hours.to_string()),
            limit: rate(scrub.limit),
            run_every: time(scrub.rhythm.interval()),
        }
    }
}

impl RebuildSettings {
    fn new(rebuild: &RebuildConfig) -> RebuildSettings {
        let (after, limit, look) = (rebuild.after.map(time), rate(rebuild.limit), time(rebuild.look));
        RebuildSettings { after, limit, look }
    }
}

fn rate(limit: Option<u64>) -> Option<String> {
    limit.map(|limit| format!("{}/s", Size(limit)))
}

fn time(span: Duration) -> String {
    DurationText(span).to_string()
}
