//! The crates that can be published: each is packaged as for a registry, and its package is complete.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::shell::Cmd;

/// Where cargo puts packages, below the root. Not the directory of builds, whose lock a build may hold for minutes.
const PLACE: &str = "target/crates";

/// Files that every package has.
const FILES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT", "README.md", "Cargo.toml"];

/// Keys of the manifest that every package has. cargo refuses dependencies without a version itself.
const KEYS: &[&str] = &["description", "license", "rust-version", "readme", "version"];

/// Packages all crates that do not say `publish = false`, and checks each.
pub(crate) fn check() -> Result<()> {
    let metadata = Cmd::cargo("metadata --format-version 1 --no-deps --offline").capture()?;
    let (published, others) = members(&serde_json::from_str(&metadata)?)?;
    let cmd = Cmd::cargo("package --workspace --no-verify --allow-dirty --offline --quiet --target-dir");
    let excluded = others.iter().flat_map(|name| ["--exclude", name.as_str()]);
    let cmd = cmd.args([PLACE]).args(excluded);
    println!("    {cmd}");
    cmd.run()?;
    for (name, version) in &published {
        let full = format!("{name}-{version}");
        let archive = format!("{PLACE}/package/{full}.crate");
        let listed = Cmd::new("tar", ["-t", "-f", &archive]).capture()?;
        let manifest =
            Cmd::new("tar", ["-x", "-O", "-f", &archive, &format!("{full}/Cargo.toml")]).capture()?;
        let found = missing(&full, &listed, &manifest)?;
        ensure!(found.is_empty(), "{archive} lacks {}", found.join(", "));
    }
    ensure!(published.len() > 10, "few crates to publish: {published:?}");
    println!("    {} crates are packaged with their licences", published.len());
    fs::remove_dir_all(PLACE).with_context(|| format!("removing {PLACE}"))
}

/// Names and versions of the crates that are published, and names of the others.
type Members = (BTreeSet<(String, String)>, BTreeSet<String>);

/// Names and versions of the members that are published, and names of the others.
fn members(metadata: &Value) -> Result<Members> {
    let (mut published, mut others) = (BTreeSet::new(), BTreeSet::new());
    for package in metadata["packages"].as_array().context("no packages in the metadata")? {
        let text = |key: &str| package[key].as_str().map(str::to_owned).with_context(|| format!("no {key}"));
        match &package["publish"] {
            Value::Null => drop(published.insert((text("name")?, text("version")?))),
            Value::Array(registries) if registries.is_empty() => drop(others.insert(text("name")?)),
            other => bail!("{}: publish = {other}", text("name")?),
        }
    }
    Ok((published, others))
}

/// What a package lacks.
fn missing(full: &str, listed: &str, manifest: &str) -> Result<Vec<String>> {
    let files: BTreeSet<&str> = listed.lines().collect();
    let mut lacking: Vec<String> = FILES
        .iter()
        .filter(|file| !files.contains(format!("{full}/{file}").as_str()))
        .map(|file| (*file).to_owned())
        .collect();
    let manifest: toml::Table = manifest.parse().with_context(|| format!("the manifest of {full}"))?;
    let package = manifest.get("package").and_then(toml::Value::as_table).context("no [package]")?;
    lacking.extend(KEYS.iter().filter(|key| !package.contains_key(**key)).map(|key| format!("`{key}`")));
    Ok(lacking)
}

#[cfg(test)]
mod tests {
    use super::{members, missing};
    use serde_json::json;

    #[test]
    fn members_are_published_unless_they_say_otherwise() {
        let package = |name: &str, publish| json!({ "name": name, "version": "1.0.0", "publish": publish });
        let metadata = json!({ "packages": [package("a", json!(null)), package("b", json!([]))] });
        let (published, others) = members(&metadata).unwrap();
        assert_eq!(published.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "1.0.0".to_owned())]);
        assert_eq!(others.into_iter().collect::<Vec<_>>(), ["b"]);
        assert!(members(&json!({ "packages": [package("c", json!(["elsewhere"]))] })).is_err());
    }

    #[test]
    fn missing_files_and_keys_are_named() {
        let listed = "a-1.0.0/LICENSE-APACHE\na-1.0.0/LICENSE-MIT\na-1.0.0/Cargo.toml\na-1.0.0/README.md\n";
        let manifest = "[package]\nversion = '1.0.0'\ndescription = 'd'\nlicense = 'MIT'\nrust-version = '1.95'\n\
                        readme = 'README.md'\n";
        assert!(missing("a-1.0.0", listed, manifest).unwrap().is_empty());
        let few = missing("a-1.0.0", "a-1.0.0/src/README.md\n", "[package]\nversion = '1'\n").unwrap();
        assert!(few.contains(&"README.md".to_owned()) && few.contains(&"`license`".to_owned()), "{few:?}");
    }
}
