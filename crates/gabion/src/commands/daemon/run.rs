//! `gabion daemon run`.

use super::Place;
use super::settings::{ReceiverSettings, Settings, SourceSettings};
use crate::commands::device::Homes;
use crate::commands::pool::Names;
use crate::commands::vault::events::EventPrinter;
use crate::output::print_json;
use anyhow::Context;
use gabion::daemon::config::{Config, SourceConfig, What};
use gabion::daemon::notifications::check_secrets;
use gabion::daemon::notify::Supervisor;
use gabion::daemon::{Environment, LogEntry, Tell, run};
use gabion::exit::Outcome;
use gabion::privileges;
use gabion_platform::display_path::DisplayPath;
use gabion_platform::sync;
use gabion_vault::policy::DurationText;
use gabion_vault::storage::pool::{Options, Pool, Registry};
use gabion_vault::vault::DEFAULT_CODE;
use serde::Serialize;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

const EXAMPLES: &str = "\
Examples:
  gabion daemon run /etc/gabion/daemon.toml --check
  gabion daemon run /etc/gabion/daemon.toml
  gabion daemon run daemon.toml --socket /tmp/gabion.sock --json

Each source has a thread of its own. A source that fails, for example because its directory is missing, is reported and \
started again after pauses of up to five minutes; the others continue. SIGTERM and SIGINT stop the daemon: running jobs are \
finished and mounts unmounted; the next run continues with the rest. SIGHUP reloads the configuration. \
Under systemd it reports readiness and status (Type=notify) and feeds the watchdog (WatchdogSec).";

/// Arguments of `gabion daemon run`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The configuration file; docs/reference/daemon.toml is a commented example
    config: PathBuf,
    /// Check the configuration and its policies, print the settings, and exit
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    names: Names,
    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Print errors and warnings only
    #[arg(long, short)]
    quiet: bool,
    /// Where speeds that `device = "auto"` measured, and compiled kernels, are kept [default: ~/.cache/gabion]
    #[arg(long, value_name = "DIR", env = "GABION_DEVICE_CACHE")]
    device_cache: Option<PathBuf>,
    #[command(flatten)]
    homes: Homes,
    #[command(flatten)]
    state: StateArgs,
    #[arg(long, env = "NOTIFY_SOCKET", hide = true)]
    notify_socket: Option<PathBuf>,
    #[arg(long, env = "WATCHDOG_USEC", hide = true)]
    watchdog_usec: Option<u64>,
    #[arg(long, env = "WATCHDOG_PID", hide = true)]
    watchdog_pid: Option<u32>,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let config = Config::load(&self.config)?;
        let named_socket = self.place.socket.as_ref().map(std::path::absolute).transpose()?;
        if self.check {
            return self.check(&config, named_socket);
        }
        privileges::drop_unneeded().context("giving up privileges")?;
        let (stop, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        signal_hook::flag::register(SIGHUP, reload.clone())?;
        let supervisor = Supervisor {
            socket: self.notify_socket.clone(),
            watchdog: self.watchdog_usec,
            watched: self.watchdog_pid,
        };
        let (socket, registry) = (self.place.path(), self.names.registry());
        let tell = printers(self.json, self.quiet);
        let device_cache = self.device_cache.clone().or_else(|| self.homes.cache());
        let state = self.state.path();
        run(
            config,
            Environment {
                named_socket,
                socket,
                registry,
                supervisor,
                stop,
                reload,
                tell,
                device_cache,
                state,
            },
        )?;
        Ok(Outcome::Fine)
    }

    /// Checks the policies, and prints the settings.
    fn check(&self, config: &Config, named_socket: Option<PathBuf>) -> anyhow::Result<Outcome> {
        for source in &config.sources {
            if let Some(text) = source.protection.policy_text()? {
                source.protection.check_policy(&text, &DEFAULT_CODE.parse()?)?;
            }
        }
        gabion::daemon::api::check(&config.api).context("[api]")?;
        let unusable = check_secrets(config);
        anyhow::ensure!(unusable.is_empty(), "{}", unusable.join("; "));
        let registry = config.pools.clone().map(Registry::new).or_else(|| self.names.registry());
        let missing: Vec<String> =
            config.sources.iter().flat_map(|source| missing(source, registry.as_ref())).collect();
        let outcome = if missing.is_empty() { Outcome::Fine } else { Outcome::Found };
        for problem in &missing {
            errln!("gabion: warning: {problem}");
        }
        let socket = named_socket.or_else(|| config.socket.clone()).or_else(|| self.place.path());
        if self.json {
            print_json(&Settings::new(config, socket.as_deref(), missing));
            return Ok(outcome);
        }
        let place =
            socket.map_or_else(|| "nowhere".to_owned(), |socket| DisplayPath::path(&socket).to_string());
        outln!("socket {place}, stops within {}", DurationText(config.stop_within));
        if let Some(listen) = config.api.listen {
            let tls = if config.api.tls_certificate.is_some() { "with TLS" } else { "without TLS" };
            outln!("API at {listen}, {tls}");
        }
        if config.sources.is_empty() {
            outln!("no sources: the daemon waits until the configuration is reloaded with one");
        }
        for source in &config.sources {
            outln!("{}: {}", source.name, source.kind());
            print_settings(&SourceSettings::new(source))?;
        }
        for receiver in &config.receivers {
            outln!("notify {}: {}", receiver.name, receiver.channel.word());
            print_settings(&ReceiverSettings::new(receiver))?;
        }
        Ok(outcome)
    }
}

