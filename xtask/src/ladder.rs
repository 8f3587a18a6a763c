//! The CPU ladder: which rows of the engine's kernel table this machine can be tested with.
//!
//! The rows are asked from the program itself (`gabion info --json`), so no list of names is kept
//! here.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::shell::Cmd;

/// The variable with which the engine is made to take one row of its table.
pub(crate) const FORCE: &str = "GABION_KERNEL";

/// The variable that names, comma separated, the rows that must not be skipped.
const REQUIRE: &str = "GABION_REQUIRE_KERNELS";

/// One row of the kernel table, as the program reports it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rung {
    pub(crate) name: String,
    pub(crate) supported: bool,
    /// What the CPU must have for it, where the program says so; else the row's name.
    pub(crate) needs: String,
}

/// Asks the program for its kernel table and checks it against what must be there.
pub(crate) fn rungs(program: &Path) -> Result<Vec<Rung>> {
    // A forced row would make this a report about that row.
    let cmd = Cmd::new(&program.to_string_lossy(), ["info", "--json"]).unset(FORCE);
    println!("    {cmd}");
    let rungs = parse(&cmd.capture()?).with_context(|| format!("output of `{cmd}`"))?;
    let required = std::env::var(REQUIRE).unwrap_or_default();
    check_required(&rungs, &required)?;
    for rung in &rungs {
        println!("    {}: {}", rung.name, if rung.supported { "supported" } else { "not here" });
    }
    Ok(rungs)
}

fn parse(json: &str) -> Result<Vec<Rung>> {
    let info: Value = serde_json::from_str(json)?;
    let rows = info["kernels"].as_array().context("no array \"kernels\"")?;
    let rungs: Vec<Rung> = rows.iter().map(rung).collect::<Result<_>>()?;
    // The scalar row runs everywhere: with none supported, every test below would be skipped.
    ensure!(rungs.iter().any(|rung| rung.supported), "no kernel is supported");
    Ok(rungs)
}

fn rung(row: &Value) -> Result<Rung> {
    let name = row["name"].as_str().with_context(|| format!("no \"name\" in {row}"))?;
    let supported = row["supported"].as_bool();
    let needs = match &row["needs"] {
        Value::String(text) if !text.is_empty() => text.clone(),
        Value::Array(list) if !list.is_empty() => {
            list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        _ => name.to_owned(),
    };
    Ok(Rung {
        name: name.to_owned(),
        supported: supported.with_context(|| format!("no \"supported\" in {row}"))?,
        needs,
    })
}

fn check_required(rungs: &[Rung], required: &str) -> Result<()> {
    for name in required.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match rungs.iter().find(|rung| rung.name == name) {
            Some(rung) if rung.supported => {}
            Some(rung) => bail!("{REQUIRE} asks for {name}, but this CPU has no {}", rung.needs),
            None => {
                let known: Vec<&str> = rungs.iter().map(|rung| rung.name.as_str()).collect();
                bail!("{REQUIRE} asks for {name}, which is none of: {}", known.join(" "))
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{check_required, parse};

    const INFO: &str = r#"{"version": "0.1.0", "kernels": [
        {"name": "scalar", "supported": true, "chosen": false},
        {"name": "wide", "supported": false, "needs": ["avx512bw", "gfni"]},
        {"name": "thin", "supported": false, "needs": "ssse3"}]}"#;

    #[test]
    fn rows_keep_their_order_and_say_what_they_need() {
        let rungs = parse(INFO).unwrap();
        let seen: Vec<_> = rungs.iter().map(|r| (r.name.as_str(), r.supported, r.needs.as_str())).collect();
        let wide = ("wide", false, "avx512bw gfni");
        assert_eq!(seen, [("scalar", true, "scalar"), wide, ("thin", false, "ssse3")]);
    }

    #[test]
    fn a_report_without_usable_kernels_is_refused() {
        for json in ["", "{}", r#"{"kernels": []}"#, r#"{"kernels": [{"name": "x"}]}"#] {
            assert!(parse(json).is_err(), "{json}");
        }
    }

    #[test]
    fn a_required_row_must_exist_and_be_supported() {
        let rungs = parse(INFO).unwrap();
        check_required(&rungs, "").unwrap();
        check_required(&rungs, "scalar, ").unwrap();
        let error = check_required(&rungs, "scalar,wide").unwrap_err().to_string();
        assert!(error.contains("has no avx512bw gfni"), "{error}");
        let error = check_required(&rungs, "sclar").unwrap_err().to_string();
        assert!(error.contains("none of: scalar wide thin"), "{error}");
    }
}
