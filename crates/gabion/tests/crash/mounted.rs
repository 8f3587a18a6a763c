//! The process that serves a mount is killed while a program writes through it.

use crate::can_mount;
use crate::fixture::{Files, Fixture, bytes, files_below};
use crate::pool::Tank;
use gabion_testkit::kill::{can_kill, changes_of, killed_before, recorded, sample, was_killed};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a name may stand for after a kill. Each state is a content, or nothing.
#[derive(Debug, Clone, Default)]
struct Allowed {
    states: Vec<Option<Vec<u8>>>,
    /// Parts of one state and parts of another, too: a write in place was not synced yet.
    mixed: bool,
}

impl Allowed {
    fn is_met_by(&self, found: Option<&Vec<u8>>) -> bool {
        if self.states.iter().any(|state| state.as_ref() == found) {
            return true;
        }
        let Some(found) = found.filter(|_| self.mixed) else { return false };
        let known: Vec<&Vec<u8>> = self.states.iter().flatten().collect();
        let bounds = (known.iter().map(|it| it.len()).min(), known.iter().map(|it| it.len()).max());
        let (Some(least), Some(most)) = bounds else { return false };
        let right = |(at, byte): (usize, &u8)| *byte == 0 || known.iter().any(|it| it.get(at) == Some(byte));
        (least..=most).contains(&found.len()) && found.iter().enumerate().all(right)
    }
}

/// Model of the files of a mount.
#[derive(Debug, Default)]
struct Model {
    names: BTreeMap<String, Allowed>,
}

impl Model {
    fn of(files: &Files) -> Model {
        let mut model = Model::default();
        files.iter().for_each(|(name, content)| model.is(name, Some(content.clone())));
        model
    }

    /// A name stands for this now, for certain.
    fn is(&mut self, name: &str, state: Option<Vec<u8>>) {
        self.names.insert(name.to_owned(), Allowed { states: vec![state], mixed: false });
    }

    /// A name may stand for this from now on.
    fn may_be(&mut self, name: &str, state: Option<Vec<u8>>, mixed: bool) {
        let allowed =
            self.names.entry(name.to_owned()).or_insert_with(|| Allowed { states: vec![None], mixed: false });
        allowed.states.push(state);
        allowed.mixed |= mixed;
    }

    fn content(&self, name: &str) -> Vec<u8> {
        self.names[name].states[0].clone().unwrap()
    }

