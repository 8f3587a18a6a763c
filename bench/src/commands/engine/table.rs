//! Table of results.

use gabion_bench::engine::{Case, Limit, Measurement};

/// Widths of columns by the longest names of all cases, so that rows can be printed while the bench runs.
pub(super) struct Table {
    names: usize,
}

impl Table {
    pub(super) fn new(cases: &[Case]) -> Table {
        let names = cases.iter().flat_map(|case| case.rows.iter().map(|row| case.name(row).len()));
        Table { names: names.max().unwrap_or(0).max("case".len()) }
    }

    pub(super) fn head(&self) -> String {
        let limits =
            Limit::ALL.map(|limit| format!("  {:>width$}", heading(limit), width = heading(limit).len()));
        format!("{:names$}  {:>6}  {:>6}{}\n", "case", "GB/s", "spread", limits.concat(), names = self.names)
    }

    pub(super) fn row(&self, measurement: &Measurement) -> String {
        let limits = Limit::ALL.map(|limit| {
            let percent =
                measurement.ratio(limit).map_or("-".to_owned(), |ratio| format!("{:.0} %", 100.0 * ratio));
            format!("  {percent:>width$}", width = heading(limit).len())
        });
        let spread = format!("{:.0} %", 100.0 * measurement.timing.spread());
        format!(
            "{:names$}  {:>6}  {spread:>6}{}\n",
            measurement.name,
            rate(measurement.rate()),
            limits.concat(),
            names = self.names
        )
    }
}

fn heading(limit: Limit) -> String {
    format!("of {}", limit.name())
}

/// Three significant digits.
fn rate(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
