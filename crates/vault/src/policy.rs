//! Policies: which files get which redundancy, and when. Read from TOML; `docs/reference/policy.toml` is a commented
//! example.
//!
//! Rules are tried in order and the first that matches decides; what it does not say comes from `[default]`.

mod condition;
mod exclude;
mod glob;
mod meant;
mod sections;
mod units;
mod users;

pub use exclude::exclude;
pub use units::{DurationText, Percent, Rate, Size, Unusable, usable};
pub use users::UserDecision;

use crate::format::header::coding;
use crate::tree::{Stat, Tree, split};
use crate::world::Timestamp;
use condition::{Condition, ConditionText, File, Identity};
use gabion_engine::Code;
use sections::{GuardText, LimitsText, ReplacedText};
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use users::{UserFile, Users, UsersText};

/// Treatment of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Treatment {
    /// The code.
    pub code: Code,
    /// The code's identity in full, as headers have it, and what blocks have besides signatures.
    pub identity: String,
    /// Block size in bytes, where storage leaves the choice.
    pub block: u64,
    /// Quiet period: time without changes before a file is encoded in the background.
    pub quiet: Duration,
    /// Among due files, those with higher priority come first.
    pub priority: u8,
    /// Interval between scrubs.
    pub scrub: Duration,
    /// A protected file that changes is reported and keeps its redundancy.
    pub write_once: bool,
    /// Every block has a cryptographic hash beside its signature.
    pub strong: bool,
    /// Files with equal redundancy share it.
    pub share_duplicates: bool,
}

/// Decision of a policy for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Treatment; none if the file is not protected.
    pub treatment: Option<Cow<'a, Treatment>>,
    /// Number of the rule that decided, from 0; none for the default.
    pub rule: Option<usize>,
    /// The rule of the file's owner that was applied to it, in whole or in part.
    pub user: Option<UserDecision>,
}

/// A policy for the files of one directory: users' policies above it are looked up once.
pub struct DirectoryPolicy<'a> {
    policy: &'a Policy,
    users: Vec<Arc<UserFile>>,
}

impl DirectoryPolicy<'_> {
    /// Decides about a file of this directory.
    pub fn decide(&self, path: &[u8], stat: &Stat, now: Timestamp) -> Decision<'_> {
        self.policy.decide_with(&self.users, path, stat, now)
    }

    /// Users' policies of the directory and those above that are ignored, with reasons.
    pub fn ignored(&self) -> impl Iterator<Item = (Vec<u8>, &str)> {
        self.users.iter().filter_map(|file| Some((file.path(), file.ignored()?)))
    }
}

/// Bounds of the guard. A change-set beyond them is held until a person approves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// Percentage of protected files that may be deleted without an approval.
    pub removed: Percent,
    /// Percentage of protected files that may change without an approval.
    pub changed: Percent,
    /// Smaller change-sets are never held.
    pub at_least: u64,
    /// Deletions and changes within this time are counted together; 0 counts each change-set alone.
    pub window: Duration,
}

impl Guard {
    /// True if the numbers exceed the bounds, for `known` protected files.
    pub fn is_exceeded(&self, removed: u64, changed: u64, known: u64) -> bool {
        let too_many = |share: Percent, files: u64| files >= self.at_least && share.is_exceeded(files, known);
        too_many(self.removed, removed) || too_many(self.changed, changed)
    }
}

/// Retention of content that repair replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// Maximum age.
    pub keep: Duration,
    /// Maximum percentage of the repository's file system; the oldest content is removed first.
    pub room: Percent,
}

/// A checked policy.
#[derive(Debug)]
pub struct Policy {
    /// Treatment of files that no rule matches.
    pub default: Treatment,
    rules: Vec<Rule>,
    /// Bounds of the guard.
    pub guard: Guard,
    /// Retention of replaced content.
    pub replaced: Replaced,
    /// Maximum read rate in bytes per second; none for no limit.
    pub rate: Option<u64>,
    /// Block sizes in the text, to refuse those that the storage would ignore.
    blocks: Vec<u64>,
    /// Tree of the files, for properties that only some rules ask for.
    tree: Option<Tree>,
    /// Bounds of users' policies; none if there are none.
    users: Option<Users>,
}

#[derive(Debug)]
struct Rule {
    name: String,
    condition: Condition,
    treatment: Option<Treatment>,
}

