//! `gabion status --format prometheus`: for the textfile collector of the node exporter.

use gabion::exposition::{Exposition, Kind};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::catalogue::State;
use gabion_vault::status::Status;
use gabion_vault::storage::TargetState;
use gabion_vault::vault::Vault;
use gabion_vault::world::Timestamp;
use std::time::Duration;

/// Seconds since 1970.
fn seconds(time: Timestamp) -> f64 {
    time.nanoseconds() as f64 / 1e9
}

/// The metrics of a status, labelled with the root of the tree.
pub(super) fn text(vault: &Vault, status: &Status) -> String {
    let root = DisplayPath::path(&vault.root).to_string();
    let now = vault.clock.now();
    let labels = [("root", root.as_str())];
    let mut out = Exposition::default();
    let states = [State::Protected, State::Degraded, State::Damaged, State::Lost];
    for (name, help, of) in [
        ("gabion_files", "Files by state.", (|it| it.0) as fn((u64, u64)) -> u64),
        ("gabion_bytes", "Bytes of files by state.", |it| it.1),
    ] {
        let mut family = out.family(name, Kind::Gauge, help);
        for state in states {
            let value = of(status.states.get(&state).copied().unwrap_or_default());
            family.sample(&[("root", &root), ("state", state.word())], value as f64);
        }
    }
    let mut gauge = |name, help, value: Option<f64>| {
        if let Some(value) = value {
            out.family(name, Kind::Gauge, help).sample(&labels, value);
        }
    };
    gauge("gabion_pending_files", "Changed files that are not protected yet.", Some(status.pending.0 as f64));
    gauge(
        "gabion_pending_bytes",
        "Bytes of changed files that are not protected yet.",
        Some(status.pending.1 as f64),
    );
    gauge("gabion_pending_changes", "Changes in the changelog.", Some(status.queued as f64));
    let exposure = status.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest));
    gauge(
        "gabion_exposure_seconds",
        "Age of the oldest change that is not protected yet.",
        Some(exposure.as_secs_f64()),
    );
    gauge(
        "gabion_scrub_overdue_files",
        "Files whose scrub is overdue by the policy.",
        Some(status.overdue.files as f64),
    );
    gauge(
        "gabion_never_scrubbed_files",
        "Files that were never scrubbed.",
        Some(status.never_scrubbed as f64),
    );
    gauge("gabion_last_scrub_timestamp_seconds", "Last scrub, since 1970.", status.last_scrub.map(seconds));
    gauge(
        "gabion_last_protect_timestamp_seconds",
        "Last protect, since 1970.",
        status.last_protect.map(seconds),
    );
    gauge("gabion_redundancy_bytes", "Bytes of redundancy files.", Some(status.redundancy_bytes as f64));
    let mut targets = out.family("gabion_target_up", Kind::Gauge, "1 if the target answers.");
    for target in &status.targets {
        let name = DisplayPath::bytes(&target.name).to_string();
        let up = f64::from(u8::from(target.state != TargetState::Offline));
        targets.sample(&[("root", &root), ("target", &name)], up);
    }
    out.family("gabion_status_timestamp_seconds", Kind::Gauge, "Time of this status, since 1970.")
        .sample(&labels, seconds(now));
    out.finish()
}