/// Directories that a source needs and that are not there now. The daemon waits for them; a typing mistake never comes.
fn missing(source: &SourceConfig, registry: Option<&Registry>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut needs = |path: &Path, what: &str| {
        let why = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => return,
            Ok(_) => "it is not a directory".to_owned(),
            Err(error) => error.to_string(),
        };
        problems.push(format!("{}: {what} {}: {why}", source.name, DisplayPath::path(path)));
    };
    match &source.what {
        What::Watch { path, .. } => needs(path, "directory"),
        What::Mount { path, .. } => needs(path, "directory"),
        What::Pool { .. } => {}
    }
    if let Some(show) = source.show() {
        needs(&show.at, "mount point");
    }
    // A repository is created, but not the directories above it.
    if let Some(parent) = source.repository.as_deref().and_then(Path::parent) {
        needs(parent, "directory of the repository");
    }
    if let What::Pool { pool, base, .. } = &source.what
        && let Err(error) = Pool::open_from(base, pool.as_os_str(), registry, Options::default())
    {
        problems.push(format!("{}: pool {}: {error}", source.name, DisplayPath::path(pool)));
    }
    problems
}

/// Prints settings, one per line, without those that are not set.
fn print_settings(settings: &impl Serialize) -> anyhow::Result<()> {
    for (key, value) in serde_json::to_value(settings)?.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            _ if key == "name" || key == "kind" => {}
            Value::String(text) => outln!("  {key} = {text}"),
            other => outln!("  {key} = {other}"),
        }
    }
    Ok(())
}

/// Where the daemon keeps what outlasts it.
#[derive(clap::Args)]
struct StateArgs {
    /// Where the state of notifications is kept [default: /var/lib/gabion for root, otherwise ~/.local/state/gabion]
    #[arg(long, value_name = "DIR", env = "STATE_DIRECTORY")]
    state: Option<PathBuf>,
    #[arg(long = "state-home", env = "XDG_STATE_HOME", hide = true)]
    state_home: Option<PathBuf>,
    #[arg(long = "home-of-state", env = "HOME", hide = true)]
    home_of_state: Option<PathBuf>,
}

impl StateArgs {
    /// The given or default directory.
    fn path(&self) -> Option<PathBuf> {
        let own = self.state_home.clone().filter(|directory| directory.is_absolute());
        let usual = match rustix::process::geteuid().is_root() {
            true => Some(PathBuf::from("/var/lib/gabion")),
            false => own
                .or_else(|| self.home_of_state.as_ref().map(|home| home.join(".local/state")))
                .map(|directory| directory.join("gabion")),
        };
        self.state.clone().or(usual)
    }
}

/// Prints events, one printer per source.
fn printers(json: bool, quiet: bool) -> Tell {
    let printers: Mutex<BTreeMap<String, Arc<EventPrinter>>> = Mutex::default();
    Arc::new(move |name, event| {
        let printer = {
            let mut printers = sync::lock(&printers);
            let new = || Arc::new(EventPrinter::of(name, json, quiet));
            Arc::clone(printers.entry(name.to_owned()).or_insert_with(new))
        };
        match event {
            LogEntry::Notice(notice) => printer.notice(notice),
            LogEntry::Message(text) => printer.message(text),
            LogEntry::Warning(text) => printer.warning(text),
        }
    })
}
