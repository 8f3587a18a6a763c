//! Surveys of file systems that this machine does not have: their tools are scripts that print what the real ones are
//! documented to print, nonsense, or nothing at all.

use gabion_cluster::layout::State;
use gabion_cluster::mount::{Mount, System};
use gabion_cluster::probe::{Looked, Prober};
use gabion_cluster::survey::{Options, Survey};
use gabion_cluster::tool::Limits;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A directory with tools, and a file on a file system of the given type.
struct Fixture {
    directory: tempfile::TempDir,
    mount: Mount,
    /// Time that tools have; only those that hang on purpose need more.
    deadline: Duration,
}

impl Fixture {
    fn new(kind: &str, source: &str) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("bin")).unwrap();
        fs::write(directory.path().join("file"), "content").unwrap();
        let mount = Mount {
            id: u64::MAX,
            point: directory.path().to_owned(),
            kind: kind.to_owned(),
            source: source.to_owned(),
        };
        let fixture = Fixture { directory, mount, deadline: Duration::from_secs(300) };
        // What the real probe finds, on another mount.
        let looked = serde_json::to_value(Looked::at(&fixture.file(), &[])).unwrap();
        fixture.answer(looked, &[]);
        fixture
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    /// Sets what the probe prints: the found file, with attributes.
    fn answer(&self, mut looked: serde_json::Value, attributes: &[(&str, &[u8])]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let list =
            attributes.iter().map(|(name, value)| serde_json::json!({ "name": name, "value": hex(value) }));
        looked["found"]["mount"] = u64::MAX.into();
        looked["found"]["attributes"] = list.collect();
        fs::write(self.directory.path().join("answer"), looked.to_string()).unwrap();
    }

    fn tool(&self, name: &str, script: &str) {
        let (draft, path) = (self.directory.path().join(name), self.directory.path().join("bin").join(name));
        fs::write(&draft, format!("#!/bin/sh\n{script}\n")).unwrap();
        // Written by another process: a child that another test starts at this moment would have a descriptor of this
        // process, and a file that is open for writing cannot be executed.
        let installed = Command::new("install").args(["-m", "755"]).args([draft, path]).status().unwrap();
        assert!(installed.success());
    }

    fn survey(&self) -> Survey {
        let answer = self.directory.path().join("answer");
        let prober = Prober {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), format!("cat {}", answer.display()).into(), "sh".into()],
        };
        let limits = Limits { deadline: self.deadline, ..Limits::default() };
        let options = Options { prober, limits, tools: vec![self.directory.path().join("bin")] };
        Survey::among(std::slice::from_ref(&self.mount), &self.file(), &options).unwrap()
    }
}

fn subjects(survey: &Survey) -> Vec<&str> {
    survey.unknown.iter().map(|unknown| unknown.subject).collect()
}

fn reasons(survey: &Survey) -> String {
    survey.unknown.iter().map(|unknown| format!("{}: {}\n", unknown.subject, unknown.reason)).collect()
}

fn targets_of(survey: &Survey) -> Vec<&str> {
    survey.layout.as_ref().unwrap().targets().into_iter().collect()
}

const GETSTRIPE: &str = "lmm_stripe_count: 2\\nlmm_stripe_size: 1048576\\nlmm_pattern: raid0\\nlmm_objects:\\n\
    - l_ost_idx: 0\\n  l_fid: 0x1:0x2:0x0\\n- l_ost_idx: 1\\n  l_fid: 0x1:0x3:0x0\\n";

#[test]
fn lustre_by_its_tool() {
    let fixture = Fixture::new("lustre", "10.0.0.1@tcp:/scratch");
    let osts = "OBDS:\\n0: scratch-OST0000_UUID ACTIVE\\n1: scratch-OST0001_UUID INACTIVE\\n";
    fixture
        .tool("lfs", &format!("case $1 in getstripe) printf '{GETSTRIPE}';; osts) printf '{osts}';; esac"));
    let survey = fixture.survey();
    assert_eq!((survey.system, targets_of(&survey)), (System::Lustre, vec!["OST0000", "OST0001"]));
    let states: Vec<State> = survey.targets.iter().flatten().map(|target| target.state).collect();
    assert_eq!(states, [State::Online, State::Offline]);
    // Nothing is unknown, and yet it is not in order.
    assert_eq!(reasons(&survey), "");
    assert!(survey.needs_attention());
}

/// Without the tool the attribute tells the layout. The states of the OSTs stay unknown.
#[test]
fn lustre_by_its_attribute() {
    let fixture = Fixture::new("lustre", "10.0.0.1@tcp:/scratch");
    let mut value = [0x0bd1_0bd0u32.to_le_bytes(), 1u32.to_le_bytes()].concat();
    value.extend([0; 16]);
    value.extend((1u32 << 20).to_le_bytes());
    value.extend([1, 0, 0, 0]);
    value.extend([0; 20]);
    value.extend(7u32.to_le_bytes());
    fixture
        .answer(serde_json::to_value(Looked::at(&fixture.file(), &[])).unwrap(), &[("lustre.lov", &value)]);
    fixture.tool("lfs", "echo 'lfs: cannot connect' >&2; exit 1");
    let survey = fixture.survey();
    assert_eq!(targets_of(&survey), ["OST0007"]);
    assert_eq!(subjects(&survey), ["targets"], "{}", reasons(&survey));
    assert!(reasons(&survey).contains("lfs: cannot connect"));
}

