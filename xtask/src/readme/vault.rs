//! The table of the protector.

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
        "| what | Gabion | beside | ratio | wanted | how |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    let mut rows = 0;
    for line in lines {
        let line = line?;
        let (value, reference) = (number(&line, "value")?, number(&line, "reference")?);
        let (unit, against) = (text(&line, "unit")?, text(&line, "against")?);
        writeln!(
            out,
            "| {} | {} {unit} | {against}: {} | {:.2} | {} | {} |",
            text(&line, "case")?,
            shown(value),
            shown(reference),
            number(&line, "ratio")?,
            number(&line, "bar")?,
            text(&line, "conditions")?
        )?;
        rows += 1;
    }
    ensure!(rows > 0, "no figures");
    let (date, cpu, kernel) = (text(&machine, "date")?, text(&machine, "cpu")?, text(&machine, "kernel")?);
    writeln!(
        out,
        "\nMeasured {date} on {cpu}, {} cores, kernel `{kernel}`. Ratios over 1 are better.",
        machine["cores"]
    )?;
    Ok(out)
}

/// Three digits, or whole numbers.
fn shown(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::table;

    const RECORD: &str = r#"{"bench":"machine","date":"2026-01-02","cpu":"Test CPU","cores":2,"kernel":"wide"}
{"bench":"vault","case":"scrub","value":2.5,"unit":"GB/s","against":"plain-read","reference":2.0,"ratio":1.25,"bar":0.9,"conditions":"cold"}
"#;

    #[test]
    fn figures_come_from_the_record() {
        let text = table(RECORD).unwrap();
        assert!(text.contains("| scrub | 2.50 GB/s | plain-read: 2.00 | 1.25 | 0.9 | cold |"), "{text}");
        assert!(text.contains("2026-01-02 on Test CPU, 2 cores, kernel `wide`"), "{text}");
        assert!(table("").is_err() && table("{}\n").is_err());
    }
}
