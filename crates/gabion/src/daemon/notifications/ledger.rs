//! What a receiver was told, and what it is still to be told. Kept in a file, so that a restart neither repeats nor
//! loses anything.
//!
//! Conditions are states, not events: at each look they are compared with what was told. Something that began while
//! the daemon did not run, or that was noted and not delivered before a crash, is therefore told later. A message is
//! written to the file before it is sent and removed after it arrived: a crash in between sends it twice, with the
//! same id.
//!
//! One message is under way at a time. What happens meanwhile is collected into the next one, so the file is bounded
//! however long a receiver does not answer.

use super::super::config::notify::NotifyConfig;
use super::message::{Change, Item, Message, compose};
use super::observe::SourceView;
use super::topic::Condition;
use gabion_vault::world::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Version of the file.
const VERSION: u32 = 1;

/// Most conditions, and most repairs, that are kept. Further repairs are counted only.
const MAX_KNOWN: usize = 100;
const MAX_HAPPENED: usize = 30;

/// A condition whose extent grew, but did not double, is told again after this time.
const GROWTH: Duration = Duration::from_secs(3600);

/// First and longest pause between attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// A message that could not be delivered for this long is discarded: it may be the message that is refused.
const LIFETIME: Duration = Duration::from_secs(7 * 86400);

/// State of a receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ledger {
    version: u32,
    known: Vec<Known>,
    happened: Vec<Happened>,
    /// Repairs beyond [`MAX_HAPPENED`].
    omitted: u64,
    /// The last event of each source that was considered.
    pub(super) cursors: BTreeMap<String, u64>,
    /// Begin of collecting.
    #[serde(default, with = "gabion_vault::nanoseconds::optional")]
    waiting_since: Option<Timestamp>,
    /// When the last message was composed.
    #[serde(default, with = "gabion_vault::nanoseconds::optional")]
    composed: Option<Timestamp>,
    /// The message under way.
    pub(super) message: Option<Message>,
    pub(super) attempts: u32,
    #[serde(with = "gabion_vault::nanoseconds")]
    pub(super) retry_at: Timestamp,
    #[serde(default, with = "gabion_vault::nanoseconds::optional")]
    pub(super) delivered: Option<Timestamp>,
    pub(super) error: Option<String>,
    /// Messages discarded since the last one that arrived.
    pub(super) discarded: u64,
}

/// A condition that holds, or ended and was not told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    condition: Condition,
    #[serde(with = "gabion_vault::nanoseconds")]
    since: Timestamp,
    told: Option<Told>,
    ended: bool,
}

/// What was told of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    #[serde(with = "gabion_vault::nanoseconds")]
    at: Timestamp,
    extent: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Happened {
    condition: Condition,
    #[serde(with = "gabion_vault::nanoseconds")]
    at: Timestamp,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            version: VERSION,
            known: Vec::new(),
            happened: Vec::new(),
            omitted: 0,
            cursors: BTreeMap::new(),
            waiting_since: None,
            composed: None,
            message: None,
            attempts: 0,
            retry_at: Timestamp::EPOCH,
            delivered: None,
            error: None,
            discarded: 0,
        }
    }
}

impl Known {
    /// What is new about it, if anything.
    fn change(&self, rules: &NotifyConfig, now: Timestamp) -> Option<Change> {
        if self.ended {
            return Some(Change::Ended);
        }
        let Some(told) = self.told else { return Some(Change::Began) };
        let (age, extent) = (now.since(told.at), self.condition.extent);
        let has_doubled = extent / 2 >= told.extent;
        match () {
            () if extent > told.extent && (has_doubled || age >= GROWTH) => Some(Change::Worse),
            () if rules.remind.is_some_and(|remind| age >= remind) => Some(Change::Lasts),
            () => None,
        }
    }
}

/// True if a receiver wants to know of a condition.
fn wants(rules: &NotifyConfig, condition: &Condition) -> bool {
    let (topic, source) = (condition.topic, &condition.source);
    topic.severity() >= rules.least
        && (rules.topics.is_empty() || rules.topics.contains(&topic))
        && (rules.sources.is_empty() || rules.sources.contains(source))
}

impl Ledger {
    /// From the text of its file; none if it is damaged or of another version.
    pub(super) fn parse(text: &str) -> Option<Ledger> {
        let ledger: Ledger = serde_json::from_str(text).ok()?;
        (ledger.version == VERSION).then_some(ledger)
    }

