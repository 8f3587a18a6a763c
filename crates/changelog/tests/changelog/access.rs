//! The user of the guide: it may do what the engine does, and nothing else.

use crate::server::TestServer;
use crate::{compare_with_model, tasks};
use gabion_changelog::{Changelog, Error, Redis, Server, conformance};
use std::collections::BTreeSet;

const GUIDE: &str = include_str!("../../../../docs/guide/several-hosts.md");

const LIBRARY: [&str; 7] = [
    include_str!("../../src/functions.lua"),
    include_str!("../../src/limits.lua"),
    include_str!("../../src/claims.lua"),
    include_str!("../../src/journal.lua"),
    include_str!("../../src/tasks.lua"),
    include_str!("../../src/monitors.lua"),
    include_str!("../../src/windows.lua"),
];

/// Words in capitals in the library that are options of commands.
const OPTIONS: [&str; 4] = ["COUNT", "EX", "INFO", "LIMIT"];

/// What the program sends itself.
const SENT: [&str; 6] = ["ping", "time", "fcall", "function|load", "config|get", "command|info"];

/// The rules that the guide gives the user.
fn rules() -> Vec<String> {
    let (_, rest) = GUIDE.split_once("ACL SETUSER gabion").expect("the guide makes a user");
    let (command, _) = rest.split_once("```").expect("the end of the command");
    let words = command.split_whitespace().map(|word| word.trim_matches('\'').to_owned());
    words.skip_while(|word| word != "resetchannels").filter(|word| word != "\\").collect()
}

/// A server with that user, and its address for the user.
fn start() -> (TestServer, String) {
    let server = TestServer::start();
    let url = server.server("x").url;
    let mut connection = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("gabion").arg("reset").arg("on").arg(">hush").arg(rules());
    user.exec(&mut connection).expect("the user of the guide");
    let url = url.replace("redis://", "redis://gabion:hush@");
    (server, url)
}

/// What the server refused.
fn refused(server: &TestServer) -> Vec<redis::Value> {
    let mut connection = redis::Client::open(server.server("x").url).unwrap().get_connection().unwrap();
    redis::cmd("ACL").arg("LOG").query(&mut connection).unwrap()
}

#[test]
fn the_user_of_the_guide_may_do_what_the_engine_does() {
    let (server, url) = start();
    let of = |name: &str| Server { url: url.clone(), name: name.to_owned(), allow_forgetful: false };
    let site = |name: &str| -> Box<dyn Changelog> { Box::new(Redis::open(&of(name)).expect("a changelog")) };
    conformance::check(&site);
    compare_with_model(&site);
    let log = Redis::open(&of("more")).expect("a changelog");
    tasks::a_task_from_its_beginning_to_its_end(log.tasks().expect("tasks"));
    log.forget_all().expect("forgotten");
    assert_eq!(refused(&server), []);
}

/// Not one command more than the library and the program send.
#[test]
fn the_user_of_the_guide_may_do_nothing_else() {
    let words =
        LIBRARY.iter().flat_map(|text| text.lines()).filter(|line| !line.trim_start().starts_with("--"));
    let words = words.flat_map(|line| line.split('\'').skip(1).step_by(2));
    let is_command = |word: &&str| {
        word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase()) && !OPTIONS.contains(word)
    };
    let used: BTreeSet<String> = words
        .filter(is_command)
        .map(str::to_lowercase)
        .chain(SENT.map(str::to_owned))
        .map(|word| format!("+{word}"))
        .collect();
    let rules = rules();
    assert_eq!(&rules[..2], ["resetchannels", "~gabion:*"]);
    assert_eq!(rules[2..].iter().cloned().collect::<BTreeSet<_>>(), used);
    let (server, url) = start();
    let mut connection = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
    for command in
        ["FLUSHALL", "KEYS *", "CONFIG SET maxmemory 1", "GET other", "EVAL return 0", "ACL WHOAMI"]
    {
        let (name, arguments) = command.split_once(' ').unwrap_or((command, ""));
        let mut asked = redis::cmd(name);
        asked.arg(arguments.split_whitespace().collect::<Vec<_>>());
        let said = asked.exec(&mut connection).expect_err(command);
        assert_eq!(said.code(), Some("NOPERM"), "{command}: {said}");
    }
    assert!(!refused(&server).is_empty());
    // Without the right to read settings it is not known what the server promises.
    let mut admin = redis::Client::open(server.server("x").url).unwrap().get_connection().unwrap();
    redis::cmd("ACL").arg("SETUSER").arg("gabion").arg("-config").exec(&mut admin).unwrap();
    let named = Server { url, name: "y".to_owned(), allow_forgetful: false };
    assert!(matches!(Redis::open(&named), Err(Error::Forgetful { .. })));
}
