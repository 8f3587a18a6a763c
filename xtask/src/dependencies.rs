//! Licences, duplicate versions, banned crates and sources of the crates that Gabion is built from, checked against
//! `deny.toml`.
//!
//! The file has the format of cargo-deny, whose own build takes 3.5 minutes of CPU time. The check reads `cargo
//! metadata` and needs no network. Advisories need a database and are left to `cargo deny check advisories`.

mod licence;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell::Cmd;

const RULES: &str = "deny.toml";
/// The package whose dependencies must not be banned or duplicate.
const PRODUCT: &str = "gabion";
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Fails if a crate breaks a rule; prints every violation.
pub(crate) fn check() -> Result<()> {
    let text = fs::read_to_string(RULES).with_context(|| format!("reading {RULES}"))?;
    let rules = Rules::read(&text).with_context(|| RULES.to_owned())?;
    let metadata =
        Cmd::cargo("metadata --format-version 1 --locked --filter-platform x86_64-unknown-linux-gnu");
    println!("    {metadata}");
    let graph = Graph::read(&serde_json::from_str(&metadata.capture()?)?)?;
    let found = violations(&rules, &graph);
    for violation in &found {
        println!("    {violation}");
    }
    if !found.is_empty() {
        bail!("dependencies: {} violations of {RULES}", found.len());
    }
    println!(
        "    {} crates, {} of them in the product, no violations",
        graph.crates.len(),
        graph.product.len()
    );
    Ok(())
}

/// The part of `deny.toml` that is checked here.
#[derive(Debug, Default)]
struct Rules {
    licences: BTreeSet<String>,
    banned: BTreeMap<String, String>,
    /// Names and the beginning of versions that may stand beside another version.
    duplicates: Vec<(String, String)>,
}

impl Rules {
    fn read(text: &str) -> Result<Rules> {
        let table: toml::Table = text.parse()?;
        let list = |section: &str, key: &str| {
            let list = table.get(section).and_then(|section| section.get(key)?.as_array());
            list.with_context(|| format!("no list `{key}` in [{section}]"))
        };
        let text = |entry: &toml::Value, key: &str| {
            let text = entry.get(key).and_then(toml::Value::as_str);
            text.map(str::to_owned).with_context(|| format!("no `{key}` in {entry:?}"))
        };
        let mut rules = Rules::default();
        for licence in list("licenses", "allow")? {
            rules.licences.insert(licence.as_str().context("a licence is a text")?.to_owned());
        }
        for entry in list("bans", "deny")? {
            rules.banned.insert(text(entry, "crate")?, text(entry, "reason")?);
        }
        for entry in list("bans", "skip")? {
            let name = text(entry, "crate")?;
            // Every exception has its reason.
            text(entry, "reason")?;
            let (name, version) = name.split_once('@').with_context(|| format!("no version in {name}"))?;
            rules.duplicates.push((name.to_owned(), version.to_owned()));
        }
        Ok(rules)
    }

    fn allows_beside_others(&self, name: &str, version: &str) -> bool {
        self.duplicates.iter().any(|(known, begin)| known == name && is_version(version, begin))
    }
}

/// True if `version` is `begin`, or `begin` with more parts.
fn is_version(version: &str, begin: &str) -> bool {
    version.strip_prefix(begin).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+', '-']))
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: String,
    licence: Option<String>,
    /// None for a path of the repository.
    source: Option<String>,
}

/// All crates by their identity, and those that the product is built from.
#[derive(Debug, Default)]
struct Graph {
    crates: BTreeMap<String, Crate>,
    product: BTreeSet<String>,
}

