//! Policies: which files get which redundancy, and when. Read from TOML; `docs/reference/policy.toml` is a commented example.
//!
//! Rules are tried in order and the first that matches decides; what it does not say comes from `[default]`.

mod glob;
mod units;

pub use units::{Duration, Percent, Rate, Size, Unusable, usable};

use crate::format::header::coding;
use crate::tree::Stat;
use crate::world::Nanos;
use gabion_engine::Code;
use glob::Globs;
use serde::Deserialize;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// What a file gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Treatment {
    /// The code.
    pub code: Code,
    /// The code's identity in full, as headers have it, and what blocks have besides signatures.
    pub identity: String,
    /// Bytes of a block, where storage leaves the choice.
    pub block: u64,
    /// How long a file must rest before redundancy is computed without being asked for.
    pub quiet: Nanos,
    /// Among files that are due, the higher comes first.
    pub priority: u8,
    /// How old the last scrub may be.
    pub scrub: Nanos,
    /// A file that has redundancy and then changes is reported and keeps the old redundancy.
    pub write_once: bool,
    /// Every block has a cryptographic hash beside its signature.
    pub strong: bool,
}

/// What a policy says of a file, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Nothing: it is not protected.
    pub treatment: Option<&'a Treatment>,
    /// The rule that decided, counted from 0; nothing for the default.
    pub rule: Option<usize>,
}

/// Bounds beyond which a change-set is held until someone approves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// Share of the protected files that may vanish without a person's word.
    pub removed: Percent,
    /// Share of the protected files whose content may change without a person's word.
    pub changed: Percent,
    /// Below this many files nothing is held.
    pub at_least: u64,
    /// What vanished or changed within this time counts together; 0: only what does so at once.
    pub window: Nanos,
}

impl Guard {
    /// Whether so many of the `known` files may not vanish or change.
    pub fn is_exceeded(&self, removed: u64, changed: u64, known: u64) -> bool {
        let too_many = |share: Percent, files: u64| files >= self.at_least && share.is_exceeded(files, known);
        too_many(self.removed, removed) || too_many(self.changed, changed)
    }
}

/// How long and how much of what repair replaced is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// What is older is removed.
    pub keep: Nanos,
    /// Share of the repository's file system; beyond it the oldest is removed.
    pub room: Percent,
}

/// All rules, checked.
#[derive(Debug)]
pub struct Policy {
    /// What files get that no rule speaks of.
    pub default: Treatment,
    rules: Vec<Rule>,
    /// When changes are held.
    pub guard: Guard,
    /// What is kept of what repair replaced.
    pub replaced: Replaced,
    /// Most bytes read per second; nothing for no bound.
    pub rate: Option<u64>,
    /// Block sizes that the text names: where storage decides that, they would have no effect.
    blocks: Vec<u64>,
}

#[derive(Debug)]
struct Rule {
    name: String,
    condition: Condition,
    treatment: Option<Treatment>,
}

/// All parts that are given must hold.
#[derive(Debug)]
struct Condition {
    paths: Option<Globs>,
    patterns: Vec<String>,
    extensions: Vec<String>,
    owners: Vec<u32>,
    groups: Vec<u32>,
    larger: Option<u64>,
    smaller: Option<u64>,
    older: Option<Nanos>,
    newer: Option<Nanos>,
}

/// Why a policy cannot be used. Errors in the text tell line and column.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The text does not say a policy.
    #[error("{0}")]
    Text(#[from] toml::de::Error),
    /// A pattern that is none.
    #[error("{place}: pattern {pattern:?}: {why}")]
    Pattern {
        /// Where it is.
        place: Place,
        /// The pattern.
        pattern: String,
        /// What is wrong.
        why: String,
    },
    /// A user or group that this machine does not know.
    #[error("{place}: {kind} {name:?} is not known on this machine")]
    Unknown {
        /// Where it is.
        place: Place,
        /// User or group.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// An option of a rule that leaves files out.
    #[error(
        "rule {rule:?}: protect = false leaves files out, so {option} would have no effect: remove one of the two"
    )]
    NoEffect {
        /// The rule.
        rule: String,
        /// The option.
        option: &'static str,
    },
    /// A block size in the policy of a pool.
    #[error(
        "block would have no effect in a pool, which has blocks of {pool} for all files (`gabion pool create --block`): remove it"
    )]
    PoolBlock {
        /// Block size of the pool.
        pool: Size,
    },
    /// A block size that does not fit the code.
    #[error("{place}: {rule}: {source}")]
    Block {
        /// Where it is, or the code that it does not fit.
        place: Place,
        /// The rule.
        rule: String,
        /// Why not.
        source: crate::geometry::GeometryError,
    },
}

