//! Settings of a daemon's configuration with their defaults, as `gabion daemon run --check` prints them.

use gabion::daemon::config::{Config, RebuildConfig, ScrubConfig, SourceConfig, What};
use gabion::live::Access;
use gabion::report::system_path_text;
use gabion_vault::policy::{Duration, Size};
use serde::Serialize;
use std::path::Path;

/// The settings of a daemon.
#[derive(Serialize)]
pub(super) struct Settings<'a> {
    config: String,
    socket: Option<String>,
    stop_within: String,
    api: ApiSettings<'a>,
    sources: Vec<SourceSettings<'a>>,
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
    pub(super) fn new(config: &'a Config, socket: Option<&Path>) -> Settings<'a> {
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
        }
    }
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

fn time(nanos: i64) -> String {
    Duration(nanos).to_string()
}
