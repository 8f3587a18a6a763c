//! Programs of other projects that tests run, built from the registry once.

use crate::shell::Cmd;
use anyhow::Result;

/// Suites that nobody here wrote: POSIX semantics, and random operations against a model.
const SUITES: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Where they go, below the root.
pub(crate) const PLACE: &str = "target/tools";

/// Tells tests where the programs are, and makes it an error if they are not.
pub(crate) fn known(cmd: Cmd) -> Cmd {
    let place = std::path::absolute(PLACE).unwrap_or_else(|_| PLACE.into());
    cmd.env("GABION_TOOLS", &place.display().to_string()).env("GABION_REQUIRE_TOOLS", "1")
}

/// Tells tests where the programs are if they were built before.
pub(crate) fn known_if_there(cmd: Cmd) -> Cmd {
    if std::path::Path::new(PLACE).join("bin").is_dir() { known(cmd) } else { cmd }
}

/// Installs what is not there in this version. Not optimised: that takes twice as long, and what these programs do is
/// call the kernel.
pub(crate) fn ensure() -> Result<()> {
    let listed = Cmd::cargo("install --list --root").args([PLACE]).capture()?;
    for (name, version) in SUITES {
        if listed.lines().any(|line| line == format!("{name} v{version}:")) {
            println!("    {name} {version} is there");
            continue;
        }
        let install =
            Cmd::cargo("install --locked --quiet --debug --version").args([version, "--root", PLACE, name]);
        println!("    {install}");
        install.run()?;
    }
    Ok(())
}
