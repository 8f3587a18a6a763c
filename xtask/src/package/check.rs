//! Checks of the Debian package's content.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::layout::COMPLETIONS;
use super::{deb, files, fresh, text};
use crate::shell::Cmd;

/// Files that the package must have, with their modes as `tar` prints them.
const REQUIRED: &[(&str, &str)] = &[
    ("/usr/bin/gabion", "-rwxr-xr-x"),
    ("/etc/gabion/daemon.toml", "-rw-r--r--"),
    ("/usr/lib/systemd/system/gabion.service", "-rw-r--r--"),
    ("/usr/lib/systemd/system/gabion-work@.service", "-rw-r--r--"),
    ("/usr/lib/systemd/system/gabion-protect@.timer", "-rw-r--r--"),
    ("/usr/lib/systemd/system/gabion-scrub@.timer", "-rw-r--r--"),
    ("/usr/lib/sysusers.d/gabion.conf", "-rw-r--r--"),
    ("/usr/lib/tmpfiles.d/gabion.conf", "-rw-r--r--"),
    ("/usr/share/man/man1/gabion.1.gz", "-rw-r--r--"),
    ("/usr/share/man/man1/gabion-protect.1.gz", "-rw-r--r--"),
    ("/usr/share/man/man1/gabion-daemon-run.1.gz", "-rw-r--r--"),
    ("/usr/share/gabion/slurm/prolog", "-rwxr-xr-x"),
    ("/usr/share/gabion/slurm/epilog", "-rwxr-xr-x"),
    ("/usr/share/doc/gabion/copyright", "-rw-r--r--"),
    ("/usr/share/doc/gabion/changelog.gz", "-rw-r--r--"),
];

/// Checks the package.
pub(super) fn check(package: &Path) -> Result<()> {
    let file = text(package)?;
    let entries = Cmd::new("dpkg-deb", ["--contents", file]).capture()?;
    let problems = listing_problems(&entries);
    ensure!(problems.is_empty(), "{file}:\n  {}", problems.join("\n  "));
    control(file)?;
    let root = std::path::absolute(package)?.with_file_name("extracted");
    fresh(&root)?;
    Cmd::new("dpkg-deb", ["--raw-extract", file, text(&root)?]).run()?;
    for script in ["postinst", "prerm", "postrm"] {
        Cmd::new("sh", ["-n", text(&root.join("DEBIAN").join(script))?]).run()?;
    }
    Cmd::new("md5sum", ["--check", "--quiet", "DEBIAN/md5sums"]).dir(text(&root)?).run()?;
    pages(&root.join("usr/share/man/man1"))?;
    completions(&root)?;
    units(&root)?;
    program(&root)?;
    println!("    {}: content is as it should be ({} entries)", package.display(), entries.lines().count());
    std::fs::remove_dir_all(&root).with_context(|| root.display().to_string())
}

/// What is wrong with a listing of `dpkg-deb --contents`.
fn listing_problems(entries: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut found = Vec::new();
    for entry in entries.lines() {
        let words: Vec<&str> = entry.split_whitespace().collect();
        let [mode, owner, .., path] = words[..] else {
            problems.push(format!("not an entry: {entry}"));
            continue;
        };
        let path = path.trim_start_matches('.');
        found.push((path, mode));
        let is_executable = ["/usr/bin/", "/usr/share/gabion/slurm/"].iter().any(|at| path.starts_with(at));
        let is_right = match mode {
            "drwxr-xr-x" => true,
            "-rwxr-xr-x" => is_executable,
            "-rw-r--r--" => !is_executable,
            _ => false,
        };
        if !is_right {
            problems.push(format!("{path} has mode {mode}"));
        }
        if owner != "root/root" {
            problems.push(format!("{path} belongs to {owner}"));
        }
        let in_place = ["/usr/", "/etc/"].iter().any(|place| path.starts_with(place));
        if path != "/" && !in_place || path.starts_with("/usr/local") {
            problems.push(format!("{path} is out of place"));
        }
    }
    for (path, mode) in REQUIRED {
        if !found.contains(&(path, mode)) {
            problems.push(format!("no {path} with mode {mode}"));
        }
    }
    problems
}

/// Fields and configuration files.
fn control(file: &str) -> Result<()> {
    let field = |name: &str| Cmd::new("dpkg-deb", ["--field", file, name]).capture();
    ensure!(field("Depends")?.contains("libc6 (>= 2."), "Depends: {}", field("Depends")?);
    ensure!(field("Recommends")?.contains("fuse3"), "Recommends: {}", field("Recommends")?);
    let configuration = Cmd::new("dpkg-deb", ["--info", file, "conffiles"]).capture()?;
    ensure!(configuration == deb::CONFIGURATION, "conffiles: {configuration}");
    Ok(())
}

