//! The container image: a context with a Containerfile and the Debian package.

use std::path::Path;

use anyhow::{Context, Result};

use super::{fresh, text, version};
use crate::shell::Cmd;

/// Writes the context, and builds the image if a builder runs here.
pub(super) fn build(deb: &Path, out: &Path) -> Result<()> {
    let place = out.join("container");
    fresh(&place)?;
    std::fs::copy("package/Containerfile", place.join("Containerfile")).context("package/Containerfile")?;
    std::fs::copy(deb, place.join("gabion.deb")).context("the Debian package")?;
    let tag = format!("gabion:{}", version());
    let build = |program: &str| {
        let file = place.join("Containerfile");
        Ok::<Cmd, anyhow::Error>(Cmd::new(
            program,
            ["build", "--tag", &tag, "--file", text(&file)?, text(&place)?],
        ))
    };
    for program in ["podman", "docker"] {
        // `info` fails where the program is there but cannot run containers.
        let runs = Cmd::new(program, ["info"]).command().output().is_ok_and(|info| info.status.success());
        if runs {
            let build = build(program)?;
            println!("    {build}");
            return build.run();
        }
    }
    println!("    neither podman nor docker run here; to build the image: {}", build("podman")?);
    Ok(())
}
