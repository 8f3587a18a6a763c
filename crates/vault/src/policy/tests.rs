//! Valid and invalid policies.

use super::{Policy, PolicyError};
use crate::tree::{Kind, Stat};
use crate::world::SECOND;
use crate::world::Timestamp;

const NOW: Timestamp = Timestamp::from_seconds(1_000_000_000);

fn file(size: u64, age_days: u32) -> Stat {
    Stat {
        kind: Kind::File,
        size,
        mtime: NOW - age_days * 86400 * SECOND,
        ctime: Timestamp::EPOCH,
        inode: 1,
        device: 1,
        links: 1,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        allocated: 0,
        birth: None,
    }
}

fn parse(text: &str) -> Result<Policy, PolicyError> {
    let known = |kind: &'static str, name: &str| match (kind, name) {
        ("user", "anna") => Some(1000),
        ("group", "staff") => Some(50),
        _ => None,
    };
    Policy::parse(text, "8+2".parse().unwrap(), &known)
}

fn code(policy: &Policy, path: &str, stat: &Stat) -> Option<String> {
    policy.decide(path.as_bytes(), stat, NOW).treatment.map(|treatment| treatment.identity.clone())
}

#[test]
fn the_example_means_what_it_says() {
    let policy = parse(include_str!("../../../../docs/reference/policy.toml")).unwrap();
    let some = |code: &str| Some(format!("subspace:{code}:w8"));
    assert_eq!(code(&policy, "letters/a.txt", &file(100, 1)), some("8+2"));
    assert_eq!(code(&policy, "scratch/deep/a", &file(100, 1)), None);
    assert_eq!(code(&policy, "a/b/c.tmp", &file(100, 1)), None);
    assert_eq!(code(&policy, "archive/a", &file(100, 31)), some("10+4"));
    assert_eq!(code(&policy, "archive/a", &file(100, 29)), some("8+2"));
    assert_eq!(code(&policy, "p/a.dng", &file(2 << 20, 1)), some("6+3"));
    assert_eq!(code(&policy, "p/a.dng", &file(1 << 20, 1)), some("8+2"));
    // The example shows the defaults and must not change them.
    assert_eq!(policy.default, Policy::only("8+2".parse().unwrap()).default);
    assert_eq!(policy.guard, Policy::only("8+2".parse().unwrap()).guard);
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = parse(
        "[[rule]]\nname = \"one\"\nowners = [\"anna\"]\ngroups = [\"staff\"]\ncode = \"2+1\"\n\
         [[rule]]\nowners = [\"1000\"]\ncode = \"3+1\"\n[[rule]]\ncode = \"4+1\"\n",
    )
    .unwrap();
    let stat = file(1, 1);
    assert_eq!(code(&policy, "x", &stat), Some("subspace:3+1:w8".to_owned()));
    assert_eq!(policy.rule_name(policy.decide(b"x", &stat, NOW).rule), "rule 2");
    assert_eq!(policy.refusals(b"x", &stat, NOW), [("one", "its group is 100".to_owned())]);
    let staff = Stat { gid: 50, ..stat };
    assert_eq!(code(&policy, "x", &staff), Some("subspace:2+1:w8".to_owned()));
}

#[test]
fn a_star_stays_within_a_name() {
    let policy = parse("[[rule]]\npaths = [\"a/*.txt\"]\nprotect = false\n").unwrap();
    assert_eq!(code(&policy, "a/b.txt", &file(1, 1)), None);
    assert!(code(&policy, "a/b/c.txt", &file(1, 1)).is_some());
    // Names that are not UTF-8 can match too.
    assert!(policy.decide(b"a/\xff.txt", &file(1, 1), NOW).treatment.is_none());
}

