//! Conditions over time, by a clock of numbers.

use super::super::super::config::notify::{Channel, NotifyConfig};
use super::super::super::events::Severity;
use super::super::message::{Change, Message};
use super::super::observe::SourceView;
use super::super::topic::{Condition, Topic};
use super::Ledger;
use gabion_vault::world::{SECOND, Timestamp};
use proptest::prelude::{Strategy, any, prop};
use proptest::{prop_assert, proptest};

fn rules() -> NotifyConfig {
    NotifyConfig {
        name: "test".to_owned(),
        channel: Channel::Command(vec!["true".into()]),
        topics: Default::default(),
        sources: Default::default(),
        least: Severity::Info,
        collect: 30 * SECOND,
        interval: 300 * SECOND,
        remind: Some(86400 * SECOND),
        timeout: SECOND,
    }
}

fn view(conditions: &[(Topic, &str, u64)], undetermined: &[Topic]) -> Vec<SourceView> {
    let conditions = conditions.iter().map(|(topic, object, extent)| {
        Condition::new(*topic, "a", *extent, &format!("{extent} of {}", topic.word())).of(object)
    });
    let undetermined = undetermined.iter().map(|topic| (*topic, None)).collect();
    vec![SourceView {
        name: "a".to_owned(),
        is_settled: true,
        conditions: conditions.collect(),
        undetermined,
    }]
}

/// Looks once, and restarts in between.
fn look(ledger: &mut Ledger, rules: &NotifyConfig, views: &[SourceView], second: i64) -> Option<Message> {
    *ledger = Ledger::parse(std::str::from_utf8(&ledger.bytes()).unwrap()).unwrap();
    ledger.observe(rules, views, Timestamp::from_seconds(second));
    ledger
        .compose(rules, "nas", "id", Timestamp::from_seconds(second))
        .then(|| ledger.message.clone().unwrap())
}

fn changes(message: Option<Message>) -> Vec<(Topic, Change)> {
    message.unwrap().items.iter().map(|item| (item.event.unwrap(), item.change)).collect()
}

#[test]
fn a_state_is_told_once_then_reminded_of_and_its_end_is_told() {
    let (rules, mut ledger) = (rules(), Ledger::default());
    let damaged = view(&[(Topic::DamageFound, "", 3)], &[]);
    assert_eq!(look(&mut ledger, &rules, &damaged, 0), None, "it is collected");
    assert_eq!(look(&mut ledger, &rules, &damaged, 29), None);
    assert_eq!(changes(look(&mut ledger, &rules, &damaged, 30)), [(Topic::DamageFound, Change::Began)]);
    ledger.arrived(Timestamp::from_seconds(31));
    for second in (31..86430).step_by(600) {
        assert_eq!(look(&mut ledger, &rules, &damaged, second), None, "{second}");
    }
    assert_eq!(look(&mut ledger, &rules, &damaged, 86430), None, "it is collected");
    assert_eq!(changes(look(&mut ledger, &rules, &damaged, 86460)), [(Topic::DamageFound, Change::Lasts)]);
    ledger.arrived(Timestamp::from_seconds(86460));
    let well = view(&[], &[]);
    assert_eq!(look(&mut ledger, &rules, &well, 90000), None);
    let message = look(&mut ledger, &rules, &well, 90030).unwrap();
    assert!(message.all_well && message.text.contains("OVER") && message.text.contains("All is well again"));
    ledger.arrived(Timestamp::from_seconds(90030));
    assert_eq!(look(&mut ledger, &rules, &well, 200_000), None);
}

#[test]
fn messages_keep_their_distance_and_collect() {
    let (rules, mut ledger) = (rules(), Ledger::default());
    look(&mut ledger, &rules, &view(&[(Topic::TargetGone, "d1", 1)], &[]), 0);
    let two = view(&[(Topic::TargetGone, "d1", 1), (Topic::TargetGone, "d2", 1)], &[]);
    assert_eq!(changes(look(&mut ledger, &rules, &two, 30)).len(), 2);
    ledger.arrived(Timestamp::from_seconds(30));
    // It flaps: nothing is told of a state that is as it was told.
    for second in 31..329 {
        let flapping =
            view(&[(Topic::TargetGone, "d1", 1), (Topic::TargetGone, "d2", 1)][..(second % 3) as usize], &[]);
        assert_eq!(look(&mut ledger, &rules, &flapping, second), None, "{second}");
    }
    assert_eq!(look(&mut ledger, &rules, &two, 340), None);
    // Not before five minutes have passed since the last message.
    look(&mut ledger, &rules, &view(&[], &[]), 350);
    let message = look(&mut ledger, &rules, &view(&[], &[]), 400).unwrap();
    assert!(message.all_well);
    assert_eq!(message.items.len(), 2);
}

