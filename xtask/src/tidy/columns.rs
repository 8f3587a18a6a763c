//! Rule about the width of what people read: comments in Rust, prose in Markdown.

use super::lists::MAX_COLUMNS;
use super::scan::{self, Part};
use super::{Finding, Source, Tree, numbered};

/// No comment line of a Rust file and no line of prose in Markdown is wider than the limit. Tables, code and what
/// cannot be broken may be wider.
pub(super) fn columns(tree: &Tree) -> Vec<Finding> {
    let message = format!("wider than {MAX_COLUMNS} columns");
    let of = |file: &Source| -> Vec<Finding> {
        wide_lines(file).into_iter().map(|line| Finding::new(&file.path, line, message.clone())).collect()
    };
    tree.files.iter().flat_map(of).collect()
}

/// Numbers of the lines of a file that are too wide.
fn wide_lines(file: &Source) -> Vec<usize> {
    match () {
        () if file.is_rust() => {
            let comments = scan::only(&file.text, Part::Comment);
            let lines = file.lines().zip(comments.lines());
            // A comment behind code is the formatter's.
            let own = lines.filter(|((_, line), comment)| line.trim() == comment.trim());
            own.filter(|((_, line), _)| is_wide(line, text_of(line))).map(|((number, _), _)| number).collect()
        }
        () if file.ends_with(&[".md"]) => {
            let lines = numbered(&file.text).zip(prose(&file.text));
            lines
                .filter(|((_, line), prose)| *prose && is_wide(line, line.trim()))
                .map(|((number, _), _)| number)
                .collect()
        }
        () => Vec::new(),
    }
}

/// The text of a comment line, without its marks.
fn text_of(line: &str) -> &str {
    line.trim().trim_start_matches(['/', '!', '*']).trim()
}

/// Wider than the limit, with a space before it at which the text can be broken; not a row of a table.
fn is_wide(line: &str, text: &str) -> bool {
    let columns = line.chars().count();
    if columns <= MAX_COLUMNS || text.starts_with('|') {
        return false;
    }
    let first = columns - text.chars().count();
    let mut letters = line.chars().take(MAX_COLUMNS + 1).skip(first);
    letters.any(|letter| letter == ' ')
}

/// For each line of a page whether it is prose: not in a fenced block, not indented code, no heading, picture or mark.
fn prose(page: &str) -> Vec<bool> {
    let (mut fenced, mut in_list, mut blank) = (false, false, true);
    let mut all = Vec::new();
    for line in page.lines() {
        let text = line.trim_start();
        let fence = text.starts_with("```");
        fenced ^= fence;
        let indented = line.len() - text.len() >= 4 && blank && !in_list;
        if !fenced && !text.is_empty() {
            let item = text.starts_with(['-', '*', '+']) || text.starts_with(|c: char| c.is_ascii_digit());
            in_list = item || (in_list && line.starts_with(' '));
        }
        blank = text.is_empty() || (blank && indented);
        let other = text.starts_with(['#', '<']) || text.starts_with("![");
        all.push(!fenced && !fence && !indented && !other);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::columns;

    fn words(count: usize) -> String {
        "word ".repeat(count).trim_end().to_owned()
    }

    #[test]
    fn wide_comments_and_prose_are_found() {
        let (wide, fits) = (words(25), words(20));
        let rust =
            format!("//! {fits}\n/// {wide}\nfn f() {{\n    // {wide}\n    g(\"{wide}\"); // {wide}\n}}\n");
        let page =
            format!("# {wide}\n\n{fits}\n{wide}\n- {wide}\n\n| {wide} |\n\n```\n{wide}\n```\n\n    {wide}\n");
        let files = [("a.rs", rust.as_str()), ("b.md", page.as_str()), ("c.toml", wide.as_str())];
        assert_eq!(places(columns, &files), ["a.rs:2", "a.rs:4", "b.md:4", "b.md:5"]);
    }

    #[test]
    fn what_cannot_be_broken_may_be_wide() {
        let address = format!("// {}\n// | {} |\n", "x".repeat(150), words(40));
        assert!(places(columns, &[("a.rs", &address)]).is_empty());
    }
}
