//! A deployment as the user that the guide makes on the server.

use crate::network::Network;
use crate::worker::Follower;
use gabion_testkit::until;

const GUIDE: &str = include_str!("../../../../docs/guide/several-hosts.md");

/// The rules that the guide gives the user.
fn rules() -> Vec<&'static str> {
    let (_, rest) = GUIDE.split_once("ACL SETUSER gabion").expect("the guide makes a user");
    let (command, _) = rest.split_once("```").expect("the end of the command");
    let words = command.split_whitespace().map(|word| word.trim_matches('\''));
    words.skip_while(|word| *word != "resetchannels").filter(|word| *word != "\\").collect()
}

const ADDRESS: &str = "redis://gabion@10.99.0.1:6379";

#[test]
fn a_deployment_runs_as_the_user_of_the_guide() {
    let Some(network) = Network::new("a_deployment_runs_as_the_user_of_the_guide", 2) else { return };
    let ask = |question: &[&str]| network.ask_server("6379", question).expect("an answer");
    // With the password that all programs have.
    let made = [&["acl", "setuser", "gabion", "reset", "on", ">correct-horse"][..], &rules()].concat();
    assert_eq!(ask(&made), "OK\n");
    let tree = network.tree().with_file_name("restricted");
    std::fs::create_dir(&tree).unwrap();
    let write =
        |name: &str, fill: u8, size: usize| std::fs::write(tree.join(name), vec![fill; size]).unwrap();
    (0..20).for_each(|number| write(&number.to_string(), number, 3000));
    write("large", 7, 3 << 20);
    let run = |host: usize, code: i32, args: &[&str]| {
        let output = network.expect(host, code, args);
        String::from_utf8(output.stdout).unwrap()
    };
    run(1, 0, &["protect", "restricted", "--code", "2+1", "--changelog", ADDRESS]);
    let policy = "[default]\ncode = \"2+1\"\nquiet = \"1s\"\n[guard]\nat_least = 5\n";
    std::fs::write(tree.join(".gabion/policy.toml"), policy).unwrap();
    run(1, 0, &["protect", "restricted"]);
    // Mounts on two hosts write, a worker encodes only what they wrote.
    let mut mounts: Vec<Follower> = (1..=2)
        .map(|host| {
            let at = format!("mnt{host}");
            std::fs::create_dir(tree.with_file_name(&at)).unwrap();
            let mut mount = network.monitor(host, "mount", "restricted", &[&at, "--json", "--workers", "0"]);
            mount.wait_for("mounted");
            mount
        })
        .collect();
    for (host, mount) in (1..).zip(&mounts) {
        let place = mount.sees(&tree.canonicalize().unwrap().with_file_name(format!("mnt{host}")));
        std::fs::write(place.join(format!("new{host}")), "new").unwrap();
        use std::os::unix::fs::FileExt;
        let large = std::fs::File::options().write(true).open(place.join("large")).unwrap();
        large.write_all_at(b"changed", 1000 * host).unwrap();
        std::fs::rename(place.join(host.to_string()), place.join(format!("renamed{host}"))).unwrap();
    }
    let command = network.gabion(2, &["work", "restricted", "--follow", "--json", "--threads", "1"]);
    let mut worker = Follower::spawn(command, tree.parent().unwrap(), "restricted");
    worker.wait_for("started");
    until("it encodes what was written", || worker.encoded() >= 3);
    mounts.iter_mut().for_each(Follower::end);
    run(1, 0, &["protect", "restricted"]);
    // The worker helps with a scrub and with a repair.
    let damaged = std::fs::read(tree.join("large")).unwrap();
    let times = std::fs::metadata(tree.join("large")).unwrap().modified().unwrap();
    write("large", 0, 100_000);
    let file = std::fs::File::options().write(true).open(tree.join("large")).unwrap();
    file.set_len(damaged.len() as u64).unwrap();
    file.set_times(std::fs::FileTimes::new().set_modified(times)).unwrap();
    run(1, 3, &["scrub", "restricted"]);
    std::fs::write(tree.join("large"), &damaged).unwrap();
    run(1, 0, &["protect", "restricted"]);
    run(1, 0, &["repair", "restricted", "--yes"]);
    for options in [
        &["--set-limits", "host2", "--limit", "100MiB/s", "--at-once", "2"][..],
        &["--drain", "host2"],
        &["--resume", "host2"],
        &["--list"],
        &["--remove-limits", "host2"],
    ] {
        run(1, 0, &[&["work", "restricted"], options].concat());
    }
    // A held change-set and its approval.
    (3..10).for_each(|number| std::fs::remove_file(tree.join(number.to_string())).unwrap());
    let held = run(1, 1, &["protect", "restricted", "--json"]);
    let held: serde_json::Value = serde_json::from_str(&held).unwrap();
    run(2, 0, &["approve", held["held"]["digest"].as_str().unwrap(), "restricted"]);
    run(1, 0, &["protect", "restricted"]);
    run(1, 0, &["catalogue", "rebuild", "restricted"]);
    worker.stop();
    run(1, 0, &["changelog", "move", "restricted", "--to", "embedded"]);
    run(1, 0, &["changelog", "move", "restricted", "--to", ADDRESS]);
    run(1, 0, &["protect", "restricted"]);
    run(2, 0, &["scrub", "restricted"]);
    run(2, 0, &["status", "restricted"]);
    assert_eq!(ask(&["acl", "log"]), "\n", "nothing was refused");
}
