//! Decisions over time.

use super::{Decision, Policy, TargetName, TargetPresence, TooMany, Watchdog, agreement};
use crate::world::Timestamp;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use std::time::Duration;

const POLICY: Policy = Policy { delay: Duration::from_nanos(100), redundancy: 2, share: 50 };

fn pool(presences: &[TargetPresence]) -> Vec<(TargetName, TargetPresence)> {
    presences
        .iter()
        .enumerate()
        .map(|(at, &presence)| (format!("d{}", at + 1).parse().unwrap(), presence))
        .collect()
}

fn names(numbers: &[usize]) -> Vec<TargetName> {
    numbers.iter().map(|number| format!("d{number}").parse().unwrap()).collect()
}

const P: TargetPresence = TargetPresence::Present;
const G: TargetPresence = TargetPresence::Gone;
const U: TargetPresence = TargetPresence::GivenUp;
const B: TargetPresence = TargetPresence::Returned;

#[test]
fn a_target_is_noticed_waited_for_and_rebuilt() {
    let mut dog = Watchdog::new("p", POLICY);
    let all = [P; 8];
    assert_eq!(dog.decide(Timestamp::EPOCH, &pool(&all)), Decision::Nothing);
    let one = [P, P, G, P, P, P, P, P];
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(10), &pool(&one)),
        Decision::Notice { gone: names(&[3]), until: Timestamp::from_nanoseconds(110) }
    );
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(109), &pool(&one)),
        Decision::Notice { gone: names(&[3]), until: Timestamp::from_nanoseconds(110) }
    );
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(110), &pool(&one)),
        Decision::Rebuild { targets: names(&[3]) }
    );
    for presence in [U, TargetPresence::Replaced] {
        let done = [P, P, presence, P, P, P, P, P];
        assert_eq!(dog.decide(Timestamp::from_nanoseconds(120), &pool(&done)), Decision::Nothing);
    }
    let back = [P, P, B, P, P, P, P, P];
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(130), &pool(&back)),
        Decision::Reconcile { targets: names(&[3]) }
    );
}

#[test]
fn one_that_comes_back_in_time_begins_anew() {
    let mut dog = Watchdog::new("p", POLICY);
    let one = [G, P, P, P, P, P, P, P];
    dog.decide(Timestamp::EPOCH, &pool(&one));
    assert_eq!(dog.decide(Timestamp::from_nanoseconds(99), &pool(&[P; 8])), Decision::Nothing);
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(101), &pool(&one)),
        Decision::Notice { gone: names(&[1]), until: Timestamp::from_nanoseconds(201) }
    );
    // The clock is set back: the delay is neither shortened nor extended.
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(50), &pool(&one)),
        Decision::Notice { gone: names(&[1]), until: Timestamp::from_nanoseconds(150) }
    );
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(150), &pool(&one)),
        Decision::Rebuild { targets: names(&[1]) }
    );
}

#[test]
fn of_two_the_first_is_rebuilt_while_the_second_is_waited_for() {
    let mut dog = Watchdog::new("p", POLICY);
    dog.decide(Timestamp::EPOCH, &pool(&[G, P, P, P, P, P]));
    let two = [G, G, P, P, P, P];
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(60), &pool(&two)),
        Decision::Notice { gone: names(&[1, 2]), until: Timestamp::from_nanoseconds(100) }
    );
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(100), &pool(&two)),
        Decision::Rebuild { targets: names(&[1]) }
    );
}