/// Error in a policy, with line and column where possible.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The text is not a valid policy.
    #[error("{}{}", .0, meant::meant(.0))]
    Text(#[from] toml::de::Error),
    /// A rule cannot be added to the text.
    #[error("it is not certain where its rules begin: add the rule in an editor")]
    Order,
    /// A pattern that would exclude everything or nothing.
    #[error("{0:?} cannot be excluded: give a name, or a path below the directory without `.` and `..`")]
    Exclusion(String),
    /// Invalid pattern.
    #[error("{place}: pattern {pattern:?}: {why}")]
    Pattern {
        /// Position.
        place: Place,
        /// The pattern.
        pattern: String,
        /// Reason.
        why: String,
    },
    /// A user or group that does not exist on this machine.
    #[error("{place}: {kind} {name:?} does not exist on this machine")]
    Unknown {
        /// Position.
        place: Place,
        /// `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A negation without conditions.
    #[error("{place}: an empty `not`: leave it out, or name what the rule is not about")]
    EmptyNot {
        /// Position.
        place: Place,
    },
    /// Conditions in the policy of a pool that only files of a directory can meet.
    #[error("{option} would have no effect in a pool: remove it")]
    PoolOption {
        /// The option.
        option: &'static str,
    },
    /// An option in a rule that excludes files.
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
        /// Position of the block size, or of the code.
        place: Place,
        /// The rule.
        rule: String,
        /// Reason.
        source: crate::geometry::GeometryError,
    },
}

/// Line and column, counted from 1.
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
    #[serde(default)]
    users: UsersText,
}

#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
struct TreatmentText {
    code: Option<toml::Spanned<units::CodeText>>,
    block: Option<toml::Spanned<Size>>,
    quiet: Option<DurationText>,
    priority: Option<u8>,
    scrub: Option<DurationText>,
    write_once: Option<bool>,
    strong: Option<bool>,
    share_duplicates: Option<bool>,
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
    #[serde(default, deserialize_with = "units::some")]
    projects: Vec<u32>,
    larger: Option<Size>,
    smaller: Option<Size>,
    older: Option<DurationText>,
    newer: Option<DurationText>,
    not: Option<toml::Spanned<ConditionText>>,
    protect: Option<bool>,
    code: Option<toml::Spanned<units::CodeText>>,
    block: Option<toml::Spanned<Size>>,
    quiet: Option<DurationText>,
    priority: Option<u8>,
    scrub: Option<DurationText>,
    write_once: Option<bool>,
    strong: Option<bool>,
    share_duplicates: Option<bool>,
}

/// Default block size in bytes.
pub const DEFAULT_BLOCK: u64 = 64 << 10;

/// Default treatment.
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
        share_duplicates: false,
    }
}

