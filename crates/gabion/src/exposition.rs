//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write;

/// Content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A sum that only grows, until the process ends.
    Counter,
}

/// Writes metrics, one family after the other.
#[derive(Debug, Default)]
pub struct Exposition(String);

/// Samples of one family.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Exposition {
    /// Begins a family. Its samples follow before the next one begins.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.0, name }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// Adds a sample; labels are names and values.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(self.name);
        for (number, (name, value)) in labels.iter().enumerate() {
            self.text.push(if number == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{name}=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        // Numbers are written as Rust writes them; only infinity and NaN differ, and neither is given.
        let _ = writeln!(self.text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::{Exposition, Kind};

    #[test]
    fn labels_are_escaped_and_numbers_exact() {
        let mut text = Exposition::default();
        let mut family = text.family("gabion_files", Kind::Gauge, "Files.");
        family.sample(&[("source", "a\"b\\c\nd"), ("state", "lost")], 1_000_000.0);
        family.sample(&[], 0.25);
        let wanted = "# HELP gabion_files Files.\n# TYPE gabion_files gauge\n\
                      gabion_files{source=\"a\\\"b\\\\c\\nd\",state=\"lost\"} 1000000\ngabion_files 0.25\n";
        assert_eq!(text.finish(), wanted);
    }
}