#[test]
fn errors_tell_line_and_column() {
    let says = |text: &str, wanted: &str| {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    };
    says("[default]\ncode = \"8+\"\n", "line 2, column 8");
    says("[default]\ncode = \"8+0\"\n", "line 2, column 8");
    says("[default]\n\nquiet = \"soon\"\n", "line 3, column 9");
    says("[default]\nspeed = 3\n", "line 2, column 1");
    says("[guard]\nremoved = \"120%\"\n", "line 2");
    says("[limits]\nread = \"10MiB\"\n", "line 2");
    says("[[rule]]\npaths = [\n  \"a/[b\",\n]\n", "line 3, column 3: pattern \"a/[b\"");
    says("[[rule]]\nowners = [\"nobody here\"]\n", "line 2, column 11: user \"nobody here\"");
    says("[default]\nblock = \"100\"\n", "line 2, column 9: [default]");
    says("[[rule]]\nname = \"é\"\ncode = \"8+2\"\nblock = \"100\"\n", "line 4, column 9: é");
    // An empty list would have excluded all files.
    says("[[rule]]\npaths = []\nprotect = false\n", "line 2, column 9");
    says("[[rule]]\nextensions = []\n", "an empty list");
    says("[[rule]]\nname = \"odd\"\nblock = \"100\"\n", "odd: a block of 100 bytes");
}

#[test]
fn units_are_shown_as_they_are_read() {
    use super::{DurationText, Percent, Rate, Size};
    for text in ["64KiB", "1GiB", "100B"] {
        assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
    }
    for text in ["90s", "10m", "12h", "30d", "2w"] {
        assert_eq!(text.parse::<DurationText>().unwrap().to_string(), text);
    }
    assert_eq!("200MiB/s".parse::<Rate>().unwrap().0, 200 << 20);
    assert!("0/s".parse::<Rate>().is_err() && "1 parsec".parse::<DurationText>().is_err());
    assert!("99999999999999TiB".parse::<Size>().is_err() && "101%".parse::<Percent>().is_err());
    assert!(Percent(25).is_exceeded(26, 100) && !Percent(25).is_exceeded(25, 100));
}

/// Options without effect are refused, since users would rely on them.
#[test]
fn options_without_effect_are_refused() {
    for option in [
        "code = \"4+2\"",
        "block = \"4KiB\"",
        "quiet = \"1m\"",
        "priority = 1",
        "scrub = \"1d\"",
        "write_once = true",
        "strong = true",
    ] {
        let rule = |protect: &str| parse(&format!("[[rule]]\nname = \"tmp\"\n{protect}\n{option}\n"));
        let error = rule("protect = false").unwrap_err().to_string();
        assert!(error.contains("\"tmp\"") && error.contains("would have no effect"), "{option}: {error}");
        rule("protect = true").unwrap();
    }
    // There is no option for immutable flags; unknown options are refused.
    for text in
        ["[default]\nimmutable = true\n", "[[rule]]\nappend_only = true\n", "[limits]\nwrite = \"1MiB/s\"\n"]
    {
        assert!(parse(text).unwrap_err().to_string().contains("unknown field"), "{text}");
    }
    // A pool has one block size for all files.
    let with_block = parse("[[rule]]\npaths = [\"a/**\"]\nblock = \"4KiB\"\n").unwrap();
    assert!(with_block.check_pool_block(4096).is_ok());
    assert!(with_block.check_pool_block(1 << 20).unwrap_err().to_string().contains("1MiB"));
    assert!(parse("").unwrap().check_pool_block(1 << 20).is_ok());
}

