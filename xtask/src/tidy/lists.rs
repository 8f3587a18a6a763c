//! Every list of exceptions, in one place.
//!
//! An entry that ends in `/` stands for all files below that directory.

/// Directories that hold nothing of ours: builds, git's own files, output of runs and of fuzzers.
pub(super) const NOT_OURS: &[&str] =
    &[".git", "target", "out", "fuzz/target", "fuzz/corpus", "fuzz/artifacts", "fuzz/coverage"];

/// Endings of the files that rules read.
pub(super) const TEXT: &[&str] = &[".rs", ".md", ".toml", ".py", ".yml"];

/// A longer file asks for a split along a real seam.
pub(super) const MAX_LINES: usize = 600;

/// Files that are longer, with the lines they may have. An entry may only go down: a file that got
/// shorter than its entry is reported until the entry follows.
pub(super) const LONG_FILES: &[(&str, usize)] = &[];

/// Columns of a comment line or a line of prose.
pub(super) const MAX_COLUMNS: usize = 120;

/// Files with wider lines, with the number of lines that they may have. An entry may only go down, like those above;
/// `cargo xtask tidy --wide-files` prints the entries as they should be.
pub(super) const WIDE_FILES: &[(&str, usize)] = &[
    ("CHANGELOG.md", 8),
    ("bench/README.md", 3),
    ("bench/src/commands/gpu/table.rs", 1),
    ("crates/changelog/README.md", 4),
    ("crates/changelog/src/absent.rs", 1),
    ("crates/changelog/src/busy.rs", 3),
    ("crates/changelog/src/database.rs", 8),
    ("crates/changelog/src/embedded.rs", 9),
    ("crates/changelog/src/embedded/backlog.rs", 2),
    ("crates/changelog/src/embedded/claims.rs", 1),
    ("crates/changelog/src/embedded/fold.rs", 1),
    ("crates/changelog/src/embedded/log.rs", 1),
    ("crates/changelog/src/entry.rs", 1),
    ("crates/changelog/src/lib.rs", 21),
    ("crates/changelog/src/model.rs", 1),
    ("crates/changelog/src/queue.rs", 2),
    ("crates/changelog/src/redis.rs", 4),
    ("crates/changelog/src/redis/address.rs", 4),
    ("crates/changelog/src/redis/link.rs", 3),
    ("crates/changelog/src/server.rs", 2),
    ("crates/changelog/tests/changelog/redis.rs", 3),
    ("crates/device/README.md", 3),
    ("crates/device/src/lib.rs", 6),
    ("crates/device/src/rates.rs", 1),
    ("crates/engine/README.md", 4),
    ("crates/engine/src/backends.rs", 1),
    ("crates/engine/src/kernel/generic/transform.rs", 1),
    ("crates/engine/src/matrix/cauchy.rs", 1),
    ("crates/engine/src/matrix/generators.rs", 1),
    ("crates/forecast/README.md", 3),
    ("crates/forecast/src/lib.rs", 1),
    ("crates/gabion/tests/crash/fixture.rs", 1),
    ("crates/gabion/tests/crash/main.rs", 3),
    ("crates/gabion/tests/crash/mounted.rs", 3),
    ("crates/gabion/tests/crash/names.rs", 2),
    ("crates/gabion/tests/crash/plain.rs", 2),
    ("crates/gabion/tests/crash/pool.rs", 2),
    ("crates/gabion/tests/crash/repaired.rs", 2),
    ("crates/gabion/tests/crash/writers.rs", 1),
    ("crates/gabion/tests/daemon/daemon/control.rs", 1),
    ("crates/gabion/tests/daemon/daemon/faults.rs", 2),
    ("crates/gabion/tests/daemon/daemon/pool.rs", 2),
    ("crates/gabion/tests/histories/answers.rs", 10),
    ("crates/gabion/tests/histories/checks.rs", 1),
    ("crates/gabion/tests/histories/history.rs", 3),
    ("crates/gabion/tests/histories/main.rs", 5),
    ("crates/gabion/tests/histories/tank.rs", 1),
    ("crates/gabion/tests/mount/durable.rs", 3),
    ("crates/gabion/tests/mount/fixture.rs", 1),
    ("crates/gabion/tests/mount/ordinary.rs", 2),
    ("crates/gabion/tests/mount/others.rs", 7),
    ("crates/gabion/tests/mount/output.rs", 1),
    ("crates/gabion/tests/mount/privileges.rs", 1),
    ("crates/gabion/tests/mount/protection.rs", 2),
    ("crates/gabion/tests/mount/renamed.rs", 3),
    ("crates/gabion/tests/mount/rights.rs", 1),
    ("crates/gabion/tests/mount/rot.rs", 2),
    ("crates/gabion/tests/mount/wanderers.rs", 2),
    ("crates/gabion/tests/power/main.rs", 3),
    ("crates/gabion/tests/power/mounted.rs", 1),
    ("crates/gabion/tests/power/plain.rs", 2),
    ("crates/gabion/tests/power/pool.rs", 2),
    ("crates/gabion/tests/shard/disorder.rs", 2),
    ("crates/gabion/tests/vault/devices.rs", 1),
    ("crates/gabion/tests/vault/faults.rs", 2),
    ("crates/gabion/tests/vault/hostile.rs", 3),
    ("crates/gabion/tests/vault/json.rs", 1),
    ("crates/gabion/tests/vault/output.rs", 3),
    ("crates/gabion/tests/vault/pointer.rs", 5),
    ("crates/gabion/tests/vault/readme.rs", 1),
    ("crates/gabion/tests/vault/rebuild.rs", 1),
    ("crates/gabion/tests/vault/tls.rs", 1),
    ("crates/gabion/tests/vault/tour.rs", 2),
    ("crates/gpu/README.md", 5),
    ("crates/mount/src/directory.rs", 1),
    ("crates/mount/tests/pool/crash.rs", 4),
    ("crates/mount/tests/pool/disks.rs", 2),
    ("crates/mount/tests/pool/failing.rs", 2),
    ("crates/mount/tests/pool/fixture.rs", 1),
    ("crates/mount/tests/pool/links.rs", 2),
    ("crates/mount/tests/pool/pulled.rs", 4),
    ("crates/mount/tests/pool/versions.rs", 5),
    ("crates/platform/README.md", 4),
    ("crates/platform/src/display_path.rs", 1),
    ("crates/platform/src/fault.rs", 2),
    ("crates/platform/src/lib.rs", 2),
    ("crates/platform/src/open_files.rs", 1),
    ("crates/platform/src/private.rs", 2),
    ("crates/platform/src/tree.rs", 7),
    ("crates/platform/src/tree/durable.rs", 5),
    ("crates/platform/src/tree/ownership.rs", 9),
    ("crates/platform/src/world.rs", 1),
    ("crates/shard/README.md", 1),
    ("crates/shard/src/lib.rs", 4),
    ("crates/shard/src/pipeline.rs", 3),
    ("crates/shard/src/repair.rs", 1),
    ("crates/shard/src/verify.rs", 1),
    ("crates/testkit/README.md", 2),
    ("crates/vault/src/coder.rs", 2),
    ("crates/vault/src/coder/device.rs", 2),
    ("crates/vault/src/displaced.rs", 1),
    ("crates/vault/src/protect.rs", 2),
    ("crates/vault/src/status.rs", 1),
    ("crates/vault/src/storage/pool.rs", 2),
    ("crates/vault/src/storage/pool/recovery.rs", 3),
    ("crates/vault/src/storage/pool/sequence.rs", 5),
    ("docs/ARCHITECTURE.md", 18),
    ("docs/internals/decisions/0001-dependencies.md", 1),
    ("docs/internals/decisions/0005-redundancy-beside-the-file.md", 1),
    ("docs/internals/papers.md", 15),
    ("docs/notes/vault.md", 9),
    ("docs/reference/security.md", 1),
    ("xtask/src/aarch64.rs", 4),
    ("xtask/src/dependencies.rs", 1),
    ("xtask/src/flaky.rs", 4),
    ("xtask/src/flaky/load.rs", 1),
    ("xtask/src/flaky/suite.rs", 3),
    ("xtask/src/flaky/tally.rs", 3),
    ("xtask/src/gpu_check.rs", 2),
    ("xtask/src/readme.rs", 1),
    ("xtask/src/tidy/code.rs", 2),
    ("xtask/src/tidy/lists.rs", 3),
    ("xtask/src/tidy/order.rs", 1),
];