    fn check(&self, told: &str, found: &Files) {
        for name in self.names.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            let absent = Allowed { states: vec![None], mixed: false };
            let allowed = self.names.get(name).unwrap_or(&absent);
            let sizes =
                |it: &Allowed| it.states.iter().map(|it| it.as_ref().map(Vec::len)).collect::<Vec<_>>();
            assert!(
                allowed.is_met_by(found.get(name)),
                "{told}: {name} has {:?} bytes, of {:?} that may be",
                found.get(name).map(Vec::len),
                sizes(allowed)
            );
        }
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// What a program does through the mount, one acknowledged step after the other. Ends with an error when the mount is
/// gone; `model` is then what the program was promised.
fn work(mount: &Path, round: u64, model: &mut Model) -> io::Result<()> {
    let at = |name: &str| mount.join(name);
    // A new file, synced.
    let (name, content) = (format!("new{round}"), bytes(9000 + round as usize % 5 * 4000, round * 10));
    model.may_be(&name, Some(Vec::new()), false);
    model.may_be(&name, Some(content.clone()), true);
    let file = File::create(at(&name))?;
    file.write_all_at(&content, 0)?;
    file.sync_all()?;
    sync_directory(mount)?;
    model.is(&name, Some(content.clone()));
    drop(file);
    // The same by a temporary name, over a file that is there.
    let (temporary, content) = (format!("atomic.{round}"), bytes(14_000, round * 10 + 1));
    model.may_be(&temporary, Some(Vec::new()), false);
    model.may_be(&temporary, Some(content.clone()), true);
    let file = File::create(at(&temporary))?;
    file.write_all_at(&content, 0)?;
    file.sync_all()?;
    drop(file);
    model.may_be("atomic", Some(content.clone()), false);
    fs::rename(at(&temporary), at("atomic"))?;
    model.is(&temporary, None);
    model.is("atomic", Some(content));
    // In place, within a file.
    let (before, part) = (model.content("sub/written"), bytes(5000, round * 10 + 2));
    let mut content = before.clone();
    content[3000..8000].copy_from_slice(&part);
    for name in ["sub/written", "linked"] {
        model.may_be(name, Some(content.clone()), true);
    }
    let file = File::options().write(true).open(at("sub/written"))?;
    file.write_all_at(&part, 3000)?;
    file.sync_all()?;
    ["sub/written", "linked"].iter().for_each(|name| model.is(name, Some(content.clone())));
    drop(file);
    // Cut short, and made longer again.
    let mut content = model.content("cut");
    model.may_be("cut", Some(content[..5000].to_vec()), true);
    let file = File::options().write(true).open(at("cut"))?;
    file.set_len(5000)?;
    file.sync_all()?;
    content.truncate(5000);
    model.is("cut", Some(content.clone()));
    content.extend(bytes(6000, round * 10 + 3));
    model.may_be("cut", Some(content.clone()), true);
    file.write_all_at(&content[5000..], 5000)?;
    file.sync_all()?;
    model.is("cut", Some(content));
    drop(file);
    // Another name, and one less.
    let (link, content) = (format!("link{round}"), model.content("cut"));
    model.may_be(&link, Some(content.clone()), false);
    fs::hard_link(at("cut"), at(&link))?;
    model.is(&link, Some(content));
    model.may_be(&link, None, false);
    fs::remove_file(at(&link))?;
    model.is(&link, None);
    // Into another directory.
    let (from, content) = (format!("new{}", round - 1), model.content(&format!("new{}", round - 1)));
    model.may_be(&from, None, false);
    model.may_be("sub/moved", Some(content.clone()), false);
    fs::rename(at(&from), at("sub/moved"))?;
    model.is(&from, None);
    model.is("sub/moved", Some(content));
    Ok(())
}

/// What is mounted.
trait Source {
    fn fixture(&self) -> &Fixture;
    /// Arguments that name it, and where its pools are.
    fn named(&self) -> Vec<&'static str>;
    /// Its files as others find them, without the mount.
    fn seen(&self, told: &str) -> Files;
    fn converge(&self, told: &str);
}

struct Directory(Fixture);

impl Source for Directory {
    fn fixture(&self) -> &Fixture {
        &self.0
    }

    fn named(&self) -> Vec<&'static str> {
        vec!["tree"]
    }

    fn seen(&self, _: &str) -> Files {
        files_below(&self.0.path("tree"))
    }

    fn converge(&self, told: &str) {
        for command in ["protect", "scrub", "status"] {
            self.0.expect(told, &[command, "tree"]);
        }
        let (files, redundancy) = (self.seen(told), files_below(&self.0.path("tree/.gabion/redundancy")));
        assert_eq!(files.keys().collect::<Vec<_>>(), redundancy.keys().collect::<Vec<_>>(), "{told}");
        let left = files_below(&self.0.path("tree/.gabion/staging"));
        assert!(left.is_empty(), "{told}: staging has {:?}", left.keys());
    }
}

impl Source for Tank {
    fn fixture(&self) -> &Fixture {
        &self.fixture
    }

    fn named(&self) -> Vec<&'static str> {
        vec!["tank", "--pools", "names"]
    }

    fn seen(&self, told: &str) -> Files {
        Tank::seen(self, told)
    }

    fn converge(&self, told: &str) {
        Tank::converge(self, told);
    }
}

fn mount_arguments(source: &dyn Source) -> Vec<&'static str> {
    let named = source.named();
    let mut args = vec!["mount", named[0], "mount", "--policy", "policy.toml"];
    args.extend(&named[1..]);
    args
}

/// Unmounts when a test ends, however it does.
struct Unmounting(PathBuf);