/// Every condition can be negated; the rule is then for files of which none of the negated conditions holds.
#[test]
fn conditions_can_be_negated() {
    let excluded = |not: &str, path: &str, stat: &Stat| {
        let policy = parse(&format!("[[rule]]\nname = \"r\"\nprotect = false\nnot = {{ {not} }}\n")).unwrap();
        let decision = policy.decide(path.as_bytes(), stat, NOW);
        let refusals = policy.refusals(path.as_bytes(), stat, NOW);
        assert_eq!(decision.treatment.is_none(), refusals.is_empty(), "{not}");
        if let [(_, why)] = &refusals[..] {
            assert!(why.ends_with(", which `not` excludes"), "{why}");
        }
        decision.treatment.is_none()
    };
    let stat = file(1 << 20, 10);
    for (holds, fails) in [
        ("paths = [\"a/**\"]", "paths = [\"b/**\", \"c\"]"),
        ("extensions = [\"txt\"]", "extensions = [\"tmp\"]"),
        ("owners = [\"anna\"]", "owners = [\"1\"]"),
        ("groups = [\"100\"]", "groups = [\"staff\"]"),
        ("larger = \"1KiB\"", "larger = \"1GiB\""),
        ("smaller = \"1GiB\"", "smaller = \"1KiB\""),
        ("older = \"9d\"", "older = \"11d\""),
        ("newer = \"11d\"", "newer = \"9d\""),
        ("projects = [0]", "projects = [7]"),
    ] {
        assert!(!excluded(holds, "a/x.txt", &stat) && excluded(fails, "a/x.txt", &stat), "{holds}");
        if !holds.starts_with("newer") {
            let two = format!("{holds}, newer = \"1d\"");
            assert!(!excluded(&two, "a/x.txt", &stat), "one of two: {holds}");
        }
    }
    // Together with conditions that must hold.
    let policy = parse(
        "[[rule]]\nname = \"all but one\"\npaths = [\"a/**\"]\nnot = { paths = [\"a/keep/**\"] }\nprotect = false\n",
    )
    .unwrap();
    assert_eq!(code(&policy, "a/x", &stat), None);
    assert!(code(&policy, "a/keep/x", &stat).is_some() && code(&policy, "b", &stat).is_some());
    let rule = policy.decide(b"a/x", &stat, NOW).rule;
    assert_eq!(
        policy.reasons(rule, b"a/x", &stat, NOW),
        ["its path matches a/**", "its path matches none of a/keep/**"]
    );
    assert_eq!(
        policy.refusals(b"a/keep/x", &stat, NOW)[0].1,
        "its path matches a/keep/**, which `not` excludes"
    );
}

#[test]
fn an_unknown_key_is_refused_with_the_one_that_was_meant() {
    for (text, meant) in [
        ("[[rule]]\npath = [\"a\"]\n", "did you mean `paths`?"),
        ("[[rule]]\nnot = { owner = [\"1\"] }\n", "did you mean `owners`?"),
        ("[default]\nquite = \"1m\"\n", "did you mean `quiet`?"),
        ("[[rules]]\ncode = \"8+2\"\n", "did you mean `rule`?"),
        ("[[rule]]\nproject = [7]\n", "did you mean `projects`?"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains("unknown field") && error.contains(meant), "{error}");
    }
    let error = parse("[default]\nimmutable = true\n").unwrap_err().to_string();
    assert!(!error.contains("did you mean"), "{error}");
    for text in ["[[rule]]\nnot = {}\n", "[[rule]]\nnot = { paths = [] }\n", "[[rule]]\nprojects = [-1]\n"] {
        assert!(parse(text).unwrap_err().to_string().contains("line 2"), "{text}");
    }
    // `not` is for conditions only, and not for another `not`.
    assert!(parse("[[rule]]\nnot = { code = \"8+2\" }\n").is_err());
    assert!(parse("[[rule]]\nnot = { not = { larger = \"1MiB\" } }\n").is_err());
    // Files of a pool have no project.
    let policy = parse("[[rule]]\nnot = { projects = [7] }\ncode = \"4+2\"\n").unwrap();
    assert!(policy.check_pool_conditions().unwrap_err().to_string().contains("projects"));
}

proptest::proptest! {
    /// A user's policy is input of a possible attacker: any text is read or refused.
    #[test]
    fn any_text_is_read_or_refused_as_a_policy_of_a_user(
        parts in proptest::collection::vec(proptest::sample::select(PARTS), 0..40), noise in ".{0,40}"
    ) {
        let _ = super::users::parse(&parts.concat());
        let _ = super::users::parse(&[&parts.concat(), &noise].map(String::as_str).concat());
        let pattern = noise.replace('\'', "");
        let _ = super::users::parse(&format!("[[rule]]\npaths = ['''{pattern}''']\n"));
    }
}

const PARTS: &[&str] = &[
    "[[rule]]\n",
    "paths = [",
    "not = {",
    "}",
    "]\n",
    "\"{a,{b,*}}/**\"",
    "\"[\"",
    "code = \"4+2\"\n",
    "code = \"0+0\"\n",
    "code = ",
    "quiet = \"0s\"\n",
    "strong = true\n",
    "protect = false\n",
    "older = \"99999999999w\"\n",
    "larger = -1\n",
    ",",
    "[users]\n",
    "name = \"\\u0000\"\n",
    "=",
    "{",
    "[",
];
