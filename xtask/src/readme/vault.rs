//! The tables of the protector and of several hosts.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::number;

/// One row per figure of the record.
pub(super) fn table(record: &str) -> Result<String> {
    let mut lines = record.lines().map(serde_json::from_str::<Value>);
    let machine = lines.next().context("it is empty")??;
    let text = |line: &Value, key: &str| -> Result<String> {
        Ok(line[key].as_str().with_context(|| format!("a line without \"{key}\": {line}"))?.to_owned())
    };
    let mut out = String::from(
        "| case | Gabion | reference | ratio | bar | conditions |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    let mut rows = 0;
    for line in lines {
        let line = line?;
        let (value, reference) = (number(&line, "value")?, number(&line, "reference")?);
        let (unit, against) = (text(&line, "unit")?, text(&line, "against")?);
        // Not every case has one.
        let bar = match line.get("bar") {
            Some(_) => ((number(&line, "bar")? * 100.0).round() / 100.0).to_string(),
            None => "–".to_owned(),
        };
        writeln!(
            out,
            "| {} | {} {unit} | {against}: {} | {:.2} | {} | {} |",
            text(&line, "case")?,
            shown(value),
            shown(reference),
            number(&line, "ratio")?,
            bar,
            readable(&text(&line, "conditions")?)
        )?;
        rows += 1;
    }
    ensure!(rows > 0, "no figures");
    let (date, cpu, kernel) = (text(&machine, "date")?, text(&machine, "cpu")?, text(&machine, "kernel")?);
    writeln!(
        out,
        "\nMeasured {date} on {cpu}, {} cores, kernel set `{kernel}`. Ratios over 1 are better.",
        machine["cores"]
    )?;
    Ok(out)
}

/// Conditions with numbers of bytes in binary units, where they are whole ones.
fn readable(conditions: &str) -> String {
    let words: Vec<&str> = conditions.split(' ').collect();
    let mut out: Vec<String> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| words[index].parse::<u64>().ok());
        let after = words.get(index + 1).is_some_and(|next| next.trim_end_matches(',') == "bytes");
        match (word.parse::<u64>().ok().and_then(binary), before.and_then(binary)) {
            (Some(size), _) if after => out.push(size),
            (_, Some(_)) if word.trim_end_matches(',') == "bytes" => {
                if let (Some(last), true) = (out.last_mut(), word.ends_with(',')) {
                    last.push(',');
                }
            }
            _ => out.push((*word).to_owned()),
        }
    }
    out.join(" ")
}

/// A whole number of GiB or MiB.
fn binary(bytes: u64) -> Option<String> {
    let whole = |unit: u64| (bytes >= unit && bytes.is_multiple_of(unit)).then(|| bytes / unit);
    let gib = whole(1 << 30).map(|number| format!("{number} GiB"));
    gib.or_else(|| whole(1 << 20).map(|number| format!("{number} MiB")))
}

/// Three digits, or whole numbers.
fn shown(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::{readable, table};

    const RECORD: &str = r#"{"bench":"machine","date":"2026-01-02","cpu":"Test CPU","cores":2,"kernel":"wide"}
{"bench":"vault","case":"scrub","value":2.5,"unit":"GB/s","against":"plain-read","reference":2.0,"ratio":1.25,"bar":0.9,"conditions":"cold"}
"#;

    #[test]
    fn figures_come_from_the_record() {
        let text = table(RECORD).unwrap();
        assert!(text.contains("| scrub | 2.50 GB/s | plain-read: 2.00 | 1.25 | 0.9 | cold |"), "{text}");
        assert!(text.contains("2026-01-02 on Test CPU, 2 cores, kernel set `wide`"), "{text}");
        assert!(table("").is_err() && table("{}\n").is_err());
    }

    #[test]
    fn bytes_are_shown_in_binary_units() {
        assert_eq!(readable("4294967296 bytes in large files"), "4 GiB in large files");
        assert_eq!(readable("of 3145728 bytes, cold"), "of 3 MiB, cold");
        assert_eq!(readable("10 files of 2 KiB, 1000 bytes each"), "10 files of 2 KiB, 1000 bytes each");
    }
}