    /// The bytes of its file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        // A ledger consists of numbers and texts, which always have a form in JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Compares what holds now with what is known.
    pub(super) fn observe(&mut self, rules: &NotifyConfig, views: &[SourceView], now: Timestamp) {
        self.known.retain(|known| wants(rules, &known.condition));
        for condition in views.iter().flat_map(|view| &view.conditions).filter(|it| wants(rules, it)) {
            let has_room = self.known.len() < MAX_KNOWN;
            match self.known.iter_mut().find(|known| known.condition.is_same(condition)) {
                Some(known) => {
                    known.ended = false;
                    let mut condition = condition.clone();
                    // The names of files are in the report of a scrub, which a restart forgets.
                    if condition.extent == known.condition.extent && condition.details.is_empty() {
                        condition.details = std::mem::take(&mut known.condition.details);
                    }
                    known.condition = condition;
                }
                None if has_room => {
                    let condition = condition.clone();
                    self.known.push(Known { condition, since: now, told: None, ended: false });
                }
                None => {}
            }
        }
        self.known.retain_mut(|known| {
            let condition = &known.condition;
            let holds = |view: &SourceView| {
                view.conditions.iter().any(|now| now.is_same(condition))
                    || view.name == condition.source && view.keeps(condition)
            };
            if !views.iter().any(holds) {
                known.ended = true;
            }
            // What was never told and is over needs nobody: a start that failed once, a disk that was slow.
            !(known.ended && known.told.is_none())
        });
    }

    /// Notes something that does not last.
    pub(super) fn note(&mut self, rules: &NotifyConfig, condition: Condition, at: Timestamp) {
        if !wants(rules, &condition) {
            return;
        }
        match self.happened.len() < MAX_HAPPENED {
            true => self.happened.push(Happened { condition, at }),
            false => self.omitted += 1,
        }
    }

    /// Number of conditions that hold.
    pub(super) fn open(&self) -> usize {
        self.known.iter().filter(|known| !known.ended).count()
    }

    /// Number of conditions that have held for a time.
    pub(super) fn lasting(&self, time: Duration, now: Timestamp) -> usize {
        let lasts = |known: &&Known| !known.ended && now.since(known.since) >= time;
        self.known.iter().filter(lasts).count()
    }

    /// One line for each condition that holds.
    pub(super) fn summaries(&self) -> Vec<String> {
        let open = self.known.iter().filter(|known| !known.ended);
        open.map(|known| format!("{}: {}", known.condition.source, known.condition.summary)).collect()
    }

    /// Number of items that the next message has to tell.
    pub(super) fn untold(&self, rules: &NotifyConfig, now: Timestamp) -> usize {
        self.happened.len() + self.known.iter().filter(|known| known.change(rules, now).is_some()).count()
    }

    /// Composes a message if there is something to tell and it is time.
    pub(super) fn compose(&mut self, rules: &NotifyConfig, host: &str, id: &str, now: Timestamp) -> bool {
        if self.untold(rules, now) == 0 {
            self.waiting_since = None;
            return false;
        }
        // A clock that was set back starts the time over.
        let since = self.waiting_since.filter(|&since| since <= now).unwrap_or(now);
        self.waiting_since = Some(since);
        let too_soon = self.composed.is_some_and(|at| at <= now && now.since(at) < rules.interval);
        if self.message.is_some() || too_soon || now.since(since) < rules.collect {
            return false;
        }
        let mut items: Vec<Item> = Vec::new();
        for known in &mut self.known {
            if let Some(change) = known.change(rules, now) {
                items.push(Item::new(&known.condition, change, known.since));
                known.told = Some(Told { at: now, extent: known.condition.extent });
            }
        }
        items.extend(self.happened.drain(..).map(|it| Item::new(&it.condition, Change::Happened, it.at)));
        let has_ended = items.iter().any(|item| item.change == Change::Ended);
        self.known.retain(|known| !known.ended);
        let all_well = has_ended && self.known.is_empty();
        let mut message = compose(id.to_owned(), host, items, all_well, self.discarded, now);
        message.omitted += std::mem::take(&mut self.omitted);
        self.message = Some(message);
        (self.waiting_since, self.composed, self.attempts, self.retry_at) = (None, Some(now), 0, now);
        true
    }

    /// The message to send now, if there is one.
    pub(super) fn due(&self, now: Timestamp) -> Option<&Message> {
        // A clock that was set back must not delay a message by more than the longest pause.
        let is_due = now >= self.retry_at || self.retry_at.since(now) > LONGEST_PAUSE;
        self.message.as_ref().filter(|_| is_due)
    }

    /// The message arrived.
    pub(super) fn arrived(&mut self, now: Timestamp) {
        (self.message, self.attempts, self.error, self.discarded) = (None, 0, None, 0);
        self.delivered = Some(now);
    }

    /// An attempt failed. True if the message is discarded.
    pub(super) fn failed(&mut self, why: &str, now: Timestamp) -> bool {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.attempts.min(20)).min(LONGEST_PAUSE);
        self.attempts = self.attempts.saturating_add(1);
        self.retry_at = now + pause;
        self.error = Some(why.to_owned());
        let is_old = |message: &mut Message| now.since(message.time.0) > LIFETIME;
        let is_discarded = self.message.take_if(is_old).is_some();
        self.discarded += u64::from(is_discarded);
        is_discarded
    }
}

#[cfg(test)]
mod tests;
