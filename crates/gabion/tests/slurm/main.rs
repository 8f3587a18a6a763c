//! Inputs and outputs of jobs, checked and protected by the prolog and the epilog of a real Slurm.

mod cluster;

use cluster::Cluster;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::Path;

/// User and group `nobody`.
const NOBODY: u32 = 65534;

/// Changes bytes of a file; its size and time stay.
fn rot(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"rotten", 5000).unwrap();
    file.set_modified(modified).unwrap();
}

/// A job of an ordinary user starts with its inputs repaired, and its outputs are protected when it has ended. A job
/// whose inputs are missing is held, and does not run; the node stays in service.
#[test]
fn a_job_starts_with_good_inputs_and_its_outputs_are_protected() {
    let Some(cluster) = Cluster::start("a_job_starts_with_good_inputs_and_its_outputs_are_protected") else {
        return;
    };
    let tree = cluster.dir().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let good = vec![7; 100_000];
    for name in ["one", "two"] {
        std::fs::write(tree.join(name), &good).unwrap();
    }
    chown(&tree, Some(NOBODY), Some(NOBODY)).unwrap();
    cluster.gabion(0, &["protect", "tree"]);
    rot(&tree.join("two"));
    cluster.gabion(1, &["scrub", "tree"]);

    std::fs::write(tree.join("inputs.txt"), "one\ntwo\n").unwrap();
    std::fs::write(tree.join("outputs.txt"), "result\n").unwrap();
    let job = "cmp one two && cat one > result";
    let comment = "gabion-inputs=inputs.txt,gabion-outputs=outputs.txt";
    assert_eq!(cluster.job(&tree, comment, job), "COMPLETED");
    assert_eq!(std::fs::read(tree.join("two")).unwrap(), good, "repaired before the job");
    assert_eq!(std::fs::read(tree.join("result")).unwrap(), good);
    gabion_testkit::until("the epilog has protected the output", || cluster.is_unchanged("tree/result"));

    // The input is gone.
    std::fs::remove_file(tree.join("one")).unwrap();
    std::fs::remove_file(tree.join("result")).unwrap();
    let held = cluster.job(&tree, "gabion-inputs=inputs.txt", "touch ran");
    assert_eq!(held, "PENDING", "held");
    assert!(!tree.join("ran").exists());
    // Other jobs run on the node.
    assert_eq!(cluster.job(&tree, "", "touch ran"), "COMPLETED");
    assert!(tree.join("ran").exists());
}

/// The prolog runs as root. A job's list neither makes it read files that the user may not read, nor tells the user
/// which files exist where he may not look.
#[test]
fn a_job_learns_nothing_of_files_of_others() {
    let Some(cluster) = Cluster::start("a_job_learns_nothing_of_files_of_others") else { return };
    let (tree, secret) = (cluster.dir().join("tree"), cluster.dir().join("secret"));
    for dir in [&tree, &secret] {
        std::fs::create_dir(dir).unwrap();
    }
    std::fs::write(secret.join("list"), "missing\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o700)).unwrap();
    chown(&tree, Some(NOBODY), Some(NOBODY)).unwrap();
    cluster.gabion(0, &["protect", "tree"]);
    // A list that the user cannot read: the job starts as one without a list.
    let comment = format!("gabion-inputs={}", secret.join("list").display());
    assert_eq!(cluster.job(&tree, &comment, "true"), "COMPLETED");
    // Names in a directory that he cannot enter: there or not, the job starts.
    for name in ["list", "nothing"] {
        std::fs::write(tree.join("inputs"), format!("{}\n", secret.join(name).display())).unwrap();
        assert_eq!(cluster.job(&tree, "gabion-inputs=inputs", "true"), "COMPLETED", "{name}");
    }
    // In his own directory a missing file holds the job, whatever characters its name has.
    std::fs::write(tree.join("inputs"), "$(touch /tmp/x) `id`; %s\n").unwrap();
    assert_eq!(cluster.job(&tree, "gabion-inputs=inputs", "true"), "PENDING");
}
