//! Administrators who approve held change-sets at the same time.

use crate::network::Network;
use crate::suspended::Traced;
use gabion_testkit::kill::can_kill;
use serde_json::Value;

/// More than may disappear at once.
const MANY: usize = 6;

const FILES: usize = 20;

fn remove(network: &Network, from: usize) {
    (from..from + MANY)
        .for_each(|number| std::fs::remove_file(network.tree().join(number.to_string())).unwrap());
}

/// The digest of the change-set that a host holds.
fn held(network: &Network, host: usize) -> String {
    let output = network.expect(host, 1, &["protect", "tree", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["held"]["digest"].as_str().unwrap().to_owned()
}

fn redundancy(network: &Network) -> usize {
    (0..FILES).filter(|number| network.redundancy(&number.to_string()).exists()).count()
}

fn approvals(network: &Network) -> usize {
    std::fs::read_dir(network.tree().join(".gabion/approved")).map_or(0, Iterator::count)
}

/// An administrator approves what he saw while another one, who sees more, approves that. Each approval is for its
/// change-set only, and none is left over for a later one.
fn approve_at_once(network: &Network, number: usize, other: usize) {
    let policy = "[default]\ncode = \"2+1\"\n[guard]\nat_least = 5\n";
    std::fs::write(network.tree().join(".gabion/policy.toml"), policy).unwrap();
    for number in 0..FILES {
        std::fs::write(network.tree().join(number.to_string()), vec![number as u8; 3000]).unwrap();
    }
    network.expect(1, 0, &["protect", "tree"]);
    remove(network, 0);
    let first = held(network, 1);
    // It has looked at the tree, and has not noted the approval yet.
    let approve = ["approve", first.as_str(), "tree"];
    let mut slow = Traced::new(network, number, "inject=mkdirat:signal=STOP:when=1", &approve);
    assert!(slow.is_stopped());
    remove(network, MANY);
    let second = held(network, other);
    assert_ne!(first, second);
    let refused = network.expect(other, 2, &["approve", &first, "tree"]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains(&format!("held now is {second}, not this one")), "{why}");
    slow.wake();
    slow.end_with(&[0]);
    // The approval of the first one is there, and counts for nothing.
    assert_eq!((held(network, 1), approvals(network), redundancy(network)), (second.clone(), 1, FILES));
    let both = [1, other].map(|host| network.gabion(host, &["approve", &second, "tree"]).spawn().unwrap());
    for mut approving in both {
        assert!(approving.wait().unwrap().success());
    }
    network.expect(other, 0, &["protect", "tree"]);
    assert_eq!((approvals(network), redundancy(network)), (0, FILES - 2 * MANY));
    for digest in [&first, &second] {
        let refused = network.expect(1, 2, &["approve", digest, "tree"]);
        assert!(String::from_utf8(refused.stderr).unwrap().contains("no change-set is held"));
    }
    // The next one is held again.
    remove(network, 2 * MANY);
    held(network, 1);
    assert_eq!(redundancy(network), FILES - 2 * MANY);
}

#[test]
fn an_approval_is_for_one_change_set() {
    let test = "an_approval_is_for_one_change_set";
    if !can_kill(test) {
        return;
    }
    let Some(network) = Network::new(test, 2) else { return };
    approve_at_once(&network, 0, 2);
    drop(network);
    let Some(network) = Network::new(test, 1) else { return };
    network.expect(1, 0, &["changelog", "move", "tree", "--to", "embedded"]);
    approve_at_once(&network, 1, 1);
}
