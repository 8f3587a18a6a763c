//! Conditions of rules. Each can be negated.

use super::glob::Globs;
use super::units::{self, DurationText, Size};
use super::{Place, PolicyError};
use crate::tree::{Stat, Tree};
use crate::world::Timestamp;
use serde::Deserialize;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Looks up the number of a `user` or `group`.
pub(super) type Identity<'a> = &'a dyn Fn(&'static str, &str) -> Option<u32>;

/// A file as conditions see it.
#[derive(Clone, Copy)]
pub(super) struct File<'a> {
    /// Path relative to the directory that patterns start from.
    pub(super) path: &'a [u8],
    pub(super) stat: &'a Stat,
    pub(super) now: Timestamp,
    /// The tree and the path in it, for properties that are read only if a rule asks for them.
    pub(super) tree: Option<(&'a Tree, &'a [u8])>,
}

impl File<'_> {
    /// Project id. A file that cannot be opened cannot be protected either, so its project does not matter.
    fn project(&self) -> u32 {
        self.tree.and_then(|(tree, path)| tree.project(path).ok()).unwrap_or(0)
    }
}

/// Text of the conditions that can be negated.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct ConditionText {
    #[serde(default, deserialize_with = "units::some")]
    pub(super) paths: Vec<toml::Spanned<String>>,
    #[serde(default, deserialize_with = "units::some")]
    pub(super) extensions: Vec<String>,
    #[serde(default, deserialize_with = "units::some")]
    pub(super) owners: Vec<toml::Spanned<String>>,
    #[serde(default, deserialize_with = "units::some")]
    pub(super) groups: Vec<toml::Spanned<String>>,
    #[serde(default, deserialize_with = "units::some")]
    pub(super) projects: Vec<u32>,
    pub(super) larger: Option<Size>,
    pub(super) smaller: Option<Size>,
    pub(super) older: Option<DurationText>,
    pub(super) newer: Option<DurationText>,
}

/// Conditions of a rule: all of them hold for files that the rule applies to.
#[derive(Debug)]
pub(super) struct Condition(Vec<Clause>);

/// One condition.
#[derive(Debug)]
struct Clause {
    test: Test,
    negated: bool,
}

#[derive(Debug)]
enum Test {
    Paths(Globs, Vec<String>),
    Extensions(Vec<String>),
    Owners(Vec<u32>),
    Groups(Vec<u32>),
    Larger(u64),
    Smaller(u64),
    Older(Duration),
    Newer(Duration),
    Projects(Vec<u32>),
}

impl Condition {
    /// Conditions that must hold, and those of `not`, none of which may hold.
    pub(super) fn build(
        own: ConditionText,
        not: Option<toml::Spanned<ConditionText>>,
        text: &str,
        identity: Identity<'_>,
    ) -> Result<Condition, PolicyError> {
        let mut clauses: Vec<Clause> = Vec::new();
        let clause = |negated| move |test| Clause { test, negated };
        clauses.extend(tests(own, text, identity)?.into_iter().map(clause(false)));
        if let Some(not) = not {
            let place = Place::new(text, not.span().start);
            let tests = tests(not.into_inner(), text, identity)?;
            if tests.is_empty() {
                return Err(PolicyError::EmptyNot { place });
            }
            clauses.extend(tests.into_iter().map(clause(true)));
        }
        // Project ids need a system call.
        clauses.sort_by_key(|clause| matches!(clause.test, Test::Projects(_)));
        Ok(Condition(clauses))
    }

    /// True if all hold.
    pub(super) fn holds(&self, file: &File<'_>) -> bool {
        self.0.iter().all(|clause| clause.holds(file))
    }

    /// Describes the first condition that does not hold.
    pub(super) fn fails(&self, file: &File<'_>) -> Option<String> {
        self.0.iter().find(|clause| !clause.holds(file)).map(|clause| clause.describe(file))
    }

    /// Describes each condition, for a file for which all hold.
    pub(super) fn describe(&self, file: &File<'_>) -> Vec<String> {
        self.0.iter().map(|clause| clause.describe(file)).collect()
    }

    /// True if the owner or group of files matters.
    pub(super) fn asks_for_owners(&self) -> bool {
        self.0.iter().any(|clause| matches!(clause.test, Test::Owners(_) | Test::Groups(_)))
    }

    /// True if the project of files matters.
    pub(super) fn asks_for_projects(&self) -> bool {
        self.0.iter().any(|clause| matches!(clause.test, Test::Projects(_)))
    }
}