/// Whatever a tool prints, a layout that is not known is named with the reason, and nothing looks healthy.
#[test]
fn nonsense_is_unknown() {
    for script in
        ["", "echo hello", "head -c 100000 /dev/urandom", "yes", "kill -9 $$", "printf '\\377\\000'"]
    {
        for (kind, source, tools) in [
            ("lustre", "10.0.0.1@tcp:/scratch", &["lfs"][..]),
            ("fuse.glusterfs", "h:/vol", &["gluster"]),
            ("fuse", "mfs#127.0.0.1:9421", &["mfsfileinfo", "mfscli"]),
            ("ceph", "10.0.0.1:6789:/", &["ceph"]),
            ("beegfs", "beegfs_nodev", &["beegfs", "beegfs-ctl"]),
            ("gpfs", "fs1", &["mmlsattr"]),
        ] {
            let fixture = Fixture::new(kind, source);
            tools.iter().for_each(|tool| fixture.tool(tool, script));
            let survey = fixture.survey();
            assert_ne!(survey.system, System::Plain);
            assert!(survey.layout.is_none() && survey.targets.is_none(), "{kind}: {script}: {survey:?}");
            for subject in ["layout", "targets"] {
                assert!(subjects(&survey).contains(&subject), "{kind}: {script}: {}", reasons(&survey));
            }
            assert!(survey.needs_attention());
        }
    }
}

/// Tools that hang cost a deadline each, and the probe too.
#[test]
fn hanging_tools_are_unknown() {
    let mut fixture = Fixture::new("gpfs", "fs1");
    fixture.tool("mmlsattr", "sleep 86400");
    fixture.deadline = Duration::from_millis(200);
    let survey = fixture.survey();
    // On a very slow machine the probe itself may be late.
    assert!(reasons(&survey).contains("did not answer within 200 ms"), "{}", reasons(&survey));
    assert!(survey.layout.is_none());
}

#[test]
fn beegfs_and_gpfs_as_documented() {
    let fixture = Fixture::new("beegfs", "beegfs_nodev");
    fixture.tool("beegfs", "exit 1");
    let info = "Stripe pattern details:\\n+ Type: RAID0\\n+ Chunksize: 512K\\n+ Storage targets:\\n  + 101 @ n [ID: 1]\\n";
    let states = "101 Online Good 1\\n202 Probably-offline Good 2\\n";
    fixture.tool(
        "beegfs-ctl",
        &format!("case $1 in --getentryinfo) printf '{info}';; *) printf '{states}';; esac"),
    );
    let survey = fixture.survey();
    assert_eq!(targets_of(&survey), ["101"]);
    assert_eq!(survey.offline_targets().iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["202"]);
    assert_eq!(reasons(&survey), "");

    let fixture = Fixture::new("gpfs", "fs1");
    fixture.tool("mmlsattr", "printf 'storage pool name: system\\nMisc attributes: ARCHIVE OFFLINE\\n'");
    let survey = fixture.survey();
    let offline = survey.properties.iter().find(|(name, _)| *name == "offline").unwrap();
    assert!(offline.1.starts_with("yes"));
    assert_eq!(subjects(&survey), ["layout", "targets"]);
}

/// A file name must not pass for a line of an answer.
#[test]
fn names_that_look_like_answers_are_refused() {
    let fixture = Fixture::new("fuse", "mfs#127.0.0.1:9421");
    let name = "x\n\tchunk 0: 1_1 / (id:1 ver:1)\n\t\tcopy 1: 9.9.9.9:1 (status:VALID)";
    let path = fixture.directory.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "").unwrap();
    fixture.answer(serde_json::to_value(Looked::at(&path, &[])).unwrap(), &[]);
    fixture.tool("mfsfileinfo", "printf '%s:\\n\\tno chunks - empty file\\n' \"$1\"");
    let survey = fixture.survey();
    assert!(survey.layout.is_none());
    assert!(reasons(&survey).contains("control characters"), "{}", reasons(&survey));
}

#[test]
fn relative_and_absent_paths_are_errors() {
    let options = Options {
        prober: Prober { program: "true".into(), arguments: Vec::new() },
        limits: Limits::default(),
        tools: Vec::new(),
    };
    assert!(Survey::of(Path::new("relative"), &options).is_err());
    let absent = r#"{"refused":{"errno":2,"text":"No such file or directory (os error 2)"}}"#;
    let prober = Prober { program: "echo".into(), arguments: vec![absent.into()] };
    // What follows the JSON makes it no answer: then the path is unknown, and no error.
    let survey = Survey::of(Path::new("/"), &Options { prober, ..options.clone() }).unwrap();
    assert_eq!(subjects(&survey)[0], "path");
    let prober = Prober {
        program: "sh".into(),
        arguments: vec!["-c".into(), format!("echo '{absent}'").into(), "sh".into()],
    };
    let error =
        Survey::of(Path::new("/"), &Options { prober: prober.clone(), ..options.clone() }).unwrap_err();
    assert_eq!(error.to_string(), "No such file or directory (os error 2)");
    // An error of the file system is no error of the path.
    let sick = absent.replace("\"errno\":2", "\"errno\":107");
    let prober =
        Prober { arguments: vec!["-c".into(), format!("echo '{sick}'").into(), "sh".into()], ..prober };
    assert_eq!(subjects(&Survey::of(Path::new("/"), &Options { prober, ..options }).unwrap())[0], "path");
}