/// Each page is rendered without a warning and has text.
fn pages(place: &Path) -> Result<()> {
    let pages = files(place)?;
    for page in &pages {
        let page = place.join(page);
        let man = Cmd::new("man", ["--warnings", "--encoding=UTF-8", "--local-file", "-Tutf8", text(&page)?]);
        let man = man.env("LC_ALL", "C.UTF-8").env("MANROFFSEQ", "").env("MANWIDTH", "80");
        let output = man.command().output().with_context(|| format!("cannot start `{man}`"))?;
        let (shown, said) = (output.stdout.len(), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() || shown < 200 || !said.trim().is_empty() {
            bail!("`{man}`: {}, {shown} bytes of text: {said}", output.status);
        }
    }
    ensure!(pages.len() > 20, "only {} manual pages", pages.len());
    Ok(())
}

/// The scripts for shells are parsed by those shells that are installed here, and bash always is.
fn completions(root: &Path) -> Result<()> {
    for (shell, path) in COMPLETIONS {
        let script = root.join(path);
        let is_here = Cmd::new(shell, ["--version"]).probe().is_some();
        ensure!(is_here || *shell != "bash", "bash is not installed");
        if is_here {
            Cmd::new(shell, ["-n", text(&script)?]).run()?;
        }
        let size = std::fs::metadata(&script).with_context(|| script.display().to_string())?.len();
        ensure!(size > 1000, "{path} has {size} bytes");
    }
    Ok(())
}

/// systemd accepts units, users and directories.
fn units(root: &Path) -> Result<()> {
    let system = root.join("usr/lib/systemd/system");
    // Instances have to be named; verified are the units in the package's own place, with its program.
    let scratch = root.join("verified");
    fresh(&scratch)?;
    let program = root.join("usr/bin/gabion");
    let mut names = Vec::new();
    for unit in files(&system)? {
        let name = text(&unit)?.replace("@.", "@srv-photos.");
        let content =
            std::fs::read_to_string(system.join(&unit))?.replace("/usr/bin/gabion", text(&program)?);
        let to = scratch.join(name);
        super::write(&to, &content)?;
        names.push(to);
    }
    let names = names.iter().map(|name| text(name)).collect::<Result<Vec<_>>>()?;
    let verify = Cmd::new("systemd-analyze", ["verify", "--man=no", "--recursive-errors=no"]).args(names);
    let output = verify.command().output().with_context(|| format!("cannot start `{verify}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.trim().is_empty(), "`{verify}`: {}: {said}", output.status);
    let at = format!("--root={}", text(root)?);
    Cmd::new("systemd-sysusers", [&at]).run()?;
    let groups =
        std::fs::read_to_string(root.join("etc/group")).context("etc/group of the package's own root")?;
    ensure!(groups.lines().any(|line| line.starts_with("gabion:")), "no group gabion: {groups}");
    Cmd::new("systemd-tmpfiles", [at.as_str(), "--create", "gabion.conf"]).run()?;
    let is_there = |path: &str| root.join(path).is_dir();
    ensure!(is_there("var/cache/gabion") && is_there("etc/gabion/pools"), "tmpfiles.d made no directories");
    Ok(())
}

/// The installed program runs, and its configuration is valid.
fn program(root: &Path) -> Result<()> {
    let program = root.join("usr/bin/gabion");
    let program = text(&program)?;
    let told = Cmd::new(program, ["--version"]).capture()?;
    ensure!(told.trim() == format!("gabion {}", super::version()), "version {told}");
    let symbols = Cmd::new("nm", [program]).probe().unwrap_or_default();
    ensure!(symbols.is_empty(), "the program has symbols: it is not stripped");
    // The example names files with passwords, which are not here; a test of the daemon reads it.
    let file = root.join("etc/gabion/daemon.toml");
    let check = Cmd::new(program, ["daemon", "run", text(&file)?, "--check"]);
    check.capture().with_context(|| format!("`{check}`"))?;
    let policy = root.join("usr/share/doc/gabion/examples/policy.toml");
    Cmd::new(program, ["policy", "check", text(&policy)?]).capture().map(drop)
}

#[cfg(test)]
mod tests {
    use super::{REQUIRED, listing_problems};

    fn listing(more: &str) -> String {
        let required =
            REQUIRED.iter().map(|(path, mode)| format!("{mode} root/root 1 2026-01-01 00:00 .{path}\n"));
        format!("drwxr-xr-x root/root 0 2026-01-01 00:00 ./\n{}{more}", required.collect::<String>())
    }

    #[test]
    fn a_listing_can_be_wrong_in_each_way() {
        assert_eq!(listing_problems(&listing("")), [""; 0]);
        let wrong = |entry: &str| listing_problems(&listing(entry)).join(", ");
        assert_eq!(wrong("-rw-rw-r-- root/root 1 d t ./usr/x\n"), "/usr/x has mode -rw-rw-r--");
        assert_eq!(wrong("-rwsr-xr-x root/root 1 d t ./usr/bin/x\n"), "/usr/bin/x has mode -rwsr-xr-x");
        assert_eq!(wrong("-rw-r--r-- me/root 1 d t ./usr/x\n"), "/usr/x belongs to me/root");
        assert_eq!(wrong("-rw-r--r-- root/root 1 d t ./opt/x\n"), "/opt/x is out of place");
        assert_eq!(wrong("drwxr-xr-x root/root 1 d t ./usr/local/bin\n"), "/usr/local/bin is out of place");
        assert_eq!(wrong("no\n"), "not an entry: no");
        let without = listing("").replace("/usr/bin/gabion", "/usr/bin/gabion.old");
        assert_eq!(listing_problems(&without), ["no /usr/bin/gabion with mode -rwxr-xr-x"]);
    }
}
