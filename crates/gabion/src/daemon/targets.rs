//! Target states of a pool over time, and the decision to survey or rebuild.

use crate::report::Time;
use crate::report::daemon::{GoneReport, PoolTargets, QuestionReport, SurveyReport, TargetReport, Timed};
use gabion_platform::local_time::local;
use gabion_vault::pool_rebuild::DEFAULT_SHARE;
use gabion_vault::pool_rebuild::survey::TargetStates;
use gabion_vault::schedule::Backoff;
use gabion_vault::storage::TargetState;
use gabion_vault::storage::pool::Pool;
use gabion_vault::storage::pool::config::{MemberState, TargetName};
use gabion_vault::watchdog::{Decision, Policy, TargetPresence, Watchdog};
use gabion_vault::world::Timestamp;
use std::time::Duration;

/// Shortest and longest pause before an incomplete rebuild is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(6 * 3600);

/// Watches the targets of one pool.
#[derive(Debug)]
pub(super) struct Targets {
    pool: String,
    watchdog: Watchdog,
    is_automatic: bool,
    backoff: Backoff,
    seen: Vec<(TargetName, TargetPresence)>,
    decision: Decision,
    agreed: Option<String>,
    /// What files miss, if a survey ran since targets changed.
    survey: Option<Timed<SurveyReport>>,
}

/// Next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// Find out what files miss.
    Survey,
    Rebuild {
        targets: Vec<TargetName>,
        agreed: Option<String>,
    },
}

impl Targets {
    /// For a pool, by its identity. With a delay, rebuilds start automatically.
    pub(super) fn new(pool: &str, redundancy: usize, delay: Option<Duration>) -> Targets {
        // Without a delay, absent targets are only reported.
        let policy = Policy { delay: delay.unwrap_or(Duration::MAX), redundancy, share: DEFAULT_SHARE };
        Targets {
            pool: pool.to_owned(),
            watchdog: Watchdog::new(pool, policy),
            is_automatic: delay.is_some(),
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            seen: Vec::new(),
            decision: Decision::Nothing,
            agreed: None,
            survey: None,
        }
    }

    /// True if this is the state of that pool.
    pub(super) fn is_of(&self, pool: &str) -> bool {
        self.pool == pool
    }

    /// Decides from the current target states. Targets that were given up count as `GivenUp` until a survey finds that
    /// no file misses them.
    pub(super) fn look(&mut self, now: Timestamp, mut presences: Vec<(TargetName, TargetPresence)>) -> Next {
        if let Some(survey) = &self.survey {
            for (name, presence) in &mut presences {
                if *presence == TargetPresence::GivenUp && !survey.report.missed.contains(name) {
                    *presence = TargetPresence::Replaced;
                }
            }
        }
        let same = |(a, b): (&(TargetName, TargetPresence), &(TargetName, TargetPresence))| {
            let given_up = |presence| matches!(presence, TargetPresence::GivenUp | TargetPresence::Replaced);
            a.0 == b.0 && (a.1 == b.1 || given_up(a.1) && given_up(b.1))
        };
        if presences.len() != self.seen.len() || !presences.iter().zip(&self.seen).all(same) {
            // The states changed: the survey is outdated, and a rebuild may succeed now.
            self.survey = None;
            self.backoff.succeeded();
        }
        self.decision = self.watchdog.decide(now, &presences);
        let given_up: Vec<TargetName> =
            presences.iter().filter(|it| it.1 == TargetPresence::GivenUp).map(|it| it.0.clone()).collect();
        self.seen = presences;
        let may_rebuild = self.is_automatic && self.backoff.is_over(now);
        let rebuild =
            |targets: &[TargetName]| Next::Rebuild { targets: targets.to_vec(), agreed: self.agreed.clone() };
        match &self.decision {
            Decision::Rebuild { targets } | Decision::Reconcile { targets } if may_rebuild => {
                rebuild(targets)
            }
            _ if self.wants_survey() => Next::Survey,
            // A rebuild was interrupted or incomplete.
            Decision::Nothing if may_rebuild && !given_up.is_empty() => rebuild(&given_up),
            _ => Next::Nothing,
        }
    }

    /// True if a target is not present and no survey has run since.
    pub(super) fn wants_survey(&self) -> bool {
        self.survey.is_none() && self.seen.iter().any(|(_, presence)| *presence != TargetPresence::Present)
    }

    /// Numbers of files that are degraded and lost because of targets that are not present; none until a survey has
    /// counted them.
    pub(super) fn missing_files(&self) -> Option<(u64, u64)> {
        match &self.survey {
            Some(Timed { report, .. }) => Some((report.degraded, report.lost + report.unreadable)),
            None if self.wants_survey() => None,
            None => Some((0, 0)),
        }
    }

    /// Targets that are not present.
    pub(super) fn absent(&self) -> Vec<TargetName> {
        let absent = self.seen.iter().filter(|(_, presence)| *presence != TargetPresence::Present);
        absent.map(|(name, _)| name.clone()).collect()
    }

    /// Stores the report of a survey.
    pub(super) fn surveyed(&mut self, survey: Timed<SurveyReport>) {
        self.survey = Some(survey);
    }

