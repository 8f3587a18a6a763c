//! Configurations, right and wrong.

use super::{Config, ConfigError, What};
use crate::compute::DeviceChoice;
use gabion_vault::world::SECOND;
use std::path::Path;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/gabion/daemon.toml"))
}

fn why(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn the_example_is_a_configuration() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/daemon.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let config = parse(&text).unwrap();
    let kinds: Vec<(&str, &str)> =
        config.sources.iter().map(|source| (source.name.as_str(), source.kind())).collect();
    assert_eq!(kinds, [("photos", "watch"), ("documents", "mount"), ("tank", "pool")]);
    let scrub = config.sources[0].scrub.unwrap();
    assert!(scrub.repair && scrub.rhythm.percent == 4);
    assert_eq!(config.sources[2].rebuild().unwrap().after, Some(1800 * SECOND));
    // What is commented out is what holds without it.
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => {
                format!("{key}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let parsed = parse(&uncommented).unwrap();
    assert_eq!(parsed.stop_within, config.stop_within);
    assert_eq!(parsed.sources[1], {
        let mut documents = config.sources[1].clone();
        documents.protection = parsed.sources[1].protection.clone();
        documents
    });
    assert_eq!(parsed.sources[0].rescan, config.sources[0].rescan);
}

/// The configuration that packages install: the daemon waits until it has sources.
#[test]
fn a_configuration_may_have_no_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../package/daemon.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(parse(&text).unwrap().sources, []);
    // Its commented example is a source.
    let (_, example) = text.split_once("# [[source]]").unwrap();
    let example: String =
        example.lines().map(|line| format!("{}\n", line.trim_start_matches("# "))).collect();
    let config = parse(&format!("[[source]]{example}")).unwrap();
    assert_eq!((config.sources[0].name.as_str(), config.sources[0].kind()), ("photos", "watch"));
}

#[test]
fn the_number_of_sources_is_bounded() {
    let source = |number: usize| format!("[[source]]\nname = 's{number}'\nwatch = 'd{number}'\n");
    let sources = |count: usize| (0..count).map(source).collect::<String>();
    assert_eq!(parse(&sources(256)).unwrap().sources.len(), 256);
    assert!(why(&sources(257)).contains("up to 256 [[source]]s, not 257"));
}

#[test]
fn paths_are_relative_to_the_file() {
    let config =
        parse("socket = 's'\n[[source]]\nname = 'a'\nmount = 'x'\nat = '/m'\npolicy = 'p.toml'").unwrap();
    assert_eq!(config.socket.as_deref(), Some(Path::new("/etc/gabion/s")));
    let source = &config.sources[0];
    assert_eq!(source.path(), Path::new("/etc/gabion/x"));
    assert_eq!(source.protection.policy.as_deref(), Some(Path::new("/etc/gabion/p.toml")));
    assert!(matches!(&source.what, What::Mount { verify: true, show, .. } if show.at == Path::new("/m")));
}

#[test]
fn mistakes_are_named_with_line_and_column() {
    for (text, place, word) in [
        ("[[source]]\nname = 'a'\nwatch = 'x'\nwtach = 'y'", "line 4, column 1", "wtach"),
        ("[[source]]\nname = 'a'\n", "line 1, column 1", "one of"),
        ("[[source]]\nname = 'a'\nwatch = 'x'\npool = 'y'", "line 1, column 1", "one of"),
        ("[[source]]\nname = 'a'\nmount = 'x'", "line 1, column 1", "at = DIR"),
        ("[[source]]\nname = 'a'\nmount = 'x'\nat = 'x/y'", "line 1, column 1", "overlap"),
        ("[[source]]\nname = 'a'\nmount = 'x/y'\nat = 'x'", "line 1, column 1", "overlap"),
        ("[[source]]\nname = 'a b'\nwatch = 'x'", "line 2, column 8", "invalid name"),
        ("[[source]]\nname = 'a'\nwatch = 'x'\nat = 'y'", "line 4, column 6", "at does not apply"),
        ("[[source]]\nname = 'a'\nwatch = 'x'\nworkers = 0", "line 4, column 11", "encode"),
        ("[[source]]\nname = 'a'\nwatch = 'x'\ncode = '8'", "line 4, column 8", "code 8"),
        ("[[source]]\nname = 'a'\nwatch = 'x'\ndevice = 'gpu'", "line 4, column 10", "no device 'gpu'"),
        (
            "[[source]]\nname = 'a'\nwatch = 'x'\nscrub = { every = '1d', percent = 0 }",
            "line 4, column 9",
            "1 to 100",
        ),
        (
            "[[source]]\nname = 'a'\nwatch = 'x'\nscrub = { every = '9d', hours = '9' }",
            "line 4, column 9",
            "22-6",
        ),
        ("[[source]]\nname = 'a'\nwatch = 'x'\nscrub = { every = 'soon' }", "line 4, column", "soon"),
        (
            "[[source]]\nname = 'a'\npool = 'x'\nat = 'm'\nrepository = 'r'",
            "line 5, column 14",
            "repository does not apply",
        ),
    ] {
        let message = why(text);
        assert!(
            message.contains(place) && message.contains(word) && message.contains("daemon.toml"),
            "{text}: {message}"
        );
    }
    let two = "[[source]]\nname = 'a'\nwatch = 'x'\n[[source]]\nname = 'a'\nwatch = 'y'";
    assert!(why(two).contains("line 5, column 8"), "{}", why(two));
    let same = "[[source]]\nname = 'a'\nwatch = 'x'\n[[source]]\nname = 'b'\nwatch = 'x'";
    assert!(why(same).contains("two sources"));
}

#[test]
fn a_source_names_the_device_that_computes() {
    let source = |keys: &str| {
        parse(&format!("[[source]]\nname = 'a'\nwatch = 'x'\n{keys}")).unwrap().sources.remove(0)
    };
    let usual = source("");
    assert_eq!((usual.device, usual.cpu_takeover), (DeviceChoice::Cpu, false));
    let named = source("device = 'cuda:1'\ncpu_takeover = true");
    assert_eq!((named.device, named.cpu_takeover), (DeviceChoice::Cuda(1), true));
}

/// The interval of the policy was read by nothing. A source whose `scrub` has no `every` goes by it.
#[test]
fn a_scrub_without_every_goes_by_the_policy() {
    let parse = |scrub: &str| {
        let text = format!("[[source]]\nname = \"a\"\nwatch = \"/srv/a\"\nscrub = {scrub}\n");
        Config::parse(&text, Path::new("/etc/daemon.toml"))
    };
    let scrub = |text: &str| parse(text).unwrap().sources[0].scrub.unwrap();
    assert!(scrub("{}").by_policy && scrub("{ hours = \"22-6\", repair = true }").by_policy);
    assert!(!scrub("{ every = \"30d\" }").by_policy);
    assert!(parse("{ percent = 4 }").unwrap_err().to_string().contains("needs every"));
}

#[test]
fn the_api_needs_tokens_and_for_other_hosts_tls() {
    let source = "[[source]]\nname = 'a'\nwatch = '/x'\n";
    let with = |api: &str| parse(&format!("[api]\n{api}\n{source}"));
    assert_eq!(parse(source).unwrap().api.group, "gabion");
    let api = with("listen = '127.0.0.1:7443'\nread_tokens = 'r'").unwrap().api;
    assert_eq!(api.listen.unwrap().port(), 7443);
    assert_eq!(api.read_tokens.as_deref(), Some(Path::new("/etc/gabion/r")));
    assert!(with("listen = '[::]:7443'\nadmin_tokens = 'r'\ntls_certificate = 'c'\ntls_key = 'k'").is_ok());
    for (api, word) in [
        ("listen = '127.0.0.1:7443'", "tokens"),
        ("listen = '127.0.0.1'\nread_tokens = 'r'", "7443"),
        ("listen = '192.0.2.1:7443'\nread_tokens = 'r'", "tls_certificate"),
        ("tls_key = 'k'", "belong together"),
        ("port = 1", "port"),
    ] {
        assert!(with(api).unwrap_err().to_string().contains(word), "{api}");
    }
}
