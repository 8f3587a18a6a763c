//! Policies of ordinary users: files `.gabion-policy.toml` in their own directories, within the bounds of `[users]`.
//!
//! A user's file is input of a possible attacker. It counts only for files that its owner has at and below its
//! directory, it can only narrow or raise what the vault's policy gives a file, and a file that is not usable is
//! ignored with a reason. Nothing here fails: without a usable file, the vault's policy stands alone.
//!
//! Files are read again whenever their inode, size, times, mode or owner differ, at each decision, so that all
//! processes decide alike.

use super::condition::{Condition, ConditionText, File};
use super::units::{self, CodeText, DurationText, Percent};
use super::{Place, PolicyError, Treatment, check_block};
use crate::display_path::DisplayPath;
use crate::format::header::coding;
use crate::tree::{Kind, Stat, Tree, join};
use crate::version::is_in_doubt;
use crate::world::Timestamp;
use gabion_engine::Code;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Name of a user's policy.
const USER_FILE: &[u8] = b".gabion-policy.toml";

/// Most bytes of a user's policy. It bounds the time that its patterns cost for each of the user's files.
const MAX_BYTES: u64 = 4096;

/// Most files that are kept in memory; then all are read again.
const MAX_KEPT: usize = 4096;

/// The section `[users]`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct UsersText {
    #[serde(default)]
    allow: bool,
    #[serde(default, deserialize_with = "units::some")]
    codes: Vec<CodeText>,
    max_redundancy: Option<Percent>,
    #[serde(default)]
    may_lower: bool,
    #[serde(default)]
    may_exclude: bool,
    min_quiet: Option<DurationText>,
    max_quiet: Option<DurationText>,
}

/// Bounds of users' policies, and the files that were read.
#[derive(Debug)]
pub(super) struct Users {
    codes: Vec<Code>,
    max_redundancy: Option<Percent>,
    may_lower: bool,
    may_exclude: bool,
    min_quiet: Option<Duration>,
    max_quiet: Option<Duration>,
    kept: Mutex<Kept>,
}

/// Files that were read, by their directories.
type Kept = HashMap<Vec<u8>, (Version, Arc<UserFile>)>;

impl UsersText {
    /// None if users have no say.
    pub(super) fn build(self) -> Option<Users> {
        self.allow.then(|| Users {
            codes: self.codes.into_iter().map(|code| code.0).collect(),
            max_redundancy: self.max_redundancy,
            may_lower: self.may_lower,
            may_exclude: self.may_exclude,
            min_quiet: self.min_quiet.map(|quiet| quiet.0),
            max_quiet: self.max_quiet.map(|quiet| quiet.0),
            kept: Mutex::default(),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default, rename = "rule")]
    rules: Vec<RuleText>,
}

/// A user's rule. Conditions on owners, groups and projects, and options that concern others (priority, scrub,
/// write_once, block) are the administrator's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: Option<String>,
    #[serde(default, deserialize_with = "units::some")]
    paths: Vec<toml::Spanned<String>>,
    #[serde(default, deserialize_with = "units::some")]
    extensions: Vec<String>,
    larger: Option<units::Size>,
    smaller: Option<units::Size>,
    older: Option<DurationText>,
    newer: Option<DurationText>,
    not: Option<toml::Spanned<ConditionText>>,
    protect: Option<bool>,
    code: Option<CodeText>,
    quiet: Option<DurationText>,
    strong: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Rule {
    name: String,
    condition: Condition,
    protect: Option<bool>,
    code: Option<Code>,
    quiet: Option<Duration>,
    strong: Option<bool>,
}

/// What identifies the content of a file, and what makes it usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    times: (Timestamp, Timestamp),
    mode: u32,
    owners: (u32, u32),
}

/// A user's policy that was found.
#[derive(Debug)]
pub(super) struct UserFile {
    /// Directory that it lies in.
    directory: Vec<u8>,
    owner: u32,
    /// Its rules, or the reason why it is ignored.
    rules: Result<Vec<Rule>, String>,
}

impl UserFile {
    pub(super) fn path(&self) -> Vec<u8> {
        join(&self.directory, USER_FILE)
    }

    /// Reason why it is ignored.
    pub(super) fn ignored(&self) -> Option<&str> {
        self.rules.as_ref().err().map(String::as_str)
    }
}

