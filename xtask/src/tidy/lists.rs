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

/// Files without a limit: the changelog grows with every change.
pub(super) const ENDLESS: &[&str] = &["CHANGELOG.md"];

/// Files that are longer, with the lines they may have. An entry may only go down: a file that got
/// shorter than its entry is reported until the entry follows.
pub(super) const LONG_FILES: &[(&str, usize)] = &[];

/// Columns of a comment line or a line of prose.
pub(super) const MAX_COLUMNS: usize = 120;

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
    "crates/platform/src/lease.rs",
    "crates/platform/src/thread.rs",
    "crates/platform/src/mapping.rs",
    "crates/platform/src/memory.rs",
    "crates/platform/src/project.rs",
    "crates/platform/src/window.rs",
    "crates/platform/src/window/tests.rs",
    "crates/gpu/src/cuda/",
    "crates/gpu/src/opencl/",
    // Functions for C programs: all arguments are pointers.
    "bindings/c/src/",
    "bindings/isal/src/",
    "bindings/jerasure/src/",
    // Memory of Python objects.
    "bindings/python/src/buffers.rs",
    "bench/src/isal.rs",
    "bench/src/jerasure.rs",
    "bench/src/libgabion.rs",
    "bench/src/parpar.rs",
];

/// Where environment variables may be read while running: the choice of kernel, repositories that are trusted whoever
/// owns them, passwords, what commands of the configuration inherit, the cache directory, a test that runs itself in
/// another namespace, the build of the program that benches run, and the tasks.
pub(super) const ENVIRONMENT_ROOMS: &[&str] = &[
    KERNEL_TABLE,
    "crates/platform/src/tree/ownership.rs",
    "crates/changelog/src/redis/address.rs",
    "crates/vault/src/identity.rs",
    "crates/vault/src/vault/copies.rs",
    "crates/gabion/src/daemon/secret.rs",
    "crates/gabion/src/daemon/child.rs",
    "bench/src/program.rs",
    "xtask/src/",
    "crates/testkit/src/",
    "crates/gabion/tests/mount/posix.rs",
    "crates/mount/tests/pool/suites.rs",
];

/// The program whose output must not panic.
pub(super) const PROGRAM: &str = "crates/gabion/src/";

/// Where the program may use standard output itself: the module for all messages, and the two commands that write the
/// content of a file to it.
pub(super) const OUTPUT_ROOMS: &[&str] =
    &["crates/gabion/src/output.rs", "crates/gabion/src/commands/pool/get.rs"];

/// Where clocks may be read: the race between kernels, threads that look for work for a moment, the protector's one
/// door, the benchmarks, and the tasks' times.
pub(super) const CLOCK_ROOMS: &[&str] = &[
    KERNEL_TABLE,
    "crates/engine/src/kernel/threads/pool.rs",
    "crates/platform/src/world.rs",
    "crates/changelog/src/measure.rs",
    // Deadlines of foreign programs.
    "crates/cluster/src/tool.rs",
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