impl Graph {
    fn read(metadata: &Value) -> Result<Graph> {
        let list = |value: &Value, key: &str| -> Result<Vec<Value>> {
            Ok(value[key].as_array().with_context(|| format!("no list \"{key}\" in the metadata"))?.clone())
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut graph = Graph::default();
        for package in list(metadata, "packages")? {
            let known = text(&package["id"]).zip(text(&package["name"])).zip(text(&package["version"]));
            let ((id, name), version) = known.context("a package without a name")?;
            let (licence, source) = (text(&package["license"]), text(&package["source"]));
            graph.crates.insert(id, Crate { name, version, licence, source });
        }
        let mut needed: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for node in list(&metadata["resolve"], "nodes")? {
            let id = text(&node["id"]).context("a node without an id")?;
            for dependency in list(&node, "deps")? {
                let kinds = list(&dependency, "dep_kinds")?;
                if kinds.iter().any(|kind| kind["kind"] != "dev") {
                    needed.entry(id.clone()).or_default().extend(text(&dependency["pkg"]));
                }
            }
        }
        let is_product = |(_, it): &(&String, &Crate)| it.name == PRODUCT && it.source.is_none();
        let (root, _) = graph.crates.iter().find(is_product).context("the product is not in the metadata")?;
        let mut pending = vec![root.clone()];
        while let Some(id) = pending.pop() {
            pending.extend(needed.get(&id).into_iter().flatten().cloned());
            if !graph.product.insert(id.clone()) {
                needed.remove(&id);
            }
        }
        Ok(graph)
    }
}

fn violations(rules: &Rules, graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    let others = graph.crates.values().filter(|it| it.source.is_some());
    for Crate { name, version, licence, source } in others {
        if source.as_deref() != Some(REGISTRY) {
            found.push(format!("{name} {version}: source {}", source.as_deref().unwrap_or_default()));
        }
        let allowed = licence.as_deref().is_some_and(|text| licence::is_allowed(text, &rules.licences));
        if !allowed {
            let licence = licence.as_deref().unwrap_or("none");
            found.push(format!("{name} {version}: licence {licence} is not in the list"));
        }
    }
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for it in graph.product.iter().filter_map(|id| graph.crates.get(id)) {
        versions.entry(&it.name).or_default().insert(&it.version);
        if let Some(reason) = rules.banned.get(&it.name) {
            found.push(format!("{} {}: banned in the product: {reason}", it.name, it.version));
        }
    }
    for (name, versions) in &versions {
        let counted: Vec<&str> =
            versions.iter().filter(|version| !rules.allows_beside_others(name, version)).copied().collect();
        if counted.len() > 1 {
            found.push(format!("{name}: versions {} in the product", counted.join(" and ")));
        }
    }
    for (name, begin) in &rules.duplicates {
        let versions = versions.get(name.as_str());
        if versions.is_none_or(|all| all.len() < 2 || !all.iter().any(|version| is_version(version, begin))) {
            found.push(format!("{name}@{begin}: an exception without a duplicate; remove it"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Graph, RULES, Rules, is_version, violations};
    use serde_json::{Value, json};

    const LIST: &str = r#"
[licenses]
allow = ["MIT"]
[bans]
deny = [{ crate = "plotters", reason = "charts" }]
skip = [{ crate = "syn@2", reason = "of another crate" }]
"#;

    fn package(id: &str, name: &str, version: &str, licence: &str, source: Value) -> Value {
        json!({ "id": id, "name": name, "version": version, "license": licence, "source": source })
    }

    fn needs(id: &str, others: &[(&str, Value)]) -> Value {
        let deps = others.iter().map(|(id, kind)| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] }));
        json!({ "id": id, "deps": deps.collect::<Vec<_>>() })
    }

    /// Every rule can fail; dev-dependencies and crates of other packages are free to be duplicates.
    #[test]
    fn violations_are_named() {
        let registry = || json!(super::REGISTRY);
        let metadata = json!({
            "packages": [
                package("g", "gabion", "1.0.0", "MIT", Value::Null),
                package("b", "bench", "1.0.0", "MIT", Value::Null),
                package("s2", "syn", "2.1.0", "MIT", registry()),
                package("s3", "syn", "3.0.0", "MIT", registry()),
                package("s4", "syn", "4.0.0", "MIT", registry()),
                package("p", "plotters", "1.0.0", "MIT", registry()),
                package("x", "copyleft", "1.0.0", "GPL-3.0", registry()),
                package("y", "forked", "1.0.0", "MIT", json!("git+https://somewhere")),
            ],
            "resolve": { "nodes": [
                needs("g", &[("s2", Value::Null), ("s3", json!("build")), ("s4", json!("dev"))]),
                needs("b", &[("s4", Value::Null), ("p", Value::Null)]),
            ]},
        });
        let found = |metadata: &Value, list: &str| {
            violations(&Rules::read(list).unwrap(), &Graph::read(metadata).unwrap())
        };
        let two = found(&metadata, LIST);
        assert_eq!(two.len(), 2, "{two:?}");
        assert!(two[0].contains("copyleft") && two[1].contains("forked"), "{two:?}");
        let strict = LIST.replace("syn@2", "gone@1");
        let four = found(&metadata, &strict);
        assert_eq!(four.len(), 4, "{four:?}");
        assert!(four[2].contains("syn: versions 2.1.0 and 3.0.0") && four[3].contains("gone@1"), "{four:?}");
        let mut banned = metadata.clone();
        banned["resolve"]["nodes"][0]["deps"][2]["dep_kinds"][0]["kind"] = Value::Null;
        banned["resolve"]["nodes"][0]["deps"][2]["pkg"] = json!("p");
        assert!(found(&banned, LIST).iter().any(|line| line.contains("plotters 1.0.0: banned")));
    }

    #[test]
    fn versions_are_compared_by_parts() {
        assert!(is_version("2.0.1", "2") && is_version("0.2.1", "0.2") && is_version("2", "2"));
        assert!(!is_version("20.0.1", "2") && !is_version("0.20.0", "0.2"));
    }

    #[test]
    fn the_file_can_be_read() {
        let text = std::fs::read_to_string(crate::root().join(RULES)).unwrap();
        let rules = Rules::read(&text).unwrap();
        assert!(rules.licences.contains("MIT") && rules.banned.contains_key("plotters"));
        assert!(Rules::read("[licenses]\nallow = []\n").is_err());
    }
}