impl Policy {
    /// A policy that protects all files with `code`.
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
            tree: None,
            users: None,
        }
    }

    /// Reads a policy; `code` is the default code. `identity` looks up the number of a user or group.
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
        let users = parsed.users.build();
        Ok(Policy { default, rules, guard, replaced, rate, blocks, tree: None, users })
    }

    /// Refuses block sizes that storage with its own block size would ignore.
    ///
    /// # Errors
    /// [`PolicyError::PoolBlock`].
    pub fn check_pool_block(&self, pool: u64) -> Result<(), PolicyError> {
        match self.blocks.iter().all(|&block| block == pool) {
            true => Ok(()),
            false => Err(PolicyError::PoolBlock { pool: Size(pool) }),
        }
    }

    /// Refuses conditions on properties that files of a pool do not have.
    ///
    /// # Errors
    /// [`PolicyError::PoolOption`].
    pub fn check_pool_conditions(&self) -> Result<(), PolicyError> {
        match () {
            () if self.has_users() => Err(PolicyError::PoolOption { option: "users" }),
            () if self.shares_duplicates() => Err(PolicyError::PoolOption { option: "share_duplicates" }),
            () if self.rules.iter().any(|rule| rule.condition.asks_for_projects()) => {
                Err(PolicyError::PoolOption { option: "projects" })
            }
            () => Ok(()),
        }
    }

    /// True if any files with equal redundancy share it.
    pub fn shares_duplicates(&self) -> bool {
        let rules = self.rules.iter().filter_map(|rule| rule.treatment.as_ref());
        rules.chain([&self.default]).any(|treatment| treatment.share_duplicates)
    }

    /// Sets the tree of the files. Without one, all files count as having no project.
    pub fn look_in(&mut self, tree: Option<Tree>) {
        self.tree = tree;
    }

    /// The tree of the files.
    pub(crate) fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    fn file<'a>(&'a self, path: &'a [u8], stat: &'a Stat, now: Timestamp) -> File<'a> {
        File { path, stat, now, tree: self.tree.as_ref().map(|tree| (tree, path)) }
    }

    /// Decides about the file at `path`.
    pub fn decide(&self, path: &[u8], stat: &Stat, now: Timestamp) -> Decision<'_> {
        self.decide_with(&self.users_above(split(path).0, now), path, stat, now)
    }

    /// The policy for the files of one directory.
    pub fn in_directory(&self, directory: &[u8], now: Timestamp) -> DirectoryPolicy<'_> {
        DirectoryPolicy { policy: self, users: self.users_above(directory, now) }
    }

    fn users_above(&self, directory: &[u8], now: Timestamp) -> Vec<Arc<UserFile>> {
        match (&self.users, &self.tree) {
            (Some(users), Some(tree)) => users.files(tree, directory, now),
            _ => Vec::new(),
        }
    }

    fn decide_with(&self, users: &[Arc<UserFile>], path: &[u8], stat: &Stat, now: Timestamp) -> Decision<'_> {
        let file = self.file(path, stat, now);
        let found = self.rules.iter().position(|rule| rule.condition.holds(&file));
        let treatment = match found {
            Some(rule) => self.rules[rule].treatment.as_ref(),
            None => Some(&self.default),
        };
        // Users cannot add what the vault's policy excludes.
        if let (Some(base), Some(bounds)) = (treatment, &self.users)
            && let Some((treatment, user)) = bounds.refine(base, users, &file)
        {
            return Decision { treatment: treatment.map(Cow::Owned), rule: found, user: Some(user) };
        }
        Decision { treatment: treatment.map(Cow::Borrowed), rule: found, user: None }
    }

    /// Name of a rule; generated if it has none.
    pub fn rule_name(&self, rule: Option<usize>) -> &str {
        rule.and_then(|rule| self.rules.get(rule)).map_or("default", |rule| &rule.name)
    }

    /// For every rule before the deciding one: its name and the condition that does not hold.
    pub fn refusals(&self, path: &[u8], stat: &Stat, now: Timestamp) -> Vec<(&str, String)> {
        let file = self.file(path, stat, now);
        let reasons = self.rules.iter().map(|rule| (&*rule.name, rule.condition.fails(&file)));
        reasons.map_while(|(name, reason)| Some((name, reason?))).collect()
    }

    /// The conditions of the deciding rule, as what is true of the file.
    pub fn reasons(&self, rule: Option<usize>, path: &[u8], stat: &Stat, now: Timestamp) -> Vec<String> {
        let rule = rule.and_then(|rule| self.rules.get(rule));
        rule.map(|rule| rule.condition.describe(&self.file(path, stat, now))).unwrap_or_default()
    }

    /// Names and treatments of all rules.
    pub fn rules(&self) -> impl Iterator<Item = (&str, Option<&Treatment>)> {
        self.rules.iter().map(|rule| (&*rule.name, rule.treatment.as_ref()))
    }

    /// True if users have policies of their own.
    pub fn has_users(&self) -> bool {
        self.users.is_some()
    }

    /// Shortest quiet period that a file can have.
    pub fn shortest_quiet(&self) -> Duration {
        let of_rules = self.rules().filter_map(|(_, treatment)| treatment).chain([&self.default]);
        let of_users = self.users.as_ref().and_then(Users::shortest_quiet);
        of_rules.map(|treatment| treatment.quiet).chain(of_users).min().unwrap_or_default()
    }

    /// True if all files get the same treatment.
    pub fn is_uniform(&self) -> bool {
        self.rules.is_empty() && self.users.is_none()
    }

    /// True if decisions depend on the owner or group of files.
    pub fn asks_for_owners(&self) -> bool {
        self.has_users() || self.rules.iter().any(|rule| rule.condition.asks_for_owners())
    }

    /// Codes of the default and all rules.
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
    /// The first option that is set.
    fn first_option(&self) -> Option<&'static str> {
        let TreatmentText { code, block, quiet, priority, scrub, write_once, strong, share_duplicates } =
            self;
        let given = [
            ("code", code.is_some()),
            ("block", block.is_some()),
            ("quiet", quiet.is_some()),
            ("priority", priority.is_some()),
            ("scrub", scrub.is_some()),
            ("write_once", write_once.is_some()),
            ("strong", strong.is_some()),
            ("share_duplicates", share_duplicates.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// Position of the block size, or else of the code that decides it.
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
            share_duplicates: self.share_duplicates.unwrap_or(default.share_duplicates),
        }
    }
}

impl RuleText {
    fn build(
        self,
        number: usize,
        text: &str,
        default: &Treatment,
        identity: Identity<'_>,
    ) -> Result<Rule, PolicyError> {
        let conditions = ConditionText {
            paths: self.paths,
            extensions: self.extensions,
            owners: self.owners,
            groups: self.groups,
            projects: self.projects,
            larger: self.larger,
            smaller: self.smaller,
            older: self.older,
            newer: self.newer,
        };
        let condition = Condition::build(conditions, self.not, text, identity)?;
        let name = self.name.unwrap_or_else(|| format!("rule {}", number + 1));
        let own = TreatmentText {
            code: self.code,
            block: self.block,
            quiet: self.quiet,
            priority: self.priority,
            scrub: self.scrub,
            write_once: self.write_once,
            strong: self.strong,
            share_duplicates: self.share_duplicates,
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

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Treatment { code, block, quiet, priority, scrub, write_once, strong, share_duplicates, .. } =
            self;
        let (quiet, scrub) = (DurationText(*quiet), DurationText(*scrub));
        write!(f, "code {code}, block {}, quiet {quiet}, priority {priority}, scrub {scrub}", Size(*block))?;
        if *strong {
            write!(f, ", blake3 of every block")?;
        }
        if *write_once {
            write!(f, ", write once")?;
        }
        if *share_duplicates { write!(f, ", duplicates share redundancy") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