/// A place in a text, as people count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    line: usize,
    column: usize,
}

impl Place {
    fn new(text: &str, offset: usize) -> Place {
        let before = text.get(..offset).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Place { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    default: TreatmentText,
    #[serde(default, rename = "rule")]
    rules: Vec<RuleText>,
    #[serde(default)]
    guard: GuardText,
    #[serde(default)]
    limits: LimitsText,
    #[serde(default)]
    replaced: ReplacedText,
}

#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
struct TreatmentText {
    code: Option<toml::Spanned<units::CodeText>>,
    block: Option<toml::Spanned<Size>>,
    quiet: Option<Duration>,
    priority: Option<u8>,
    scrub: Option<Duration>,
    write_once: Option<bool>,
    strong: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: Option<String>,
    #[serde(default, deserialize_with = "units::some")]
    paths: Vec<toml::Spanned<String>>,
    #[serde(default, deserialize_with = "units::some")]
    extensions: Vec<String>,
    #[serde(default, deserialize_with = "units::some")]
    owners: Vec<toml::Spanned<String>>,
    #[serde(default, deserialize_with = "units::some")]
    groups: Vec<toml::Spanned<String>>,
    larger: Option<Size>,
    smaller: Option<Size>,
    older: Option<Duration>,
    newer: Option<Duration>,
    protect: Option<bool>,
    code: Option<toml::Spanned<units::CodeText>>,
    block: Option<toml::Spanned<Size>>,
    quiet: Option<Duration>,
    priority: Option<u8>,
    scrub: Option<Duration>,
    write_once: Option<bool>,
    strong: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct GuardText {
    removed: Option<Percent>,
    changed: Option<Percent>,
    at_least: Option<u64>,
    window: Option<Duration>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LimitsText {
    read: Option<Rate>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ReplacedText {
    keep: Option<Duration>,
    room: Option<Percent>,
}

impl ReplacedText {
    fn build(self) -> Replaced {
        Replaced {
            keep: self.keep.map_or(30 * 86400 * crate::world::SECOND, |keep| keep.0),
            room: self.room.unwrap_or(Percent(10)),
        }
    }
}

/// Bytes of a block where nothing else is said.
pub const DEFAULT_BLOCK: u64 = 64 << 10;

/// What a file gets where nothing else is said.
pub fn default_treatment(code: Code) -> Treatment {
    let second = crate::world::SECOND;
    Treatment {
        identity: code.to_string(),
        code,
        block: DEFAULT_BLOCK,
        quiet: 60 * second,
        priority: 100,
        scrub: 30 * 86400 * second,
        write_once: false,
        strong: false,
    }
}

impl Policy {
    /// Everything gets `code`.
    pub fn only(code: Code) -> Policy {
        let guard = GuardText::default().build();
        let replaced = ReplacedText::default().build();
        Policy {
            default: default_treatment(code),
            rules: Vec::new(),
            guard,
            replaced,
            rate: None,
            blocks: Vec::new(),
        }
    }

    /// Reads a policy; `code` is what files get where it says nothing. `identity` finds the number of a user or group
    /// by its name.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn parse(
        text: &str,
        code: Code,
        identity: &dyn Fn(&'static str, &str) -> Option<u32>,
    ) -> Result<Policy, PolicyError> {
        let parsed: Text = toml::from_str(text)?;
        let place = parsed.default.place_of_block(text);
        let said = |block: &Option<toml::Spanned<Size>>| block.as_ref().map(|size| size.get_ref().0);
        let own = said(&parsed.default.block).into_iter();
        let blocks = own.chain(parsed.rules.iter().filter_map(|rule| said(&rule.block))).collect();
        let default = parsed.default.over(&default_treatment(code));
        check_block("[default]", place, &default)?;
        let mut rules = Vec::new();
        for (number, rule) in parsed.rules.into_iter().enumerate() {
            rules.push(rule.build(number, text, &default, identity)?);
        }
        let rate = parsed.limits.read.map(|rate| rate.0);
        let (guard, replaced) = (parsed.guard.build(), parsed.replaced.build());
        Ok(Policy { default, rules, guard, replaced, rate, blocks })
    }

    /// Refuses block sizes that storage with blocks of its own would ignore.
    ///
    /// # Errors
    /// [`PolicyError::PoolBlock`].
    pub fn check_pool_block(&self, pool: u64) -> Result<(), PolicyError> {
        match self.blocks.iter().all(|&block| block == pool) {
            true => Ok(()),
            false => Err(PolicyError::PoolBlock { pool: Size(pool) }),
        }
    }

    /// What the file at `path` gets.
    pub fn decide(&self, path: &[u8], stat: &Stat, now: Nanos) -> Decision<'_> {
        let found = self.rules.iter().position(|rule| rule.condition.fails(path, stat, now).is_none());
        let treatment = match found {
            Some(rule) => self.rules[rule].treatment.as_ref(),
            None => Some(&self.default),
        };
        Decision { treatment, rule: found }
    }

    /// The name of a rule, made up where it has none.
    pub fn rule_name(&self, rule: Option<usize>) -> &str {
        rule.and_then(|rule| self.rules.get(rule)).map_or("default", |rule| &rule.name)
    }

    /// For every rule before the one that decides: its name and the condition that does not hold.
    pub fn refusals(&self, path: &[u8], stat: &Stat, now: Nanos) -> Vec<(&str, String)> {
        let reasons = self.rules.iter().map(|rule| (&*rule.name, rule.condition.fails(path, stat, now)));
        reasons.map_while(|(name, reason)| Some((name, reason?))).collect()
    }

    /// The names of all rules with what each gives.
    pub fn rules(&self) -> impl Iterator<Item = (&str, Option<&Treatment>)> {
        self.rules.iter().map(|rule| (&*rule.name, rule.treatment.as_ref()))
    }

    /// True if a rule depends on the owner or group of files.
    pub fn asks_for_owners(&self) -> bool {
        self.rules.iter().any(|rule| !rule.condition.owners.is_empty() || !rule.condition.groups.is_empty())
    }

    /// The codes of all rules.
    pub fn codes(&self) -> Vec<String> {
        let all = self.rules.iter().filter_map(|rule| rule.treatment.as_ref()).chain([&self.default]);
        let mut codes: Vec<String> = all.map(|treatment| treatment.code.to_string()).collect();
        codes.sort();
        codes.dedup();
        codes
    }
}

fn check_block(rule: &str, place: Place, treatment: &Treatment) -> Result<(), PolicyError> {
    let (code, tail) = (&treatment.code, crate::geometry::Tail::Balanced);
    crate::geometry::Geometry::new(code.k() as u64, treatment.block, 1, tail, code.granule() as u64)
        .map(|_| ())
        .map_err(|source| PolicyError::Block { place, rule: rule.to_owned(), source })
}

impl TreatmentText {
    /// The first option that is given.
    fn first_option(&self) -> Option<&'static str> {
        let TreatmentText { code, block, quiet, priority, scrub, write_once, strong } = self;
        let given = [
            ("code", code.is_some()),
            ("block", block.is_some()),
            ("quiet", quiet.is_some()),
            ("priority", priority.is_some()),
            ("scrub", scrub.is_some()),
            ("write_once", write_once.is_some()),
            ("strong", strong.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// Where the size of blocks is decided: where it is said, or else by the code.
    fn place_of_block(&self, text: &str) -> Place {
        let said = self.block.as_ref().map(toml::Spanned::span);
        let span = said.or_else(|| self.code.as_ref().map(toml::Spanned::span));
        Place::new(text, span.map_or(0, |span| span.start))
    }

    fn over(self, default: &Treatment) -> Treatment {
        let code = self.code.map_or_else(|| default.code.clone(), |code| code.into_inner().0);
        let strong = self.strong.unwrap_or(default.strong);
        Treatment {
            identity: coding(&code, strong),
            strong,
            code,
            block: self.block.map_or(default.block, |size| size.into_inner().0),
            quiet: self.quiet.map_or(default.quiet, |quiet| quiet.0),
            priority: self.priority.unwrap_or(default.priority),
            scrub: self.scrub.map_or(default.scrub, |scrub| scrub.0),
            write_once: self.write_once.unwrap_or(default.write_once),
        }
    }
}

impl GuardText {
    fn build(self) -> Guard {
        Guard {
            removed: self.removed.unwrap_or(Percent(25)),
            changed: self.changed.unwrap_or(Percent(50)),
            at_least: self.at_least.unwrap_or(100),
            window: self.window.map_or(86400 * crate::world::SECOND, |window| window.0),
        }
    }
}

impl RuleText {
    fn build(
        self,
        number: usize,
        text: &str,
        default: &Treatment,
        identity: &dyn Fn(&'static str, &str) -> Option<u32>,
    ) -> Result<Rule, PolicyError> {
        let mut globs = Globs::new();
        for pattern in &self.paths {
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
        let condition = Condition {
            paths: (!self.paths.is_empty()).then_some(globs),
            patterns: self.paths.iter().map(|pattern| pattern.get_ref().clone()).collect(),
            extensions: self.extensions,
            owners: known("user", &self.owners)?,
            groups: known("group", &self.groups)?,
            larger: self.larger.map(|size| size.0),
            smaller: self.smaller.map(|size| size.0),
            older: self.older.map(|age| age.0),
            newer: self.newer.map(|age| age.0),
        };
        let name = self.name.unwrap_or_else(|| format!("rule {}", number + 1));
        let own = TreatmentText {
            code: self.code,
            block: self.block,
            quiet: self.quiet,
            priority: self.priority,
            scrub: self.scrub,
            write_once: self.write_once,
            strong: self.strong,
        };
        let place = own.place_of_block(text);
        if let (Some(false), Some(option)) = (self.protect, own.first_option()) {
            return Err(PolicyError::NoEffect { rule: name, option });
        }
        let treatment = self.protect.unwrap_or(true).then(|| own.over(default));
        treatment.iter().try_for_each(|treatment| check_block(&name, place, treatment))?;
        Ok(Rule { name, condition, treatment })
    }
}

impl Condition {
    /// The first part that does not hold, in words.
    fn fails(&self, path: &[u8], stat: &Stat, now: Nanos) -> Option<String> {
        let matched = self.paths.as_ref().is_none_or(|globs| globs.is_match(path));
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
        let age = now.saturating_sub(stat.mtime);
        let extension = path.extension().map(|extension| extension.as_bytes());
        let says = |holds: bool, why: &dyn Fn() -> String| (!holds).then(why);
        says(matched, &|| format!("its path matches none of {}", self.patterns.join(", ")))
            .or_else(|| {
                let any = self.extensions.iter().any(|known| extension == Some(known.as_bytes()));
                says(self.extensions.is_empty() || any, &|| {
                    format!("its extension is none of {}", self.extensions.join(", "))
                })
            })
            .or_else(|| {
                let held = self.owners.is_empty() || self.owners.contains(&stat.uid);
                says(held, &|| format!("its owner is {}", stat.uid))
            })
            .or_else(|| {
                let held = self.groups.is_empty() || self.groups.contains(&stat.gid);
                says(held, &|| format!("its group is {}", stat.gid))
            })
            .or_else(|| {
                let held = self.larger.is_none_or(|bound| stat.size > bound);
                says(held, &|| format!("it has {} bytes, not more", stat.size))
            })
            .or_else(|| {
                let held = self.smaller.is_none_or(|bound| stat.size < bound);
                says(held, &|| format!("it has {} bytes, not less", stat.size))
            })
            .or_else(|| says(self.older.is_none_or(|bound| age > bound), &|| "it is younger".to_owned()))
            .or_else(|| says(self.newer.is_none_or(|bound| age < bound), &|| "it is older".to_owned()))
    }
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Treatment { code, block, quiet, priority, scrub, write_once, strong, .. } = self;
        let (quiet, scrub) = (Duration(*quiet), Duration(*scrub));
        write!(f, "code {code}, block {}, quiet {quiet}, priority {priority}, scrub {scrub}", Size(*block))?;
        if *strong {
            write!(f, ", blake3 of every block")?;
        }
        if *write_once { write!(f, ", write once") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
