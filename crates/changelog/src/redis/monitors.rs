//! Marks of monitors on a server.

use super::Redis;
use super::answer::Answer;
use super::clock::Shift;
use super::link::time;
use crate::change::When;
use crate::entry::WorkerId;
use crate::error::Result;
use crate::monitors::{KnownMonitor, Monitor, MonitorKind, MonitorState, Monitors, Renewed};
use std::time::Duration;

fn milliseconds(lease: Duration) -> Vec<u8> {
    lease.as_millis().to_string().into_bytes()
}

fn times(when: When, shift: Shift) -> [Vec<u8>; 4] {
    let [at, due, latest] = [when.at, when.due, when.latest].map(|moment| time(shift.there(moment)));
    [at, due, latest, when.priority.to_string().into_bytes()]
}

fn mark(monitor: &Monitor, lease: Duration, shift: Shift) -> [Vec<u8>; 4] {
    let Monitor { name, kind, since } = monitor;
    [name.0.clone().into_bytes(), kind.word().into(), time(shift.there(*since)), milliseconds(lease)]
}

impl Answer {
    /// A monitor from the first three of these fields.
    fn monitor(&self, fields: &[Answer]) -> Result<Monitor> {
        let [name, kind, since, ..] = fields else { return Err(self.nonsense()) };
        Ok(Monitor {
            name: WorkerId(name.text()?),
            kind: MonitorKind::of_word(&kind.text()?).ok_or_else(|| self.nonsense())?,
            since: since.time()?,
        })
    }

    fn known_monitor(&self) -> Result<KnownMonitor> {
        let fields = self.list()?;
        let [.., state, silent] = fields.as_slice() else { return Err(self.nonsense()) };
        let state = match state.text()?.as_str() {
            "running" => MonitorState::Running,
            "silent" => MonitorState::Silent(Duration::from_millis(silent.number()?)),
            "lost" => MonitorState::Lost,
            _ => return Err(self.nonsense()),
        };
        Ok(KnownMonitor { monitor: self.monitor(&fields)?, state })
    }
}

impl Monitors for Redis {
    fn begin_monitor(&self, monitor: &Monitor, lease: Duration) -> Result<()> {
        self.link().call_at("begin_monitor", |shift| mark(monitor, lease, shift).to_vec()).map(drop)
    }

    fn renew_monitor(&self, monitor: &Monitor, lease: Duration, gap: When) -> Result<Renewed> {
        let arguments = |shift| [mark(monitor, lease, shift), times(gap, shift)].concat();
        let answer = self.link().call_at("renew_monitor", arguments)?;
        match answer.text()?.as_str() {
            "kept" => Ok(Renewed::Kept),
            "again" => Ok(Renewed::Again),
            _ => Err(answer.nonsense()),
        }
    }

    fn end_monitor(&self, monitor: &Monitor) -> Result<()> {
        self.link().call("end_monitor", &[monitor.name.0.clone().into_bytes()]).map(drop)
    }

    /// Two calls: the list of marks, which writes nothing, and only if there is a reason the second one.
    fn give_up_monitors(
        &self,
        is_dead: &dyn Fn(&WorkerId) -> bool,
        lease: Duration,
        gap: When,
    ) -> Result<Vec<Monitor>> {
        let known = self.known_monitors()?;
        let has_mark = |it: &&KnownMonitor| it.state != MonitorState::Lost;
        let dead: Vec<Vec<u8>> = known
            .iter()
            .filter(|it| has_mark(it) && is_dead(&it.monitor.name))
            .map(|it| it.monitor.name.0.clone().into_bytes())
            .collect();
        if dead.is_empty() && !known.iter().any(|it| matches!(it.state, MonitorState::Silent(_))) {
            return Ok(Vec::new());
        }
        let arguments =
            |shift| [milliseconds(lease)].into_iter().chain(times(gap, shift)).chain(dead.clone()).collect();
        let answer = self.link().call_at("give_up_monitors", arguments)?;
        answer.list()?.iter().map(|it| it.monitor(&it.list()?)).collect()
    }

    fn known_monitors(&self) -> Result<Vec<KnownMonitor>> {
        let answer = self.link().call("known_monitors", &[])?;
        let mut known = answer.list()?.iter().map(Answer::known_monitor).collect::<Result<Vec<_>>>()?;
        known.sort_by(|one, other| one.monitor.name.cmp(&other.monitor.name));
        Ok(known)
    }
}
