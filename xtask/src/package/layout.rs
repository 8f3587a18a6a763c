//! The tree of files that all packages install.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{files, fresh, set_mode, source_date, text, write};
use crate::shell::Cmd;

/// The tree, written to a directory.
pub(super) struct Layout {
    pub(super) root: PathBuf,
}

/// Files of the repository and where they are installed.
const FILES: &[(&str, &str)] = &[
    ("package/gabion.service", "usr/lib/systemd/system/gabion.service"),
    ("package/gabion-work@.service", "usr/lib/systemd/system/gabion-work@.service"),
    ("package/gabion-protect@.service", "usr/lib/systemd/system/gabion-protect@.service"),
    ("package/gabion-protect@.timer", "usr/lib/systemd/system/gabion-protect@.timer"),
    ("package/gabion-scrub@.service", "usr/lib/systemd/system/gabion-scrub@.service"),
    ("package/gabion-scrub@.timer", "usr/lib/systemd/system/gabion-scrub@.timer"),
    ("package/sysusers.conf", "usr/lib/sysusers.d/gabion.conf"),
    ("package/tmpfiles.conf", "usr/lib/tmpfiles.d/gabion.conf"),
    ("package/daemon.toml", "etc/gabion/daemon.toml"),
    ("package/watch-only.conf", "usr/share/doc/gabion/examples/watch-only.conf"),
    ("docs/reference/daemon.toml", "usr/share/doc/gabion/examples/daemon.toml"),
    ("docs/reference/policy.toml", "usr/share/doc/gabion/examples/policy.toml"),
    ("README.md", "usr/share/doc/gabion/README.md"),
];

/// Directories of the repository that are installed with all their files, if they are there.
const DIRECTORIES: &[(&str, &str)] = &[
    ("docs/guide", "usr/share/doc/gabion/docs/guide"),
    ("docs/operating", "usr/share/doc/gabion/docs/operating"),
    ("docs/reference", "usr/share/doc/gabion/docs/reference"),
    ("package/grafana", "usr/share/gabion/grafana"),
    ("package/prometheus", "usr/share/gabion/prometheus"),
];

/// Scripts, which can be executed.
const SCRIPTS: &[(&str, &str)] = &[
    ("package/slurm/prolog", "usr/share/gabion/slurm/prolog"),
    ("package/slurm/epilog", "usr/share/gabion/slurm/epilog"),
];

/// Shells whose completions are installed, and where their packages look for them.
pub(super) const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/gabion"),
    ("zsh", "usr/share/zsh/vendor-completions/_gabion"),
    ("fish", "usr/share/fish/vendor_completions.d/gabion.fish"),
];

const PAGES: &str = "usr/share/man/man1";

impl Layout {
    /// Writes the tree; what was in the directory before is removed.
    pub(super) fn write(program: &Path, root: &Path) -> Result<Layout> {
        fresh(root)?;
        let layout = Layout { root: root.to_owned() };
        let installed = layout.at("usr/bin/gabion");
        copy(program, &installed, 0o755)?;
        Cmd::new("strip", ["--strip-unneeded", text(&installed)?]).run()?;
        for (from, to) in FILES {
            copy(Path::new(from), &layout.at(to), 0o644)?;
        }
        for (from, to) in SCRIPTS {
            copy(Path::new(from), &layout.at(to), 0o755)?;
        }
        for (from, to) in DIRECTORIES.iter().filter(|(from, _)| Path::new(from).is_dir()) {
            for file in files(Path::new(from))? {
                copy(&Path::new(from).join(&file), &layout.at(to).join(&file), 0o644)?;
            }
        }
        for (shell, to) in COMPLETIONS {
            let script = Cmd::new(text(&installed)?, ["completions", shell]).capture()?;
            write(&layout.at(to), &script)?;
        }
        let pages = layout.at(PAGES);
        Cmd::new(text(&installed)?, ["manual", text(&pages)?]).run()?;
        for page in files(&pages)? {
            compress(&pages.join(page))?;
        }
        copy(Path::new("CHANGELOG.md"), &layout.at("usr/share/doc/gabion/changelog"), 0o644)?;
        compress(&layout.at("usr/share/doc/gabion/changelog"))?;
        write(&layout.at("usr/share/doc/gabion/copyright"), &copyright()?)?;
        layout.normalise()?;
        Ok(layout)
    }

    /// Path of an installed file in the tree.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Directories have mode 0755 whatever the umask is, and files the time of the last commit.
    fn normalise(&self) -> Result<()> {
        let root = text(&self.root)?;
        Cmd::new("find", [root, "-type", "d", "-exec", "chmod", "0755", "{}", "+"]).run()?;
        let date = format!("--date=@{}", source_date());
        Cmd::new("find", [root, "-exec", "touch", "--no-dereference", &date, "{}", "+"]).run()
    }
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let directory = to.parent().context("a file is in a directory")?;
    std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    std::fs::copy(from, to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    set_mode(to, mode)
}

/// Compresses without the file's name and time, so that the bytes are the same every time.
pub(super) fn compress(path: &Path) -> Result<()> {
    Cmd::new("gzip", ["-9n", text(path)?]).run()?;
    set_mode(
        &path.with_file_name(format!("{}.gz", text(Path::new(path.file_name().context("no name")?))?)),
        0o644,
    )
}

/// The licences in the format of Debian.
fn copyright() -> Result<String> {
    let mit = std::fs::read_to_string("LICENSE-MIT").context("LICENSE-MIT")?;
    let holder =
        mit.lines().find(|line| line.starts_with("Copyright")).unwrap_or("Copyright the authors of Gabion");
    let line =
        |line: &str| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {}\n", line.trim()) };
    let terms: String = mit.lines().map(line).collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: gabion\n\n\
         Files: *\nCopyright: {}\nLicense: MIT or Apache-2.0\n\n\
         License: MIT\n{terms}\n\
         License: Apache-2.0\n The text is in /usr/share/common-licenses/Apache-2.0 on Debian systems.\n",
        holder.trim_start_matches("Copyright").trim_start_matches(" (c)").trim()
    ))
}