/// Where `unsafe` may be written: vector kernels, the calls of compiled code, the bindings to other
/// people's libraries, and the tests that place buffers against guard pages.
pub(super) const UNSAFE_ROOMS: &[&str] = &[
    "crates/engine/src/kernel/",
    "crates/engine/src/compiler/cache.rs",
    "crates/engine/src/compiler/kernel.rs",
    "crates/engine/src/compiler/kernel/signing.rs",
    "crates/engine/src/compiler/measure/pages.rs",
    "crates/engine/src/compiler/no_kernel.rs",
    "crates/engine/src/compiler/routine.rs",
    "crates/engine/tests/",
    "crates/platform/src/direct.rs",
    "crates/platform/src/fanotify/calls.rs",
    "crates/platform/src/thread.rs",
    "crates/platform/src/mapping.rs",
    "crates/platform/src/memory.rs",
    "crates/platform/src/window.rs",
    "crates/platform/src/window/tests.rs",
    "crates/gpu/src/cuda/",
    "crates/gpu/src/opencl/",
    "bench/src/isal.rs",
    "bench/src/jerasure.rs",
    "bench/src/parpar.rs",
];

/// Where environment variables may be read while running: the choice of kernel, repositories that are trusted whoever owns them, passwords, a
/// test that runs itself in another namespace, the build of the program that benches run, and the tasks.
pub(super) const ENVIRONMENT_ROOMS: &[&str] = &[
    KERNEL_TABLE,
    "crates/platform/src/tree/ownership.rs",
    "crates/changelog/src/redis/address.rs",
    "crates/vault/src/worker/identity.rs",
    "bench/src/program.rs",
    "xtask/src/",
    "crates/testkit/src/",
    "crates/gabion/tests/mount/posix.rs",
    "crates/mount/tests/pool/suites.rs",
];

