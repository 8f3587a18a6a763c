//! Files with equal content that several hosts protect: they share redundancy, whoever changes them.

use crate::network::Network;
use serde_json::Value;

const SIZE: usize = 400_000;

const POLICY: &str = "[default]\ncode = \"2+1\"\nquiet = \"0s\"\nshare_duplicates = true\n";

fn write(network: &Network, name: &str, byte: u8) {
    let content: Vec<u8> = (0..SIZE).map(|at| byte ^ (at / 7) as u8).collect();
    std::fs::write(network.tree().join(name), content).unwrap();
}

fn json(network: &Network, host: usize, args: &[&str]) -> Value {
    let output = network.gabion(host, &[args, &["--json"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "host {host}, gabion {}: {output:?}", args.join(" "));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every host finds all intact, and as many files that share.
fn assert_shared(network: &Network, files: u64) {
    for host in 0..3 {
        assert_eq!(json(network, host, &["status", "tree"])["shared"]["files"], files, "host {host}");
        assert_eq!(
            json(network, host, &["scrub", "tree"])["damage"],
            Value::Array(Vec::new()),
            "host {host}"
        );
    }
}

#[test]
fn hosts_share_redundancy_of_equal_files() {
    let Some(network) = Network::new("hosts_share_redundancy_of_equal_files", 2) else { return };
    std::fs::write(network.tree().join("../policy.toml"), POLICY).unwrap();
    ["a", "b", "c"].into_iter().for_each(|name| write(&network, name, 1));
    // Two hosts protect at once, and one of them waits.
    let protect = ["protect", "tree", "--policy", "policy.toml", "--wait", "--json"];
    let commands = [1, 2].map(|host| network.gabion(host, &protect).spawn().unwrap());
    for command in commands {
        let output = command.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    assert_shared(&network, 3);
    // A worker of one host changes what another one made; the next protect of a third counts.
    write(&network, "b", 2);
    network.expect(2, 0, &["protect", "tree/b"]);
    assert_shared(&network, 2);
    std::fs::rename(network.tree().join("a"), network.tree().join("d")).unwrap();
    write(&network, "e", 2);
    network.expect(1, 0, &["protect", "tree"]);
    assert_shared(&network, 4);
    std::fs::remove_file(network.tree().join("c")).unwrap();
    network.expect(0, 0, &["protect", "tree"]);
    assert_shared(&network, 3);
}
