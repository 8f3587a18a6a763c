//! Distributed encoding, repair and verification: the example for MPI on eight ranks of this machine.

use std::path::Path;
use std::process::Command;

const RANKS: usize = 8;
const REDUNDANCY: usize = 3;
const BYTES: usize = 1 << 20;

/// Bytes on the wire may exceed what the tree of sums needs by this factor: headers of TCP and of MPI.
const MOST: f64 = 1.05;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}

/// The number after a word.
fn number(text: &str, word: &str) -> f64 {
    let mut words = text.split_whitespace().skip_while(|it| *it != word);
    words.nth(1).unwrap_or_else(|| panic!("no {word} in {text}")).parse().unwrap()
}

#[test]
fn ranks_encode_repair_and_verify_together() {
    const NAME: &str = "ranks_encode_repair_and_verify_together";
    for (program, arguments) in
        [("mpicc.openmpi", &["--version"][..]), ("unshare", &["--user", "--map-root-user", "--net", "true"])]
    {
        let found = Command::new(program).args(arguments).output();
        if !found.is_ok_and(|output| output.status.success()) {
            return gabion_testkit::skip(NAME, format!("{program} does not work here"));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let library = std::env::current_exe().unwrap().with_file_name("libgabion_c.so");
    for name in ["libgabion.so", "libgabion.so.1"] {
        std::os::unix::fs::symlink(&library, path.join(name)).unwrap();
    }
    let program = path.join("mpi");
    run(Command::new("mpicc.openmpi")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "-std=gnu11",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Wno-sign-compare",
            "-Iinclude",
            "examples/mpi.c",
            "-o",
        ])
        .args([&program, Path::new("-L"), path])
        .arg("-lgabion"));
    for family in ["subspace", "rs-vandermonde"] {
        let said = ranks(path, &program, family);
        assert!(said.starts_with(&format!("{family}:{RANKS}+{REDUNDANCY}:w8 ")), "{said}");
        let block = BYTES as f64;
        // Equation 2.31 of the thesis, per node: each of the redundancy blocks in log k steps.
        let most = REDUNDANCY as f64 * block * (RANKS as f64).log2();
        let sent = number(&said, "encode") / RANKS as f64;
        assert!(sent <= MOST * most, "{sent} bytes per node, equation 2.31 has {most}: {said}");
        // Every rank but the last sends at least one block of each sum on its way.
        let least = REDUNDANCY as f64 * block * (RANKS - 1) as f64;
        assert!(number(&said, "encode") >= least, "the counter does not see what ranks send: {said}");
        let repair = number(&said, "repair") / RANKS as f64;
        assert!(repair <= MOST * block * (RANKS as f64).log2(), "{said}");
        // Signatures of two blocks per rank, and what barriers cost: far less than a block.
        assert!(number(&said, "verify") < block / 8.0, "{said}");
    }
}

/// Runs the program in a network of its own, so that its loopback interface counts nothing else.
fn ranks(directory: &Path, program: &Path, family: &str) -> String {
    let script = format!(
        "ip link set lo up && mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n {RANKS} \
         --mca btl tcp,self --mca btl_tcp_if_include lo --mca pml ob1 --mca oob_tcp_if_include lo \
         --mca mpi_yield_when_idle 1 --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_reduce_algorithm 5 \
         \"$0\" {REDUNDANCY} {BYTES} {family}"
    );
    run(Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", &script])
        .arg(program)
        .env("LD_LIBRARY_PATH", directory)
        .env("TMPDIR", directory))
}
