//! SVG text, element by element. Coordinates are pixels from the upper left corner.

use std::fmt::{self, Write};

/// Colour of letters and axes.
pub(crate) const INK: &str = "#282828";

/// Horizontal position of a text relative to its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle, as an area to draw in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    pub(crate) fn right(self) -> f64 {
        self.x + self.width
    }

    pub(crate) fn bottom(self) -> f64 {
        self.y + self.height
    }
}

/// The text of a drawing.
pub(crate) struct Svg {
    text: String,
}

/// A coordinate with at most one decimal: a tenth of a pixel is not seen.
struct Pixels(f64);

impl fmt::Display for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", (self.0 * 10.0).round() / 10.0)
    }
}

impl Svg {
    /// An empty drawing on white.
    pub(crate) fn new(width: u32, height: u32, font: &str) -> Svg {
        let mut svg = Svg { text: String::new() };
        svg.line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"{font}, Verdana, sans-serif\" fill=\"{INK}\">"
        ));
        svg.line(format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>"));
        svg
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        self.line(format_args!("</svg>"));
        self.text
    }

    fn line(&mut self, element: fmt::Arguments<'_>) {
        writeln!(self.text, "{element}").expect("writing to a String cannot fail");
    }

    pub(crate) fn stroke(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: u32) {
        let ((x1, y1), (x2, y2)) = (pixels(from), pixels(to));
        self.line(format_args!(
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        ));
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], colour: &str, width: u32) {
        let points: Vec<String> =
            points.iter().map(|&at| pixels(at)).map(|(x, y)| format!("{x},{y}")).collect();
        let points = points.join(" ");
        self.line(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>"
        ));
    }

    pub(crate) fn polygon(&mut self, points: &[(f64, f64)], colour: &str) {
        let points: Vec<String> =
            points.iter().map(|&at| pixels(at)).map(|(x, y)| format!("{x},{y}")).collect();
        self.line(format_args!("<polygon points=\"{}\" fill=\"{colour}\"/>", points.join(" ")));
    }

    pub(crate) fn circle(&mut self, at: (f64, f64), radius: u32, colour: &str) {
        let (x, y) = pixels(at);
        self.line(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{colour}\"/>"));
    }

    pub(crate) fn rectangle(&mut self, area: Area, colour: &str, opacity: f64) {
        let ((x, y), (width, height)) = (pixels((area.x, area.y)), pixels((area.width, area.height)));
        self.line(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\" fill-opacity=\"{opacity}\"/>"
        ));
    }

    /// A text whose middle line passes through `at`.
    pub(crate) fn text(&mut self, at: (f64, f64), size: u32, anchor: Anchor, text: &str) {
        self.lettering(at, size, anchor, "", text);
    }

    /// A text that reads upwards, centred on `at`.
    pub(crate) fn upwards(&mut self, at: (f64, f64), size: u32, text: &str) {
        let (x, y) = pixels(at);
        self.lettering(at, size, Anchor::Middle, &format!(" transform=\"rotate(-90 {x} {y})\""), text);
    }

    fn lettering(&mut self, (x, y): (f64, f64), size: u32, anchor: Anchor, more: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        // Renderers differ in `dominant-baseline`; lower-case letters reach about 0.7 of the size above the baseline.
        let (x, y) = pixels((x, y + 0.35 * f64::from(size)));
        let text = escaped(text);
        self.line(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{anchor}\"{more}>{text}</text>"
        ));
    }
}

fn pixels((x, y): (f64, f64)) -> (Pixels, Pixels) {
    (Pixels(x), Pixels(y))
}

/// Characters that mean something in XML are named; control characters are not allowed in it at all.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Anchor, Svg, escaped};

    #[test]
    fn names_cannot_break_the_text() {
        assert_eq!(escaped("a<b> & \"c\"\u{1b}"), "a&lt;b&gt; &amp; \"c\" ");
        let mut svg = Svg::new(10, 10, "Font");
        svg.text((1.0, 2.0), 10, Anchor::End, "</svg>");
        let text = svg.finish();
        assert_eq!(text.matches("</svg>").count(), 1, "{text}");
        assert!(text.contains("x=\"1\" y=\"5.5\" font-size=\"10\" text-anchor=\"end\""), "{text}");
    }
}
