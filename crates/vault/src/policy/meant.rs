//! The key that was meant by an unknown one.

/// A line that names the key that the error's unknown key looks like; empty if none does.
pub(super) fn meant(error: &toml::de::Error) -> String {
    let mut names = error.message().split('`').skip(1).step_by(2);
    let Some(unknown) = names.next().filter(|_| error.message().starts_with("unknown field")) else {
        return String::new();
    };
    let near = names.map(|known| (distance(unknown, known), known)).min();
    match near {
        // `owner` for `owners`, `quite` for `quiet`, but not `speed` for `scrub`.
        Some((far, known)) if far <= 1 + unknown.len() / 4 => format!("did you mean `{known}`?\n"),
        _ => String::new(),
    }
}

/// Number of letters to insert, remove or replace.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, letter) in one.chars().take(64).enumerate() {
        let mut corner = row[0];
        row[0] = number + 1;
        for column in 0..other.len() {
            let replaced = corner + usize::from(letter != other[column]);
            corner = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}