#[test]
fn what_is_over_before_it_is_told_is_not_told() {
    let (rules, mut ledger) = (rules(), Ledger::default());
    look(&mut ledger, &rules, &view(&[(Topic::SourceFailed, "", 1)], &[]), 0);
    assert_eq!(look(&mut ledger, &rules, &view(&[], &[]), 10), None);
    assert_eq!(look(&mut ledger, &rules, &view(&[], &[]), 100), None);
    assert_eq!(ledger.known.len(), 0);
}

#[test]
fn a_state_that_is_not_known_is_not_over() {
    let (rules, mut ledger) = (rules(), Ledger::default());
    let damaged = view(&[(Topic::DamageFound, "", 3)], &[]);
    look(&mut ledger, &rules, &damaged, 0);
    look(&mut ledger, &rules, &damaged, 30).unwrap();
    ledger.arrived(Timestamp::from_seconds(30));
    // As after a restart, until files are counted.
    assert_eq!(look(&mut ledger, &rules, &view(&[], &[Topic::DamageFound]), 1000), None);
    assert_eq!(look(&mut ledger, &rules, &damaged, 2000), None);
    assert_eq!(ledger.open(), 1);
    // A source that is no longer configured needs no attention.
    look(&mut ledger, &rules, &[], 3000);
    assert!(look(&mut ledger, &rules, &[], 3030).unwrap().all_well);
}

#[test]
fn what_gets_worse_is_told_at_once_if_it_doubles_and_hourly_otherwise() {
    let (rules, mut ledger) = (rules(), Ledger::default());
    let damaged = |files| view(&[(Topic::DamageFound, "", files)], &[]);
    look(&mut ledger, &rules, &damaged(10), 0);
    look(&mut ledger, &rules, &damaged(10), 30).unwrap();
    ledger.arrived(Timestamp::from_seconds(30));
    look(&mut ledger, &rules, &damaged(15), 1000);
    assert_eq!(look(&mut ledger, &rules, &damaged(15), 1100), None);
    look(&mut ledger, &rules, &damaged(20), 1200);
    assert_eq!(changes(look(&mut ledger, &rules, &damaged(20), 1230)), [(Topic::DamageFound, Change::Worse)]);
    ledger.arrived(Timestamp::from_seconds(1230));
    look(&mut ledger, &rules, &damaged(21), 1230 + 3600);
    assert!(look(&mut ledger, &rules, &damaged(21), 1230 + 3630).is_some());
    ledger.arrived(Timestamp::from_seconds(5000));
    assert_eq!(look(&mut ledger, &rules, &damaged(1), 90_000), None, "fewer are no news");
}

#[test]
fn a_receiver_that_does_not_answer_gets_one_message_and_then_the_rest() {
    let (rules, mut ledger) = (rules(), Ledger::default());
    let damaged = view(&[(Topic::DamageFound, "", 1)], &[]);
    look(&mut ledger, &rules, &damaged, 0);
    let first = look(&mut ledger, &rules, &damaged, 30).unwrap();
    let mut now = Timestamp::from_seconds(30);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        assert_eq!(ledger.due(now), Some(&first));
        assert!(!ledger.failed("refused", now));
        assert_eq!(ledger.due(now), None);
        pauses.push(ledger.retry_at.since(now).as_secs());
        now = ledger.retry_at;
        let lost = view(&[(Topic::Lost, "", 1)], &[]);
        assert_eq!(look(&mut ledger, &rules, &lost, now.parts().0), None, "one message is under way");
    }
    assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600, 3600]);
    ledger.arrived(now);
    let next = look(&mut ledger, &rules, &view(&[(Topic::Lost, "", 1)], &[]), now.parts().0);
    let both = changes(next);
    assert_eq!(both, [(Topic::Lost, Change::Began), (Topic::DamageFound, Change::Ended)]);
}

#[test]
fn a_message_that_is_refused_for_a_week_is_discarded_and_counted() {
    let (rules, mut ledger) = (rules(), Ledger::default());
    let damaged = view(&[(Topic::DamageFound, "", 1)], &[]);
    look(&mut ledger, &rules, &damaged, 0);
    look(&mut ledger, &rules, &damaged, 30).unwrap();
    let week = Timestamp::from_seconds(7 * 86400);
    assert!(!ledger.failed("413", week));
    assert!(ledger.failed("413", week + 31 * SECOND));
    let (later, _) = (week + 100 * SECOND).parts();
    look(&mut ledger, &rules, &damaged, later);
    let message = look(&mut ledger, &rules, &damaged, later + 30).unwrap();
    assert!(message.text.contains("were discarded: 1"), "{}", message.text);
}