/// The program whose output must not panic.
pub(super) const PROGRAM: &str = "crates/gabion/src/";

/// Where the program may use standard output itself: the module for all messages, and the two commands that write the content of
/// a file to it.
pub(super) const OUTPUT_ROOMS: &[&str] =
    &["crates/gabion/src/output.rs", "crates/gabion/src/commands/pool/get.rs"];

/// Where clocks may be read: the race between kernels, threads that look for work for a moment, the protector's one door, the
/// benchmarks, and the tasks' times.
pub(super) const CLOCK_ROOMS: &[&str] = &[
    KERNEL_TABLE,
    "crates/engine/src/kernel/threads/pool.rs",
    "crates/platform/src/world.rs",
    "crates/changelog/src/measure.rs",
    "crates/device/src/measure.rs",
    "crates/gpu/src/opencl/measure.rs",
    "bench/",
    "xtask/src/programs.rs",
    "xtask/src/steps.rs",
    "crates/testkit/src/waiting.rs",
];

/// The file with the one list of kernels, and the type of its entries.
pub(super) const KERNEL_TABLE: &str = "crates/engine/src/kernel/table.rs";
pub(super) const KERNEL_ROW: &str = "KernelSet";

/// Words that name no thing: what is in a file called so can only be found by opening it.
pub(super) const EMPTY_NAMES: &[&str] = &["manager", "service", "helper", "util", "common"];
