//! The tarball, for systems without packages.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::layout::Layout;
use super::{fresh, set_mode, source_date, text, version, write};
use crate::shell::Cmd;

/// Installs below a prefix. Configuration that exists is kept.
const INSTALL: &str = include_str!("../../../package/install.sh");

/// Writes the tarball into a directory and returns its path.
pub(super) fn build(layout: &Layout, out: &Path) -> Result<PathBuf> {
    let libc = least_libc(&layout.at("usr/bin/gabion"))?;
    let arch = std::env::consts::ARCH;
    let name = format!("gabion-{}-linux-{arch}-{libc}", version());
    let place = out.join("tarball");
    fresh(&place)?;
    let root = place.join(&name);
    std::fs::create_dir_all(&root).with_context(|| root.display().to_string())?;
    Cmd::new("cp", ["-a", text(&layout.at("."))?, text(&root.join("root"))?]).run()?;
    write(&root.join("install.sh"), INSTALL)?;
    set_mode(&root.join("install.sh"), 0o755)?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        std::fs::copy(licence, root.join(licence)).with_context(|| licence.to_owned())?;
    }
    let package = out.join(format!("{name}.tar.xz"));
    let date = format!("--mtime=@{}", source_date());
    let tar = Cmd::new("tar", ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", &date, "-cJf"])
        .args([text(&std::path::absolute(&package)?)?, &name])
        .dir(text(&place)?);
    println!("    {tar}");
    tar.run()?;
    std::fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    Ok(package)
}

/// The least version of the C library that has all symbols of the program, such as `glibc2.34`.
fn least_libc(program: &Path) -> Result<String> {
    let symbols = Cmd::new("objdump", ["-T", text(program)?]).capture()?;
    Ok(match newest_symbol(&symbols) {
        Some((major, minor)) => format!("glibc{major}.{minor}"),
        None => "static".to_owned(),
    })
}

fn newest_symbol(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let number = rest.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next()?;
        let mut parts = number.split('.').map(str::parse::<u32>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::newest_symbol;

    #[test]
    fn the_newest_symbol_decides() {
        let symbols =
            "0000 DF *UND* 0 (GLIBC_2.9) pipe2\n0000 DF *UND* 0 (GLIBC_2.34) x\n0 (GLIBC_2.2.5) y\n";
        assert_eq!(newest_symbol(symbols), Some((2, 34)));
        assert_eq!(newest_symbol("no dynamic symbols"), None);
    }
}