fn tests(given: ConditionText, text: &str, identity: Identity<'_>) -> Result<Vec<Test>, PolicyError> {
    let ConditionText { paths, extensions, owners, groups, projects, larger, smaller, older, newer } = given;
    let mut globs = Globs::new();
    for pattern in &paths {
        globs.add(pattern.get_ref()).map_err(|why| PolicyError::Pattern {
            place: Place::new(text, pattern.span().start),
            pattern: pattern.get_ref().clone(),
            why: why.to_owned(),
        })?;
    }
    let known = |kind: &'static str, names: &[toml::Spanned<String>]| -> Result<Vec<u32>, PolicyError> {
        let number = |name: &toml::Spanned<String>| {
            let known = name.get_ref().parse().ok().or_else(|| identity(kind, name.get_ref()));
            known.ok_or_else(|| PolicyError::Unknown {
                place: Place::new(text, name.span().start),
                kind,
                name: name.get_ref().clone(),
            })
        };
        names.iter().map(number).collect()
    };
    let (owners, groups) = (known("user", &owners)?, known("group", &groups)?);
    let patterns: Vec<String> = paths.into_iter().map(toml::Spanned::into_inner).collect();
    let all = [
        (!patterns.is_empty()).then_some(Test::Paths(globs, patterns)),
        (!extensions.is_empty()).then_some(Test::Extensions(extensions)),
        (!owners.is_empty()).then_some(Test::Owners(owners)),
        (!groups.is_empty()).then_some(Test::Groups(groups)),
        larger.map(|size| Test::Larger(size.0)),
        smaller.map(|size| Test::Smaller(size.0)),
        older.map(|age| Test::Older(age.0)),
        newer.map(|age| Test::Newer(age.0)),
        (!projects.is_empty()).then_some(Test::Projects(projects)),
    ];
    Ok(all.into_iter().flatten().collect())
}

impl Clause {
    fn holds(&self, file: &File<'_>) -> bool {
        self.test.holds(file) != self.negated
    }

    fn describe(&self, file: &File<'_>) -> String {
        let (holds, text) = (self.test.holds(file), self.test.describe(file));
        match self.negated && holds {
            true => format!("{text}, which `not` excludes"),
            false => text,
        }
    }
}

impl Test {
    fn holds(&self, file: &File<'_>) -> bool {
        match self {
            Test::Paths(globs, _) => globs.is_match(file.path),
            Test::Extensions(known) => {
                let extension = Path::new(OsStr::from_bytes(file.path)).extension();
                let extension = extension.map(OsStr::as_bytes);
                known.iter().any(|known| extension == Some(known.as_bytes()))
            }
            Test::Owners(owners) => owners.contains(&file.stat.uid),
            Test::Groups(groups) => groups.contains(&file.stat.gid),
            Test::Larger(bound) => file.stat.size > *bound,
            Test::Smaller(bound) => file.stat.size < *bound,
            Test::Older(bound) => file.stat.mtime < file.now - *bound,
            Test::Newer(bound) => file.stat.mtime > file.now - *bound,
            Test::Projects(projects) => projects.contains(&file.project()),
        }
    }

    /// What is true of the file, whether the condition holds or not.
    fn describe(&self, file: &File<'_>) -> String {
        let holds = self.holds(file);
        let list = |what: &str, names: &[String]| match (holds, names) {
            (true, [one]) => format!("its {what} {one}"),
            (true, names) => format!("its {what} one of {}", names.join(", ")),
            (false, names) => format!("its {what} none of {}", names.join(", ")),
        };
        match self {
            Test::Paths(_, patterns) => list("path matches", patterns),
            Test::Extensions(extensions) => list("extension is", extensions),
            Test::Owners(_) => format!("its owner is {}", file.stat.uid),
            Test::Groups(_) => format!("its group is {}", file.stat.gid),
            Test::Projects(_) => format!("its project is {}", file.project()),
            Test::Larger(bound) => {
                compared(file.stat.size, if holds { "more than" } else { "not more" }, *bound)
            }
            Test::Smaller(bound) => {
                compared(file.stat.size, if holds { "less than" } else { "not less" }, *bound)
            }
            Test::Older(bound) if holds => format!("it is older than {}", DurationText(*bound)),
            Test::Newer(bound) if holds => format!("it is younger than {}", DurationText(*bound)),
            Test::Older(_) => "it is younger".to_owned(),
            Test::Newer(_) => "it is older".to_owned(),
        }
    }
}

fn compared(size: u64, how: &str, bound: u64) -> String {
    match how.ends_with("than") {
        true => format!("it has {size} bytes, {how} {}", Size(bound)),
        false => format!("it has {size} bytes, {how}"),
    }
}