#[test]
fn a_receiver_gets_only_what_it_asked_for() {
    let mut rules = rules();
    rules.topics = [Topic::Lost].into();
    let both = view(&[(Topic::Lost, "", 1), (Topic::DamageFound, "", 1)], &[]);
    let mut ledger = Ledger::default();
    ledger.observe(&rules, &both, Timestamp::EPOCH);
    assert_eq!(ledger.open(), 1);
    rules.topics.clear();
    rules.least = Severity::Error;
    ledger.observe(&rules, &both, Timestamp::EPOCH);
    assert_eq!(ledger.open(), 1);
    rules.sources = ["b".to_owned()].into();
    ledger.observe(&rules, &both, Timestamp::EPOCH);
    assert_eq!(ledger.open(), 0);
}

#[test]
fn a_clock_that_jumps_delays_nothing() {
    let (rules, mut ledger) = (rules(), Ledger::default());
    let damaged = view(&[(Topic::DamageFound, "", 1)], &[]);
    look(&mut ledger, &rules, &damaged, 1_000_000);
    assert_eq!(look(&mut ledger, &rules, &damaged, 100), None);
    assert!(look(&mut ledger, &rules, &damaged, 130).is_some());
    assert!(!ledger.failed("refused", Timestamp::from_seconds(200_000)));
    assert!(ledger.due(Timestamp::from_seconds(200)).is_some(), "the next attempt is days ahead");
}

#[test]
fn a_damaged_file_is_not_a_ledger() {
    let mut ledger = Ledger::default();
    ledger.observe(&rules(), &view(&[(Topic::Lost, "x", 1)], &[]), Timestamp::EPOCH);
    let bytes = ledger.bytes();
    for length in 0..bytes.len() {
        assert!(Ledger::parse(std::str::from_utf8(&bytes[..length]).unwrap()).is_none());
    }
    let other = String::from_utf8(bytes).unwrap().replace("\"version\":1", "\"version\":2");
    assert!(Ledger::parse(&other).is_none());
}

/// Everything that can be told at once, in the longest texts that a condition can have.
#[test]
fn the_file_is_bounded() {
    let (rules, mut ledger) = (rules(), Ledger::default());
    let worst = "\\".repeat(1000);
    let conditions = (0..1000).map(|number| {
        let condition =
            Condition::new(Topic::TargetGone, &"s".repeat(64), 1, &worst).of(&format!("{number}{worst}"));
        condition.detailed(vec![worst.as_str(); 100]).next(&worst).next(&worst).next(&worst)
    });
    let conditions: Vec<Condition> = conditions.collect();
    for condition in &conditions {
        ledger.note(&rules, condition.clone(), Timestamp::EPOCH);
    }
    let views = [SourceView { name: "a".to_owned(), is_settled: true, conditions, undetermined: Vec::new() }];
    ledger.observe(&rules, &views, Timestamp::EPOCH);
    ledger.observe(&rules, &views, Timestamp::from_seconds(60));
    assert!(!ledger.compose(&rules, "nas", "id", Timestamp::EPOCH));
    assert!(ledger.compose(&rules, "nas", "id", Timestamp::from_seconds(60)));
    for condition in &views[0].conditions {
        ledger.note(&rules, condition.clone(), Timestamp::EPOCH);
    }
    let bytes = ledger.bytes();
    assert!((bytes.len() as u64) < gabion_vault::private::MAX_TEXT, "{}", bytes.len());
}

proptest! {
    /// Whatever happens: a condition that holds to the end was told, and nothing is told as lasting that is over.
    #[test]
    fn everything_that_lasts_is_told(
        steps in prop::collection::vec((any::<[bool; 3]>(), 1..2000_i64, any::<bool>()), 1..60)
            .prop_map(|steps| steps.into_iter().collect::<Vec<_>>())
    ) {
        let (rules, mut ledger, mut second) = (rules(), Ledger::default(), 0);
        let topics = [Topic::DamageFound, Topic::Lost, Topic::ChangeSetHeld];
        let mut told = [false; 3];
        let mut seen = |message: Option<Message>| {
            for item in message.iter().flat_map(|message| &message.items) {
                let at = topics.iter().position(|&topic| Some(topic) == item.event).unwrap();
                told[at] = item.change != Change::Ended;
            }
            told
        };
        let mut last = [false; 3];
        for (holds, pause, answers) in steps {
            second += pause;
            last = holds;
            let now: Vec<_> = topics.iter().zip(holds).filter(|it| it.1).map(|it| (*it.0, "", 1)).collect();
            let message = look(&mut ledger, &rules, &view(&now, &[]), second);
            seen(message);
            match answers {
                true => ledger.arrived(Timestamp::from_seconds(second)),
                false => drop(ledger.failed("no", Timestamp::from_seconds(second))),
            }
        }
        let now: Vec<_> = topics.iter().zip(last).filter(|it| it.1).map(|it| (*it.0, "", 1)).collect();
        let mut end = [false; 3];
        for _ in 0..4 {
            ledger.arrived(Timestamp::from_seconds(second));
            second += 400;
            end = seen(look(&mut ledger, &rules, &view(&now, &[]), second));
        }
        prop_assert!(end == last, "{end:?} {last:?}");
    }
}
