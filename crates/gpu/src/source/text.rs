//! Text of a kernel, built line by line.

use std::fmt;

/// A growing text.
#[derive(Debug, Default)]
pub(super) struct Text(pub(super) String);

impl Text {
    pub(super) fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = fmt::Write::write_fmt(&mut self.0, line);
        self.0.push('\n');
    }
}

/// `line!(text, "format {}", …)`.
macro_rules! line {
    ($text:expr, $($format:tt)*) => {
        $text.line(format_args!($($format)*))
    };
}
pub(super) use line;

/// A vector load or store such as `LOAD4(p, a, b, c, d)`, by the number of names.
pub(super) fn together(verb: &str, place: &str, names: &[String]) -> String {
    format!("{verb}{}({place}, {});", names.len(), names.join(", "))
}