/// What a user's rule made of a treatment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDecision {
    /// Path of the user's policy.
    pub file: Vec<u8>,
    /// Name of the rule.
    pub rule: String,
    /// Options that are beyond the bounds of `[users]`, with reasons. They have no effect.
    pub refused: Vec<String>,
}

impl Users {
    /// The shortest quiet period that a user's rule can give.
    pub(super) fn shortest_quiet(&self) -> Option<Duration> {
        self.min_quiet
    }

    /// Users' policies for files in a directory, the nearest first.
    pub(super) fn files(&self, tree: &Tree, directory: &[u8], now: Timestamp) -> Vec<Arc<UserFile>> {
        let mut found = Vec::new();
        let mut directory = directory;
        loop {
            found.extend(self.file(tree, directory, now));
            if directory.is_empty() {
                return found;
            }
            directory = crate::tree::split(directory).0;
        }
    }

    /// The user's policy of one directory.
    fn file(&self, tree: &Tree, directory: &[u8], now: Timestamp) -> Option<Arc<UserFile>> {
        let path = join(directory, USER_FILE);
        let stat = match tree.find(&path) {
            Ok(found) => found?,
            // The directory itself cannot be read, which whoever reads its files reports.
            Err(_) => return None,
        };
        let parent = tree.find(directory).ok().flatten()?;
        let version = Version {
            inode: stat.inode,
            size: stat.size,
            times: (stat.mtime, stat.ctime),
            mode: stat.mode,
            owners: (stat.uid, parent.uid),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, file)) = kept.get(directory)
            && *known == version
        {
            return Some(Arc::clone(file));
        }
        let rules = load(tree, &path, &stat, &parent);
        let file = Arc::new(UserFile { directory: directory.to_vec(), owner: stat.uid, rules });
        // A version that may be written again with the same times is read again.
        if !is_in_doubt(stat.ctime, now) {
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
            kept.insert(directory.to_vec(), (version, Arc::clone(&file)));
        }
        Some(file)
    }

    /// Applies the first matching rule of the file's owner to the treatment by the vault's policy. None: no rule of
    /// the owner matches.
    pub(super) fn refine(
        &self,
        base: &Treatment,
        files: &[Arc<UserFile>],
        file: &File<'_>,
    ) -> Option<(Option<Treatment>, UserDecision)> {
        for user in files.iter().filter(|user| user.owner == file.stat.uid) {
            let Ok(rules) = &user.rules else { continue };
            let within = file.path.strip_prefix(&user.directory[..]).unwrap_or(file.path);
            let within = within.strip_prefix(b"/").unwrap_or(within);
            let seen = File { path: within, ..*file };
            if let Some(rule) = rules.iter().find(|rule| rule.condition.holds(&seen)) {
                let (treatment, refused) = self.apply(base, rule);
                let decision = UserDecision { file: user.path(), rule: rule.name.clone(), refused };
                return Some((treatment, decision));
            }
        }
        None
    }

    fn apply(&self, base: &Treatment, rule: &Rule) -> (Option<Treatment>, Vec<String>) {
        let (mut treatment, mut refused) = (base.clone(), Vec::new());
        if rule.protect == Some(false) {
            if self.may_exclude {
                return (None, refused);
            }
            refused.push("protect = false: [users] does not have may_exclude = true".to_owned());
        }
        if let Some(code) = &rule.code {
            match self.refuses_code(base, code) {
                Some(why) => refused.push(format!("code {code}: {why}")),
                None => treatment.code = code.clone(),
            }
        }
        if let Some(strong) = rule.strong {
            match base.strong && !strong && !self.may_lower {
                true => refused.push("strong = false: [users] does not have may_lower = true".to_owned()),
                false => treatment.strong = strong,
            }
        }
        if let Some(quiet) = rule.quiet {
            let allowed = match quiet < base.quiet {
                true => self.min_quiet.is_some_and(|least| quiet >= least),
                false => quiet == base.quiet || self.max_quiet.is_some_and(|most| quiet <= most),
            };
            match allowed {
                true => treatment.quiet = quiet,
                false => {
                    let bound = if quiet < base.quiet { "min_quiet" } else { "max_quiet" };
                    refused.push(format!("quiet {}: beyond {bound} of [users]", DurationText(quiet)));
                }
            }
        }
        treatment.identity = coding(&treatment.code, treatment.strong);
        (Some(treatment), refused)
    }

    fn refuses_code(&self, base: &Treatment, code: &Code) -> Option<String> {
        let share = |code: &Code, other: &Code| code.m() as u64 * other.k() as u64;
        let is_lower = code.m() < base.code.m() || share(code, &base.code) < share(&base.code, code);
        if self.codes.is_empty() && self.max_redundancy.is_none() {
            return Some("[users] has neither codes nor max_redundancy".to_owned());
        }
        if !self.codes.is_empty() && !self.codes.contains(code) {
            let allowed: Vec<String> = self.codes.iter().map(ToString::to_string).collect();
            return Some(format!("[users] allows {}", allowed.join(", ")));
        }
        if let Some(most) = self.max_redundancy
            && most.is_exceeded(code.m() as u64, code.k() as u64)
        {
            return Some(format!("more than max_redundancy = \"{most}\" of [users]"));
        }
        if is_lower && code != &base.code && !self.may_lower {
            return Some(format!("it would lower the redundancy of {}", base.code));
        }
        let fits = Treatment { code: code.clone(), ..base.clone() };
        check_block("", Place { line: 0, column: 0 }, &fits).err().map(|error| error.to_string())
    }
}