impl Drop for Unmounting {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

/// Mounts by `command`, works, unmounts. Whether the process was killed; then what it was killed at is over, and the
/// mount is taken away.
fn mount_and_work(
    source: &dyn Source,
    command: Command,
    work: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> bool {
    let fixture = source.fixture();
    let mount = fixture.path("mount");
    let mut command = fixture.with(command, &mount_arguments(source));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let errors = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || io::read_to_string(errors).unwrap_or_default());
    let rest = std::thread::spawn(move || io::read_to_string(output).unwrap_or_default());
    let mounted = line.starts_with("mounted ");
    let worked = if mounted { work(&mount) } else { Ok(()) };
    if mounted {
        // Fails where nobody serves it any more.
        let _ = Command::new("umount").arg(&mount).stderr(Stdio::null()).status();
    }
    let status = child.wait().unwrap();
    let _ = Command::new("umount").arg("-l").arg(&mount).stderr(Stdio::null()).status();
    let said = format!("{line}{}{}", rest.join().unwrap(), errors.join().unwrap());
    if was_killed(status) {
        return true;
    }
    assert_eq!(status.code(), Some(0), "{said}");
    worked.unwrap_or_else(|error| panic!("{error}: {said}"));
    false
}

fn kill_everywhere(test: &str, usual: usize, source: &dyn Source) {
    let fixture = source.fixture();
    let program = env!("CARGO_BIN_EXE_gabion");
    fs::create_dir(fixture.path("mount")).unwrap();
    let _unmounting = Unmounting(fixture.path("mount"));
    mount_and_work(source, Command::new(program), &mut |mount| {
        fs::create_dir(mount.join("sub"))?;
        for (number, name) in ["new0", "atomic", "sub/written", "cut", "sub/moved"].iter().enumerate() {
            fs::write(mount.join(name), bytes(20_000, number as u64))?;
        }
        fs::hard_link(mount.join("sub/written"), mount.join("linked"))
    });
    source.converge("at first");
    let log = fixture.path("log");
    let mut model = Model::of(&source.seen("at first"));
    mount_and_work(source, recorded(&log, program), &mut |mount| work(mount, 1, &mut model));
    model.check("without a kill", &source.seen("without a kill"));
    source.converge("without a kill");
    let (mut killed, mut rounds) = (0, 0);
    for change in sample(test, changes_of(&log), usual) {
        rounds += 1;
        let told = format!("round {rounds}: the mount was killed before {} {}", change.call, change.nth);
        let mut model = Model::of(&source.seen(&told));
        // Whatever the round before left.
        let last = rounds + 1;
        if !model.names.contains_key(&format!("new{}", last - 1)) {
            panic!("{told}: there is no file to move");
        }
        killed += u32::from(mount_and_work(source, killed_before(&change, program), &mut |mount| {
            work(mount, last, &mut model)
        }));
        let found = source.seen(&told);
        model.check(&told, &found);
        // As the next mount finds it; and the file that the next round moves is there.
        mount_and_work(source, Command::new(program), &mut |mount| {
            model.check(&format!("{told}, mounted again"), &files_below(mount));
            let name = format!("new{last}");
            if !mount.join(&name).exists() {
                fs::write(mount.join(&name), b"for the next round")?;
                model.is(&name, Some(b"for the next round".to_vec()));
            }
            for stray in [format!("atomic.{last}"), format!("link{last}")] {
                if mount.join(&stray).exists() {
                    fs::remove_file(mount.join(&stray))?;
                }
                model.is(&stray, None);
            }
            Ok(())
        });
        source.converge(&told);
        model.check(&format!("{told}, protected again"), &source.seen(&told));
    }
    println!("{test}: {killed} of {rounds} were killed");
    assert!(killed > 0, "{killed} of {rounds} were killed");
}

pub(crate) fn can_mount(test: &str) -> bool {
    can_mount::can_mount(test) && can_kill(test)
}

/// For programs on a mounted directory: what they synced, renamed, linked and removed is so in the source when the
/// process of the mount is killed.
#[test]
#[ignore = "takes minutes: `cargo xtask test --full` runs it"]
fn mounted_directory_killed_at_any_change_keeps_what_was_acknowledged() {
    let test = "mounted_directory_killed_at_any_change_keeps_what_was_acknowledged";
    if !can_mount(test) {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("tree")).unwrap();
    let policy = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\n[guard]\nat_least = 100000\n";
    fs::write(fixture.path("policy.toml"), policy).unwrap();
    kill_everywhere(test, 8, &Directory(fixture));
}

/// The same for programs on a mounted pool, whose names are in several places.
#[test]
#[ignore = "takes minutes: `cargo xtask test --full` runs it"]
fn mounted_pool_killed_at_any_change_keeps_what_was_acknowledged() {
    let test = "mounted_pool_killed_at_any_change_keeps_what_was_acknowledged";
    if !can_mount(test) {
        return;
    }
    kill_everywhere(test, 8, &Tank::new());
}
