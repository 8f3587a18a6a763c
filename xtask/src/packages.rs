//! The Debian packages that the tasks need, and their installation.

use anyhow::{Result, bail};

use crate::shell::Cmd;

/// For the workspace: the libraries it is compared with, what builds and checks them, the font of
/// the charts, the server of the other changelog, a second file system to watch, mounts of users who
/// are not root, the tracer that kills processes at counted system calls, networks of several hosts,
/// OpenCL on the CPU, a scheduler of jobs, two parallel file systems, what builds and checks packages, a browser,
/// the libraries that PyECLib loads, MPI.
const WORKSPACE: &[&str] = &[
    "gcc",
    "make",
    "nasm",
    "autoconf",
    "automake",
    "libtool",
    "pkg-config",
    "libjerasure-dev",
    "libgf-complete-dev",
    "python3",
    "python3-venv",
    "python3-dev",
    "liberasurecode-dev",
    "libisal2",
    "libopenmpi-dev",
    "openmpi-bin",
    "fonts-dejavu-core",
    "openssl",
    "prometheus",
    "chromium",
    "chromium-driver",
    "redis-server",
    "xfsprogs",
    "e2fsprogs",
    "dosfstools",
    "fuse3",
    "strace",
    "iproute2",
    "nftables",
    "pocl-opencl-icd",
    "ocl-icd-opencl-dev",
    "slurmctld",
    "slurmd",
    "slurm-client",
    "munge",
    "moosefs-master",
    "moosefs-chunkserver",
    "moosefs-client",
    "moosefs-cli",
    "glusterfs-server",
    "glusterfs-client",
    "dpkg-dev",
    "man-db",
    "systemd",
];

/// For aarch64: the linker, the C library it links, the processor. Debian's cross compiler only
/// recommends its C library, and recommended packages are not installed here.
const AARCH64: &[&str] = &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static"];

/// For a new Debian system, in which the package is installed.
const INSTALLATION: &[&str] = &["debootstrap"];

/// A set of packages that some task needs.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    Workspace,
    Aarch64,
    Installation,
}

impl Need {
    fn names(self) -> &'static [&'static str] {
        match self {
            Need::Workspace => WORKSPACE,
            Need::Aarch64 => AARCH64,
            Need::Installation => INSTALLATION,
        }
    }
}

/// Makes sure that all packages are there: installs what is missing where it may, and otherwise
/// says what to type.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let names: Vec<&str> = needs.iter().flat_map(|need| need.names()).copied().collect();
    let query = Cmd::new("dpkg-query", ["--show", "--showformat", FORMAT]).args(names.clone());
    let Some(listing) = query.probe() else {
        bail!("dpkg-query is not here, so this is no Debian system; on one, type:\n  {}", by_hand(&names));
    };
    let missing = missing(&names, &listing);
    if missing.is_empty() {
        println!("    all {} Debian packages are installed", names.len());
        return Ok(());
    }
    println!("    missing: {}", missing.join(" "));
    let root = Cmd::new("id", ["-u"]).probe().is_some_and(|id| id.trim() == "0");
    let apt = Cmd::new("apt-get", ["--version"]).probe().is_some();
    if !(root && apt) {
        bail!(
            "{} Debian packages are missing and only root can install them; type:\n  {}",
            missing.len(),
            by_hand(&missing)
        );
    }
    for cmd in [Cmd::new("apt-get", ["update"]), install(&missing)] {
        println!("    {cmd}");
        cmd.run()?;
    }
    Ok(())
}

const FORMAT: &str = "${Package} ${db:Status-Status}\n";

/// True where dpkg says that the package is installed on this machine.
pub(crate) fn installed(name: &str) -> bool {
    let query = Cmd::new("dpkg-query", ["--show", "--showformat", FORMAT, name]);
    query.probe().is_some_and(|listing| missing(&[name], &listing).is_empty())
}

/// The names that dpkg-query's listing does not call installed. A removed package whose settings
/// remain is listed too, with another status.
fn missing<'a>(names: &[&'a str], listing: &str) -> Vec<&'a str> {
    let found = |name: &str| listing.lines().any(|line| line == format!("{name} installed"));
    names.iter().copied().filter(|name| !found(name)).collect()
}

fn install(names: &[&str]) -> Cmd {
    Cmd::new("apt-get", ["install", "--yes", "--no-install-recommends"])
        .args(names.iter().copied())
        .env("DEBIAN_FRONTEND", "noninteractive")
}

fn by_hand(names: &[&str]) -> String {
    format!("apt-get update && apt-get install --no-install-recommends {}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::{by_hand, install, missing};

    #[test]
    fn only_installed_counts_as_there() {
        let listing = "nasm installed\nlibtool config-files\nautoconf installed\n";
        assert_eq!(missing(&["nasm", "libtool", "auto"], listing), ["libtool", "auto"]);
    }

    #[test]
    fn the_missing_packages_are_named_in_what_to_type() {
        assert!(by_hand(&["nasm", "libtool"]).ends_with(" nasm libtool"));
        assert!(
            install(&["nasm"]).to_string().ends_with("apt-get install --yes --no-install-recommends nasm")
        );
    }
}
