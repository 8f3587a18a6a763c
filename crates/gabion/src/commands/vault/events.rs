//! Events of `watch`, `mount` and `daemon run`: as lines of text with a status line, or as JSON.

use crate::commands::vault::protect::reason;
use crate::commands::vault::{FIRST, ranges};
use crate::output::{ago, bytes, count, files};
use gabion::report::{self, Event, LiveStatus, SourceEvent};
use gabion::shell::ApproveCommand;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::monitor::{Notice, Scan, Status};
use gabion_vault::worker::Done;
use gabion_vault::world::Timestamp;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// Prints events.
pub(in crate::commands) struct EventPrinter {
    json: bool,
    quiet: bool,
    /// Name of the source, in a daemon.
    name: Option<String>,
    /// Approves what is held.
    approve: ApproveCommand,
    /// Status line, if standard error is a terminal.
    line: Option<ProgressBar>,
}

impl EventPrinter {
    pub(in crate::commands) fn new(approve: ApproveCommand, json: bool, quiet: bool) -> EventPrinter {
        let visible = !json && !quiet && stderr().is_terminal();
        let line = visible.then(|| {
            let line = ProgressBar::new_spinner();
            line.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
            let style = ProgressStyle::with_template("{spinner} {wide_msg}");
            line.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        EventPrinter { json, quiet, name: None, approve, line }
    }

    /// For one source of a daemon; its name precedes each line.
    pub(in crate::commands) fn of(name: &str, json: bool, quiet: bool) -> EventPrinter {
        let approve = ApproveCommand::of_source(name);
        let name = Some(name).filter(|name| !name.is_empty()).map(str::to_owned);
        EventPrinter { json, quiet, name, approve, line: None }
    }

    /// Prints a message.
    pub(in crate::commands) fn message(&self, text: &str) {
        match self.json {
            true => self.print_json(&Event::Message { text: text.to_owned() }),
            false => self.print_unless_quiet(text),
        }
    }

    /// Prints a warning.
    pub(in crate::commands) fn warning(&self, text: &str) {
        match self.json {
            true => self.print_json(&Event::Warning { text: text.to_owned() }),
            false => self.print(&format!("WARNING: {text}")),
        }
    }

    fn print_json(&self, event: &Event) {
        self.write(&report::document(&SourceEvent { event, source_name: self.name.as_deref() }));
    }

    fn print(&self, text: &str) {
        match &self.name {
            Some(name) => self.write(&format!("{name}: {text}")),
            None => self.write(text),
        }
    }

    fn write(&self, text: &str) {
        match &self.line {
            Some(line) => line.suspend(|| outln!("{text}")),
            None => outln!("{text}"),
        }
    }

    fn print_unless_quiet(&self, text: &str) {
        if !self.quiet {
            self.print(text);
        }
    }

    /// Prints an event of the monitor.
    pub(in crate::commands) fn notice(&self, notice: &Notice) {
        match self.json {
            true => self.print_json(&Event::new(notice)),
            false => self.print_notice(notice),
        }
    }

    fn print_notice(&self, notice: &Notice) {
        match notice {
            Notice::WatchStarted { source, instead, mounts, unwatched } => {
                self.print_unless_quiet(&format!("watching with {source}"));
                if let Some(why) = instead {
                    self.print_unless_quiet(&format!("fanotify is not used: {why}"));
                }
                for mount in mounts {
                    let mount = DisplayPath::bytes(mount);
                    self.print(&format!(
                        "WARNING: {mount} is a mount point: it has no events, only scans find changes there"
                    ));
                }
                for (path, why) in unwatched.iter().take(FIRST) {
                    self.print(&format!(
                        "WARNING: {} is not watched, only scans find changes there: {why}",
                        DisplayPath::bytes(path)
                    ));
                }
                if unwatched.len() > FIRST {
                    self.print(&format!("WARNING: and {} more directories", unwatched.len() - FIRST));
                }
            }
            Notice::FilesystemWide(why) => self.print(&format!("WARNING: {}", filesystem_wide_watch(why))),
            Notice::Gap(loss) => {
                self.print(&format!("events were lost: {}; starting a full scan", loss.words()))
            }
            Notice::Recorded(_) => {}
            Notice::Scanned(scan) => self.scanned(scan),
            Notice::Worked(done) => self.worked(done),
            Notice::Held(held) => {
                self.print(&format!("HELD: {}.", reason(held)));
                self.print(&format!(
                    "Their redundancy is kept. If the change is intended: {}",
                    self.approve.text(&held.digest)
                ));
            }
            Notice::Released => self.print_unless_quiet("the held changes were released"),
            Notice::Policy => self.print_unless_quiet("the policy was reloaded"),
            Notice::Trouble(why) => self.print(&format!("WARNING: {why}")),
        }
    }

    fn scanned(&self, scan: &Scan) {
        let what = match scan.within.iter().any(Vec::is_empty) {
            true => "all".to_owned(),
            false => scan
                .within
                .iter()
                .map(|path| DisplayPath::bytes(path).to_string())
                .collect::<Vec<_>>()
                .join(", "),
        };
        self.print_unless_quiet(&format!(
            "scanned   {what}: {}, {} changed, in {:.1} s",
            files(scan.files),
            count(scan.changes),
            scan.seconds
        ));
        for (path, why) in scan.unreadable.iter().take(FIRST) {
            self.print(&format!("WARNING: {}: {why}", DisplayPath::bytes(path)));
        }
        if scan.unreadable.len() > FIRST {
            self.print(&format!("WARNING: and {} more; --json lists them", scan.unreadable.len() - FIRST));
        }
        for path in scan.write_once.iter().take(FIRST) {
            let path = DisplayPath::bytes(path);
            self.print(&format!("WARNING: {path} is write-once and changed: its redundancy is kept"));
        }
    }

    fn worked(&self, done: &Done) {
        let mut parts = Vec::new();
        if done.encoded > 0 {
            parts.push(format!("encoded {} ({})", files(done.encoded), bytes(done.encoded_bytes)));
        }
        for (word, number) in
            [("adopted", done.adopted), ("moved", done.moved), ("removed", done.removed), ("held", done.held)]
        {
            if number > 0 {
                parts.push(format!("{word} {}", count(number)));
            }
        }
        if !parts.is_empty() {
            self.print_unless_quiet(&format!("protected {}", parts.join(", ")));
        }
        for (path, why) in done.failed.iter().take(FIRST) {
            self.print(&format!("WARNING: {}: {why}", DisplayPath::bytes(path)));
        }
        if done.failures > FIRST as u64 {
            self.print(&format!("WARNING: and {} more failed", count(done.failures - FIRST as u64)));
        }
        for trouble in done.damaged.iter().take(FIRST) {
            let (path, word) = (DisplayPath::bytes(&trouble.path), trouble.state.word());
            self.print(&format!(
                "WARNING: {path} is {word}, with unchanged size and mtime (silent corruption)"
            ));
        }
        for path in done.write_once.iter().take(FIRST) {
            let path = DisplayPath::bytes(path);
            self.print(&format!("WARNING: {path} is write-once and changed: its redundancy is kept"));
        }
        for (path, ranges) in done.unrecoverable.iter().take(FIRST) {
            let ranges: Vec<String> =
                ranges.iter().take(FIRST).map(|range| format!("{}-{}", range.start, range.end)).collect();
            self.print(&format!(
                "WARNING: {}: bytes {} were corrupt before the rest of their stripes was written, and could not be reconstructed",
                DisplayPath::bytes(path),
                ranges.join(", ")
            ));
        }
        for (path, of_file) in done.reconstructed.iter().take(FIRST) {
            self.print(&format!(
                "WARNING: {}: bytes {} were corrupt and were reconstructed before the file was protected again",
                DisplayPath::bytes(path),
                ranges(of_file.iter())
            ));
        }
        for (path, ranges) in done.changed.iter().take(FIRST) {
            self.print(&format!("WARNING: {}", changed_in_growth(path, ranges)));
        }
    }

    /// Updates the status line.
    pub(in crate::commands) fn update_status(&self, status: &Status, now: Timestamp) {
        let Some(line) = &self.line else { return };
        line.set_message(format!(
            "{} events, {} recorded, {} pending{}, {} encoded{}",
            count(status.events),
            count(status.recorded),
            count(status.pending),
            status.last_scan.map_or_else(String::new, |scan| format!(", scanned {}", ago(now, scan))),
            files(status.done.encoded),
            status.trouble.as_ref().map_or_else(String::new, |why| format!(", waiting: {why}")),
        ));
        line.tick();
    }

    /// Prints a summary at the end.
    pub(in crate::commands) fn stopped(&self, status: &Status, now: Timestamp) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
        if self.json {
            self.print_json(&Event::Stopped(Box::new(LiveStatus::new(status, now))));
            return;
        }
        self.print_unless_quiet(&format!(
            "stopped: {} events, {} changes recorded, {} encoded, {} still pending",
            count(status.events),
            count(status.recorded),
            files(status.done.encoded),
            count(status.pending)
        ));
    }
}

/// Warning that the watch receives events of the whole file system.
pub(in crate::commands) fn filesystem_wide_watch(why: &str) -> String {
    format!(
        "the watch receives events for every write on the whole file system, which slows down all writers there: {why}"
    )
}

/// Warning of a file that grew and changed in blocks that existed before.
pub(super) fn changed_in_growth(path: &[u8], of_file: &[std::ops::Range<u64>]) -> String {
    format!(
        "{} grew, and bytes {} that existed before changed as well; if the file is only ever appended to, they are corrupt",
        DisplayPath::bytes(path),
        ranges(of_file.iter())
    )
}
