//! Configurations, right and wrong.

use super::notify::{Channel, HookPoint, MailTls};
use super::{Config, ConfigError, What};
use crate::compute::DeviceChoice;
use crate::daemon::secret::SecretSource;
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

fn notify(keys: &str) -> String {
    format!("[[source]]\nname = 'a'\nwatch = 'x'\n[[notify]]\nname = 'n'\n{keys}")
}

#[test]
fn receivers_have_defaults_and_relative_paths() {
    let config =
        parse(&notify("webhook = 'https://example.org/secret'\ntoken = 'file:t'\nca = 'c.pem'")).unwrap();
    let receiver = &config.receivers[0];
    let Channel::Webhook(endpoint) = &receiver.channel else { panic!("{receiver:?}") };
    assert_eq!(endpoint.token, Some(SecretSource::File("/etc/gabion/t".into())));
    assert_eq!(endpoint.ca.as_deref(), Some(Path::new("/etc/gabion/c.pem")));
    assert_eq!(endpoint.address.to_string(), "https://example.org/…");
    assert!(!format!("{receiver:?}").contains("secret"));
    let times = (receiver.collect, receiver.interval, receiver.remind, receiver.timeout);
    assert_eq!(times, (30 * SECOND, 300 * SECOND, Some(86400 * SECOND), 30 * SECOND));
    let mail = "smtp = 'mail.example.org'\nfrom = 'Ü <a@b.org>'\nto = ['c@d.org']\nremind = '0s'";
    let config = parse(&notify(mail)).unwrap();
    assert_eq!(config.receivers[0].remind, None);
    let Channel::Smtp(smtp, _) = &config.receivers[0].channel else { panic!("smtp") };
    assert_eq!((smtp.port, smtp.tls), (587, MailTls::Starttls));
}

#[test]
fn receivers_that_cannot_work_are_refused() {
    let mail = "from = 'a@b.org'\nto = ['c@d.org']\n";
    for (keys, word) in [
        ("", "one of: command"),
        ("command = ['a']\nwebhook = 'https://x/'", "one of: command"),
        ("webhook = 'https://x/'\nsmtp = 'x'", "one of: command"),
        ("command = []", "empty"),
        ("webhook = 'ftp://x/'", "https://HOST/PATH"),
        ("webhook = 'https://user:hunter2@x/'", "user or password"),
        ("webhook = 'http://example.org/'\ntoken = 'env:T'", "without encryption"),
        ("webhook = 'https://x/'\ntoken = 'hunter2'", "token: write file:PATH"),
        ("webhook = 'https://x/'\nfrom = 'a@b.org'", "from does not apply to webhook"),
        ("webhook = 'https://x/'\nevery = '1m'", "every does not apply"),
        ("webhook = 'https://x/'\nevents = ['fire']", "there is no \"fire\""),
        ("webhook = 'https://x/'\nsources = ['b']", "no source \"b\""),
        ("webhook = 'https://x/'\ntimeout = '0s'", "timeout is from 1s"),
        ("webhook = 'https://x/'\nleast = 'panic'", "unknown variant"),
        ("smtp = 'x'\nfrom = 'a@b.org'", "to is missing"),
        ("smtp = 'x'\nto = ['a@b.org']", "from is missing"),
        (&format!("smtp = 'x\\r\\nRCPT'\n{mail}").replace('\'', "\""), "no name of a host"),
        (&format!("smtp = 'x'\nuser = 'u'\n{mail}"), "belong together"),
        (&format!("smtp = 'x'\nuser = 'u'\npassword = 'hunter2'\n{mail}"), "password: write file:PATH"),
        (&format!("smtp = 'x'\ntls = 'none'\nuser = 'u'\npassword = 'env:P'\n{mail}"), "without encryption"),
        ("smtp = 'x'\nfrom = 'no address'\nto = ['c@d.org']", "no e-mail address"),
        ("smtp = 'x'\nfrom = \"a@b.org\\r\\nBcc: c@d.org\"\nto = ['c@d.org']", "no e-mail address"),
        ("smtp = 'x'\nfrom = 'a@b.org'\nto = [\"\\\"a\\r\\nBcc: x\\\" <c@d.org>\"]", "no e-mail address"),
    ] {
        let error = why(&notify(keys));
        assert!(error.contains(word) && error.contains("line "), "{keys}: {error}");
        // What looks like a secret is not repeated, unless the parser of TOML shows the line with the mistake.
        assert!(!error.contains("hunter2"), "{error}");
    }
    let two = format!("{}\n[[notify]]\nname = 'n'\ncommand = ['b']", notify("command = ['a']"));
    assert!(why(&two).contains("two receivers"));
}

#[test]
fn hooks_of_a_source_replace_those_of_all() {
    let text = "[hooks]\nbefore_scrub = ['a', 'b']\nafter_scrub = ['bin/c']\n[[source]]\nname = 'a'\nwatch = 'x'\n\
                hooks = { before_scrub = [], timeout = '5s' }\n[[source]]\nname = 'b'\nwatch = 'y'";
    let config = parse(text).unwrap();
    let of = |at: usize, point| config.sources[at].hooks.command(point).map(|it| it.to_vec());
    assert_eq!(of(0, HookPoint::BeforeScrub), None);
    assert_eq!(of(1, HookPoint::BeforeScrub), Some(vec!["a".into(), "b".into()]));
    assert_eq!(of(0, HookPoint::AfterScrub), Some(vec!["/etc/gabion/bin/c".into()]));
    assert_eq!(
        (config.sources[0].hooks.timeout, config.sources[1].hooks.timeout),
        (5 * SECOND, 600 * SECOND)
    );
    assert!(
        why("[hooks]\nbefore_lunch = ['a']\n[[source]]\nname = 'a'\nwatch = 'x'").contains("before_lunch")
    );
}

#[test]
fn commands_are_not_taken_from_a_file_that_all_users_can_write() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("daemon.toml");
    let load = |text: &str, mode| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Config::load(&path)
    };
    let (command, plain) = (notify("command = ['a']"), notify("webhook = 'https://x/'"));
    assert!(load(&command, 0o644).is_ok() && load(&plain, 0o666).is_ok());
    assert!(load(&command, 0o666).unwrap_err().to_string().contains("all users can write it"));
}
