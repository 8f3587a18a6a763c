//! The Debian package tried in a new Debian system: installed, run, upgraded, removed, purged.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{fresh, text, write};
use crate::shell::Cmd;

/// Oldest release that the package is for.
const RELEASE: &str = "bookworm";

/// Names a mirror of Debian; the default is that of debootstrap.
const MIRROR: &str = "GABION_DEBIAN_MIRROR";

/// A new Debian system in a directory.
struct System {
    root: PathBuf,
}

impl System {
    /// Installs one with debootstrap; the next one is a copy of it.
    fn new() -> Result<System> {
        let place = std::path::absolute("target/debian")?;
        let (base, root) = (place.join(RELEASE), place.join("try"));
        if !base.join("done").exists() {
            fresh(&base)?;
            let mirror = std::env::var(MIRROR).ok();
            let debootstrap =
                Cmd::new("debootstrap", ["--variant=minbase", RELEASE, text(&base)?]).args(mirror);
            println!("    {debootstrap}");
            debootstrap.run()?;
            write(&base.join("done"), "")?;
        }
        fresh(&root)?;
        Cmd::new("cp", ["-a", text(&base.join("."))?, text(&root)?]).run()?;
        Ok(System { root })
    }

    /// Runs a line of the shell in it and returns what was printed.
    fn sh(&self, line: &str) -> Result<String> {
        println!("    chroot: {line}");
        let program = ["-eu", "-c", line];
        Cmd::new("chroot", [text(&self.root)?, "/bin/sh"])
            .args(program)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C.UTF-8")
            .capture()
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }

    fn copy_in(&self, package: &Path, name: &str) -> Result<()> {
        let to = self.root.join(name);
        std::fs::copy(package, &to).with_context(|| to.display().to_string()).map(drop)
    }
}

/// Line of the administrator in the configuration.
const EDIT: &str = "# edited by the administrator";

const WANTED: &str = "etc/systemd/system/multi-user.target.wants/gabion.service";

pub(super) fn try_out(package: &Path, next: &Path) -> Result<()> {
    let system = System::new()?;
    system.copy_in(package, "gabion.deb")?;
    system.copy_in(next, "next.deb")?;
    system.sh("dpkg --install /gabion.deb")?;
    ensure!(system.has(WANTED), "the service is not enabled");
    system.sh("getent group gabion")?;
    system.sh("dpkg --verify gabion")?;
    runs(&system)?;
    idles(&system)?;

    system.sh(&format!("echo '{EDIT}' >> /etc/gabion/daemon.toml"))?;
    // What `systemctl disable` does; systemd itself is not in a minimal system.
    system.sh(&format!("rm /{WANTED}"))?;
    system.sh("dpkg --install /next.deb")?;
    let version = system.sh("dpkg-query --show --showformat '${Version}' gabion")?;
    ensure!(version.ends_with("+next1"), "after the upgrade: {version}");
    let kept = system.sh("cat /etc/gabion/daemon.toml")?;
    ensure!(kept.contains(EDIT), "the upgrade replaced the configuration");
    ensure!(!system.has(WANTED), "the upgrade enabled a service that the administrator had disabled");
    system.sh("gabion scrub /srv/photos --quiet")?;

    system.sh("dpkg --remove gabion")?;
    ensure!(!system.has("usr/bin/gabion"), "the program is still there");
    ensure!(system.has("etc/gabion/daemon.toml"), "removal without purge removed the configuration");
    system.sh("mkdir -p /var/cache/gabion/x && touch /etc/gabion/policy.toml")?;
    system.sh("dpkg --purge gabion")?;
    for gone in ["etc/gabion", "var/cache/gabion", WANTED, "etc/systemd/system/gabion.service"] {
        ensure!(!system.has(gone), "purge left {gone}");
    }
    ensure!(system.has("srv/photos/.gabion/vault.toml"), "purge removed redundancy of users");
    system.sh("dpkg --install /gabion.deb && gabion scrub /srv/photos --quiet")?;
    ensure!(system.has(WANTED), "the service is not enabled after a purge and another installation");
    println!("    installed, run, upgraded, removed and purged in {RELEASE}");
    std::fs::remove_dir_all(&system.root).with_context(|| system.root.display().to_string())
}

/// A directory is protected, damaged and repaired.
fn runs(system: &System) -> Result<()> {
    system.sh("gabion info > /dev/null && gabion daemon run /etc/gabion/daemon.toml --check")?;
    system.sh(
        "mkdir -p /srv/photos && head -c 3000000 /dev/urandom > /srv/photos/a && cp -p /srv/photos/a /a",
    )?;
    system.sh("gabion protect /srv/photos --quiet")?;
    system.sh("dd if=/dev/zero of=/srv/photos/a bs=1 seek=1000000 count=5000 conv=notrunc status=none")?;
    system.sh("touch -r /a /srv/photos/a")?;
    let found = system.sh("gabion scrub /srv/photos || echo exit code $?")?;
    ensure!(found.contains("exit code 1"), "the scrub found nothing: {found}");
    system.sh("gabion repair /srv/photos --yes && cmp /a /srv/photos/a").map(drop)
}

/// The daemon waits with the configuration of the package.
fn idles(system: &System) -> Result<()> {
    let said = system.sh(
        "gabion daemon run /etc/gabion/daemon.toml --socket /run/gabion.sock > /daemon.log 2>&1 & \
         looks=0; until gabion daemon status --socket /run/gabion.sock; do \
         looks=$((looks + 1)); test $looks -lt 600 || exit 1; sleep 0.1; done; \
         gabion daemon stop --socket /run/gabion.sock; wait $!; cat /daemon.log",
    )?;
    ensure!(said.contains("no sources"), "the daemon does not say that it has no sources: {said}");
    Ok(())
}
