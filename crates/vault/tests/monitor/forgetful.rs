//! A server that loses the changelog of a watch.

use super::playground::{Playground, Seed};
use super::server::TestServer;
use gabion_vault::monitor::{Choice, Notice};

/// A server came back without its files. What had been pending there was protected by the next scan of everything, an hour later; and a gap that was recorded then
/// counted as scanned, because its number was smaller than those from before.
#[test]
fn a_watch_scans_once_when_its_server_comes_back_empty() {
    let ground = Playground::new();
    let mut server = TestServer::start();
    let policy = "[default]\ncode = \"4+2\"\nquiet = \"0s\"\n";
    ground.create_on(Some(&server.server("unused").url), policy);
    for (number, name) in ["changed", "moved", "removed"].iter().enumerate() {
        ground.write(name, &Seed(number as u64).bytes(20_000));
    }
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    // Files change, and nobody works them off before the server is gone.
    live.pause(true);
    let before = ground.whole_scans();
    ground.write("changed", &Seed(7).bytes(20_000));
    std::fs::rename(ground.path("moved"), ground.path("there")).unwrap();
    std::fs::remove_file(ground.path("removed")).unwrap();
    ground.write("new", &Seed(8).bytes(3000));
    let vault = ground.vault();
    ground.until("all changes are recorded", || vault.changelog.pending().unwrap().entries() >= 4);
    server.forget();
    server.restart();
    live.pause(false);
    ground.until_protected();
    let lost = |notice: &Notice| matches!(notice, Notice::Trouble(why) if why.contains("has lost what"));
    assert_eq!(ground.notices().iter().filter(|notice| lost(notice)).count(), 1);
    assert_eq!(ground.whole_scans(), before + 1);
    ground.assert_protected();
    // What happens later is heard of as ever.
    ground.write("later", &Seed(9).bytes(5000));
    ground.until_protected();
    assert_eq!(ground.whole_scans(), before + 1);
    ground.stop(live);
}

/// A server that only was away has lost nothing.
#[test]
fn a_watch_does_not_scan_when_its_server_was_away() {
    let ground = Playground::new();
    let mut server = TestServer::start();
    ground.create_on(Some(&server.server("unused").url), "[default]\ncode = \"4+2\"\nquiet = \"0s\"\n");
    ground.write("file", &Seed(1).bytes(20_000));
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    live.pause(true);
    ground.write("file", &Seed(2).bytes(20_000));
    let vault = ground.vault();
    ground.until("the change is recorded", || vault.changelog.pending().unwrap().entries() > 0);
    let before = ground.whole_scans();
    server.kill();
    server.restart();
    live.pause(false);
    ground.until_protected();
    assert_eq!(ground.whole_scans(), before);
    ground.assert_protected();
    ground.stop(live);
}