#[test]
fn mass_failure_waits_for_a_person_who_saw_this_very_set() {
    let mut dog = Watchdog::new("p", POLICY);
    let three = [G, G, G, P, P, P, P, P];
    assert!(matches!(dog.decide(Timestamp::EPOCH, &pool(&three)), Decision::Notice { .. }));
    let Decision::Ask { gone, agreement: asked, why } =
        dog.decide(Timestamp::from_nanoseconds(100), &pool(&three))
    else {
        panic!("a person must be asked")
    };
    assert_eq!((gone, why), (names(&[1, 2, 3]), TooMany::Redundancy { gone: 3, redundancy: 2 }));
    dog.agree("something else");
    assert!(matches!(dog.decide(Timestamp::from_nanoseconds(101), &pool(&three)), Decision::Ask { .. }));
    dog.agree(&asked);
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(102), &pool(&three)),
        Decision::Rebuild { targets: names(&[1, 2, 3]) }
    );
    // One more lost target is another set, even if the others were given up meanwhile.
    let four = [U, U, U, G, P, P, P, P];
    assert!(matches!(dog.decide(Timestamp::from_nanoseconds(103), &pool(&four)), Decision::Notice { .. }));
    assert!(matches!(dog.decide(Timestamp::from_nanoseconds(300), &pool(&four)), Decision::Ask { .. }));
    // Once no file misses them, one more lost target is a single one.
    let replaced =
        [TargetPresence::Replaced, TargetPresence::Replaced, TargetPresence::Replaced, G, P, P, P, P];
    assert_eq!(
        dog.decide(Timestamp::from_nanoseconds(301), &pool(&replaced)),
        Decision::Rebuild { targets: names(&[4]) }
    );
}

#[test]
fn a_large_share_is_mass_failure_as_well() {
    let mut dog = Watchdog::new("p", Policy { redundancy: 4, ..POLICY });
    let three = [G, G, G, P, P];
    dog.decide(Timestamp::EPOCH, &pool(&three));
    let decision = dog.decide(Timestamp::from_nanoseconds(100), &pool(&three));
    assert!(matches!(decision, Decision::Ask { why: TooMany::Share { gone: 3, all: 5, share: 50 }, .. }));
    let two = [G, G, P, P, P];
    assert!(matches!(dog.decide(Timestamp::from_nanoseconds(101), &pool(&two)), Decision::Rebuild { .. }));
}

#[test]
fn agreements_are_to_a_set_of_one_pool() {
    let [a, b, ab] = ["a", "b", "ab"].map(|name| name.parse().unwrap());
    assert_eq!(agreement("p", [&a, &b]), agreement("p", [&b, &a]));
    assert_ne!(agreement("p", [&a, &b]), agreement("p", [&ab]));
    assert_ne!(agreement("p", [&a]), agreement("q", [&a]));
}

proptest! {
    /// Nothing is given up before its delay, nor more than m targets without confirmation.
    #[test]
    fn never_too_early_and_never_too_many(steps in proptest::collection::vec((1u64..60, any::<u16>()), 1..40)) {
        let mut dog = Watchdog::new("p", POLICY);
        let (mut now, mut since) = (Timestamp::EPOCH, [Timestamp::MAX; 8]);
        for (passed, mask) in steps {
            now += Duration::from_nanos(passed);
            // Two bits per target; most targets are present.
            let presence = |at: usize| if mask >> (2 * at) & 3 == 3 { G } else { P };
            let presences: Vec<TargetPresence> = (0..8).map(presence).collect();
            for (since, presence) in since.iter_mut().zip(&presences) {
                *since = if *presence == G { (*since).min(now) } else { Timestamp::MAX };
            }
            let gone = presences.iter().filter(|presence| **presence == G).count();
            match dog.decide(now, &pool(&presences)) {
                Decision::Rebuild { targets } => {
                    prop_assert!(gone <= POLICY.redundancy);
                    for name in targets {
                        let at: usize = name[1..].parse().unwrap();
                        prop_assert!(now.since(since[at - 1]) >= POLICY.delay);
                    }
                }
                Decision::Nothing => prop_assert_eq!(gone, 0),
                Decision::Ask { .. } => prop_assert!(gone > POLICY.redundancy),
                _ => prop_assert!(gone > 0),
            }
        }
    }
}