    /// Notes the end of a rebuild; the survey is outdated.
    pub(super) fn rebuilt(&mut self, is_whole: bool, now: Timestamp) {
        self.survey = None;
        match is_whole {
            true => self.backoff.succeeded(),
            false => drop(self.backoff.failed(now)),
        }
    }

    /// Confirms that the absent targets are lost.
    ///
    /// # Errors
    /// No confirmation is needed, or another one.
    pub(super) fn agree(&mut self, agreement: &str) -> Result<(), String> {
        match &self.decision {
            Decision::Ask { agreement: asked, .. } if asked == agreement => {
                self.watchdog.agree(agreement);
                self.agreed = Some(agreement.to_owned());
                self.backoff.succeeded();
                Ok(())
            }
            Decision::Ask { agreement: asked, gone, .. } => {
                Err(format!("what is asked is {asked}, for {}", gone.join(", ")))
            }
            _ => Err("no confirmation is needed: all targets are present, or their delay has not passed"
                .to_owned()),
        }
    }

    /// As in `daemon status`.
    pub(super) fn report(&self) -> PoolTargets {
        let word = |presence: TargetPresence| match presence {
            TargetPresence::Present => "present",
            TargetPresence::Gone => "gone",
            TargetPresence::GivenUp => "given up",
            TargetPresence::Replaced => "replaced",
            TargetPresence::Returned => "returned",
        };
        let target = |(name, presence): &(TargetName, TargetPresence)| TargetReport {
            name: name.clone(),
            state: word(*presence),
        };
        let known = PoolTargets {
            targets: self.seen.iter().map(target).collect(),
            automatic: self.is_automatic,
            files: self.survey.clone(),
            ..PoolTargets::default()
        };
        match self.decision.clone() {
            Decision::Nothing => known,
            Decision::Notice { gone, until } => {
                let given_up_at = self.is_automatic.then_some(Time(until));
                PoolTargets { notice: Some(GoneReport { gone, given_up_at }), ..known }
            }
            Decision::Rebuild { targets } => PoolTargets { rebuild: Some(targets), ..known },
            Decision::Reconcile { targets } => PoolTargets { verify: Some(targets), ..known },
            Decision::Ask { gone, agreement, why } => {
                let why = why.to_string();
                PoolTargets { ask: Some(QuestionReport { gone, agreement, why }), ..known }
            }
        }
    }

    /// A state that needs attention, in two words.
    pub(super) fn notice(&self) -> Option<&'static str> {
        match self.decision {
            Decision::Nothing => None,
            Decision::Notice { .. } => Some("is degraded"),
            Decision::Rebuild { .. } | Decision::Reconcile { .. } => Some("is rebuilt"),
            Decision::Ask { .. } => Some("needs confirmation"),
        }
    }

    /// The situation as text; `None` if all targets are present.
    pub(super) fn words(&self) -> Option<String> {
        match &self.decision {
            Decision::Nothing => None,
            Decision::Notice { gone, until } if self.is_automatic => {
                Some(format!("degraded: {} gone; given up at {} unless back", gone.join(", "), local(*until)))
            }
            Decision::Notice { gone, .. } => {
                Some(format!("degraded: {} gone; nothing is rebuilt unless requested", gone.join(", ")))
            }
            Decision::Rebuild { targets } => Some(format!("{} given up: rebuilding", targets.join(", "))),
            Decision::Reconcile { targets } => {
                Some(format!("{} came back: its data is being verified", targets.join(", ")))
            }
            Decision::Ask { gone, agreement, why } => Some(format!(
                "{why}: {}. Nothing is rebuilt until an operator confirms with: {agreement}",
                gone.join(", ")
            )),
        }
    }
}

