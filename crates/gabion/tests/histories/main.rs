//! Random histories of a pool, made by commands and compared with a model after every round.
//!
//! Files are put, replaced, removed, moved, exchanged and rotated; the pool is protected, scrubbed, repaired, rebuilt
//! and healed. Meanwhile up to m targets go, come back, are put back to an earlier copy or corrupted, and commands
//! are killed before a change of files (`kill -9`). After every round the names are exactly the model's, every
//! acknowledged byte can be read, no other byte is given out, and what `status`, `pool status`, `whatif`, `scrub` and
//! `pool rebuild` say is true, by text, exit code and JSON.
//!
//! `GABION_HISTORY_SEED` is the number of the first history and `GABION_HISTORY_ROUNDS` the number of all rounds; a
//! history has 50.

mod answers;
mod checks;
#[path = "../vault/corruption.rs"]
mod corruption;
#[allow(dead_code, reason = "the suite that kills commands uses all of it")]
#[path = "../crash/fixture.rs"]
mod fixture;
mod history;
mod model;
mod tank;
#[allow(dead_code, reason = "other suites draw bytes from it")]
#[path = "../vault/test_rng.rs"]
mod test_rng;

use gabion_testkit::chosen;
use gabion_testkit::kill::can_kill;
use history::History;

/// Rounds of one history. A new history begins with another pool.
const ROUNDS: u64 = 50;

/// For everybody with a pool: whatever happens to at most m targets, and whenever a command is killed, no
/// acknowledged byte is lost and no command says what is not so.
#[test]
fn pools_match_the_model() {
    if !can_kill("pools_match_the_model") {
        return;
    }
    let (first, rounds) = (chosen("GABION_HISTORY_SEED", 1), chosen("GABION_HISTORY_ROUNDS", 50));
    for (number, begun) in (first..).zip((0..rounds).step_by(ROUNDS as usize)) {
        let mut history = History::new(number);
        for round in 0..ROUNDS.min(rounds - begun) {
            history.round(round);
        }
        history.settle();
        history.check();
        println!("history {number}: {:?}", history.counts);
    }
}