/// Reads a user's policy; the error says why it is ignored.
fn load(tree: &Tree, path: &[u8], stat: &Stat, parent: &Stat) -> Result<Vec<Rule>, String> {
    let check = |stat: &Stat| match () {
        () if stat.kind == Kind::Link => Err("it is a symbolic link".to_owned()),
        () if stat.kind != Kind::File => Err("it is not a regular file".to_owned()),
        () if stat.uid != parent.uid => {
            Err(format!("it belongs to user {}, its directory to user {}", stat.uid, parent.uid))
        }
        () if stat.mode & 0o022 != 0 => {
            Err("others than its owner can write to it: chmod go-w makes it usable".to_owned())
        }
        () if stat.size > MAX_BYTES => Err(format!("it has more than {MAX_BYTES} bytes")),
        () => Ok(()),
    };
    check(stat)?;
    let file = tree.read(path).map_err(|error| error.to_string())?;
    // Another file may have taken the name.
    check(&crate::tree::stat_of(&file).map_err(|error| error.to_string())?)?;
    let mut text = String::new();
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
    match read.map_err(|error| error.to_string())? as u64 {
        ..=MAX_BYTES => parse(&text).map_err(|error| refusal(&text, &error)),
        _ => Err(format!("it has more than {MAX_BYTES} bytes")),
    }
}

/// The error in one line, without control characters: it is printed on terminals of others.
fn refusal(text: &str, error: &PolicyError) -> String {
    let why = match error {
        PolicyError::Text(error) => {
            let place = Place::new(text, error.span().map_or(0, |span| span.start));
            format!("{place}: {}", error.message())
        }
        other => other.to_string(),
    };
    DisplayPath::bytes(why.as_bytes()).to_string()
}

pub(super) fn parse(text: &str) -> Result<Vec<Rule>, PolicyError> {
    let parsed: FileText = toml::from_str(text)?;
    let mut rules = Vec::new();
    for (number, rule) in parsed.rules.into_iter().enumerate() {
        let name = rule.name.unwrap_or_else(|| format!("rule {}", number + 1));
        let name = DisplayPath::bytes(name.as_bytes()).to_string();
        let conditions = ConditionText {
            paths: rule.paths,
            extensions: rule.extensions,
            larger: rule.larger,
            smaller: rule.smaller,
            older: rule.older,
            newer: rule.newer,
            ..ConditionText::default()
        };
        let given = [
            ("code", rule.code.is_some()),
            ("quiet", rule.quiet.is_some()),
            ("strong", rule.strong.is_some()),
        ];
        if let (Some(false), Some((option, _))) = (rule.protect, given.iter().find(|(_, given)| *given)) {
            return Err(PolicyError::NoEffect { rule: name, option });
        }
        // Names of users are looked up by a program, which no user's file may cause; and all files are the user's own.
        let condition = Condition::build(conditions, rule.not, text, &|_, _| None)?;
        let (code, quiet) = (rule.code.map(|code| code.0), rule.quiet.map(|quiet| quiet.0));
        let (protect, strong) = (rule.protect, rule.strong);
        rules.push(Rule { name, condition, protect, code, quiet, strong });
    }
    Ok(rules)
}