/// Current states of the targets of a pool.
pub(super) fn presences(pool: &Pool) -> Vec<(TargetName, TargetPresence)> {
    pool.probe();
    let (config, places, behind) = (pool.config(), TargetStates::of(pool), pool.outdated_targets());
    let serving = config.target.iter().filter(|member| member.state != MemberState::Retired);
    serving
        .map(|member| {
            let presence = match (places.state(&member.name), member.state) {
                (TargetState::Offline, MemberState::Away) => TargetPresence::GivenUp,
                (TargetState::Offline, _) => TargetPresence::Gone,
                (TargetState::Returned, _) => TargetPresence::Returned,
                _ if behind.contains(&member.name) => TargetPresence::Returned,
                _ => TargetPresence::Present,
            };
            (member.name.clone(), presence)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{FIRST_PAUSE, Next, SurveyReport, TargetName, TargetPresence, Targets, Timed};
    use gabion_vault::world::Timestamp;
    use std::time::Duration;

    const P: TargetPresence = TargetPresence::Present;
    const G: TargetPresence = TargetPresence::Gone;
    const U: TargetPresence = TargetPresence::GivenUp;
    const B: TargetPresence = TargetPresence::Returned;

    fn seen(presences: &[TargetPresence]) -> Vec<(TargetName, TargetPresence)> {
        presences
            .iter()
            .enumerate()
            .map(|(at, &presence)| (format!("d{}", at + 1).parse().unwrap(), presence))
            .collect()
    }

    fn rebuild(targets: &[&str]) -> Next {
        let targets = targets.iter().map(|&name| name.parse().unwrap()).collect();
        Next::Rebuild { targets, agreed: None }
    }

    fn missed(targets: &[&str]) -> Timed<SurveyReport> {
        let missed = targets.iter().map(|&name| name.parse().unwrap()).collect();
        Timed { report: SurveyReport { missed, ..SurveyReport::default() }, seconds: 0.0 }
    }

    #[test]
    fn a_lost_target_is_surveyed_waited_for_rebuilt_and_surveyed() {
        let mut targets = Targets::new("p", 2, Some(Duration::from_nanos(100)));
        assert_eq!(targets.look(Timestamp::EPOCH, seen(&[P; 8])), Next::Nothing);
        let gone = [P, G, P, P, P, P, P, P];
        assert_eq!(targets.look(Timestamp::from_nanoseconds(1), seen(&gone)), Next::Survey);
        targets.surveyed(missed(&["d2"]));
        assert_eq!(targets.look(Timestamp::from_nanoseconds(2), seen(&gone)), Next::Nothing);
        assert!(targets.words().unwrap().contains("d2"));
        assert_eq!(targets.look(Timestamp::from_nanoseconds(101), seen(&gone)), rebuild(&["d2"]));
        targets.rebuilt(true, Timestamp::from_nanoseconds(200));
        let given_up = [P, U, P, P, P, P, P, P];
        assert_eq!(targets.look(Timestamp::from_nanoseconds(201), seen(&given_up)), Next::Survey);
        targets.surveyed(missed(&[]));
        assert_eq!(targets.look(Timestamp::from_nanoseconds(202), seen(&given_up)), Next::Nothing);
        assert_eq!(targets.words(), None);
        let back = [P, B, P, P, P, P, P, P];
        assert_eq!(targets.look(Timestamp::from_nanoseconds(300), seen(&back)), rebuild(&["d2"]));
    }

    #[test]
    fn incomplete_rebuilds_are_retried_after_pauses() {
        let mut targets = Targets::new("p", 2, Some(Duration::ZERO));
        let given_up = [P, U, P, P, P, P, P, P];
        // As after a crash: no state is known.
        assert_eq!(targets.look(Timestamp::EPOCH, seen(&given_up)), Next::Survey);
        targets.surveyed(missed(&["d2"]));
        assert_eq!(targets.look(Timestamp::from_nanoseconds(1), seen(&given_up)), rebuild(&["d2"]));
        targets.rebuilt(false, Timestamp::from_nanoseconds(10));
        assert_eq!(targets.look(Timestamp::from_nanoseconds(11), seen(&given_up)), Next::Survey);
        targets.surveyed(missed(&["d2"]));
        assert_eq!(targets.look(Timestamp::from_nanoseconds(12), seen(&given_up)), Next::Nothing);
        assert_eq!(
            targets.look(Timestamp::from_nanoseconds(10) + FIRST_PAUSE, seen(&given_up)),
            rebuild(&["d2"])
        );
        targets.rebuilt(false, Timestamp::from_nanoseconds(10) + FIRST_PAUSE);
        // One more target in the pool is another situation.
        let added = [P, U, P, P, P, P, P, P, P];
        assert_eq!(targets.look(Timestamp::from_nanoseconds(11) + FIRST_PAUSE, seen(&added)), Next::Survey);
        targets.surveyed(missed(&["d2"]));
        assert_eq!(
            targets.look(Timestamp::from_nanoseconds(12) + FIRST_PAUSE, seen(&added)),
            rebuild(&["d2"])
        );
    }

    #[test]
    fn the_loss_of_many_targets_is_confirmed_by_digest() {
        let mut targets = Targets::new("p", 2, Some(Duration::ZERO));
        let three = [G, G, G, P, P, P, P, P];
        assert_eq!(targets.look(Timestamp::EPOCH, seen(&three)), Next::Survey);
        targets.surveyed(missed(&["d1", "d2", "d3"]));
        assert_eq!(targets.look(Timestamp::from_nanoseconds(1), seen(&three)), Next::Nothing);
        let asked = targets.report().ask.unwrap().agreement;
        assert!(targets.agree("0123456789ab").unwrap_err().contains(&asked));
        targets.agree(&asked).unwrap();
        let Next::Rebuild { targets: which, agreed } =
            targets.look(Timestamp::from_nanoseconds(2), seen(&three))
        else {
            panic!("agreed")
        };
        assert_eq!((which.len(), agreed), (3, Some(asked)));
    }

    #[test]
    fn without_a_delay_nothing_is_decided() {
        let mut targets = Targets::new("p", 2, None);
        let gone = [P, G, P, P];
        targets.look(Timestamp::EPOCH, seen(&gone));
        targets.surveyed(missed(&["d2"]));
        assert_eq!(targets.look(Timestamp::MAX - Duration::from_nanos(1), seen(&gone)), Next::Nothing);
        assert!(targets.words().unwrap().contains("unless requested"));
        assert!(targets.agree("x").is_err());
    }
}
