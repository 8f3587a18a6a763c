//! A pool loses targets: status, rebuild and scrub afterwards.

use super::fixture::Fixture;
use super::test_rng::TestRng;
use std::path::PathBuf;

/// A pool of eight directories in the playground, with protected files.
pub(crate) struct Pool {
    pub(crate) fixture: Fixture,
    files: Vec<(String, Vec<u8>)>,
}

impl Pool {
    pub(crate) fn new() -> Pool {
        let fixture = Fixture::new();
        let targets: Vec<String> = (1..=8).map(|number| format!("d{number}")).collect();
        let mut create =
            vec!["pool", "create", "tank", "--pools", "names", "--stripe", "3", "--block", "4KiB"];
        create.extend(["--redundancy", "2", "--targets"]);
        create.extend(targets.iter().map(String::as_str));
        fixture.expect(0, &create);
        let mut seed = TestRng(0x5eed);
        let mut files = Vec::new();
        for number in 0..18 {
            let (name, content) = (format!("file{number:02}"), seed.bytes(20_000 + number * 3000));
            fixture.write(&name, &content);
            fixture.expect(0, &["pool", "put", "tank", &format!("tree/{name}"), "/", "--pools", "names"]);
            files.push((name, content));
        }
        fixture.expect(0, &["protect", "tank", "--pools", "names"]);
        Pool { fixture, files }
    }

    fn target(&self, number: usize) -> PathBuf {
        self.fixture.dir().join(format!("d{number}"))
    }

    pub(crate) fn lose(&self, number: usize) {
        std::fs::rename(self.target(number), self.fixture.dir().join(format!("away{number}"))).unwrap();
    }

    fn bring_back(&self, number: usize) {
        std::fs::rename(self.fixture.dir().join(format!("away{number}")), self.target(number)).unwrap();
    }

    fn json(&self, code: i32, args: &[&str]) -> serde_json::Value {
        self.fixture.json(code, &[args, &["--pools", "names"]].concat())
    }

    /// Gets every file and compares; gives how many were degraded.
    pub(crate) fn compare(&self) -> u64 {
        let mut degraded = 0;
        for (name, content) in &self.files {
            let got = self.json(0, &["pool", "get", "tank", name, "got", "--force"]);
            degraded += got["degraded"].as_u64().unwrap();
            assert!(std::fs::read(self.fixture.dir().join("got")).unwrap() == *content, "{name}");
        }
        degraded
    }
}

#[test]
fn a_lost_target_from_the_first_sign_to_its_return() {
    let pool = Pool::new();
    assert_eq!(pool.compare(), 0);
    assert_eq!(pool.json(0, &["pool", "rebuild", "tank"])["files"], 0);
    // The vault is on the first target: that goes with it.
    pool.lose(1);
    let status = pool.json(1, &["pool", "status", "tank"]);
    let missing = status["files"]["degraded"].as_array().unwrap().len();
    assert!(missing > 0 && status["files"]["lost"].as_array().unwrap().is_empty(), "{status}");
    assert!(pool.compare() > 0);
    let status = pool.json(1, &["status", "tank"]);
    assert_eq!(status["degraded"].as_array().unwrap().len(), missing, "{status}");
    assert!(status["degraded_reads"]["reads"].as_u64().unwrap() > 0, "{status}");
    let plan = pool.json(1, &["pool", "rebuild", "tank", "--dry-run"]);
    assert_eq!(plan["plan"]["files"].as_array().unwrap().len(), missing, "{plan}");
    let report = pool.json(0, &["pool", "rebuild", "tank", "--threads", "2", "--limit", "200MiB/s"]);
    assert_eq!(report["files"].as_u64().unwrap() as usize, missing, "{report}");
    assert_eq!(pool.compare(), 0);
    assert_eq!(pool.json(0, &["scrub", "tank"])["damage"].as_array().map_or(0, Vec::len), 0);
    pool.json(0, &["status", "tank"]);
    pool.bring_back(1);
    let status = pool.json(1, &["pool", "status", "tank"]);
    assert_eq!(status["status"]["targets"][0]["state"], "returned", "{status}");
    let report = pool.json(0, &["pool", "rebuild", "tank"]);
    assert_eq!(report["reinstated"][0], "d1", "{report}");
    pool.json(0, &["pool", "status", "tank"]);
    pool.json(0, &["scrub", "tank"]);
    assert_eq!(pool.compare(), 0);
}

#[test]
fn too_many_lost_targets_wait_for_an_agreement_to_just_these() {
    let pool = Pool::new();
    // Where files go is drawn by lot: three targets that some file needs.
    let triples = [[4, 6, 8], [4, 5, 6], [5, 7, 8], [4, 7, 8], [5, 6, 7], [4, 5, 8], [6, 7, 8]];
    let needed = |lost: &&[usize; 3]| {
        let names = lost.map(|number| format!("d{number}"));
        let mut args = vec!["whatif", "tank", "--pools", "names", "--lose"];
        args.extend(names.iter().map(String::as_str));
        pool.fixture.run(&args).status.code() == Some(3)
    };
    let triple = triples.iter().find(needed).unwrap();
    triple.iter().for_each(|&number| pool.lose(number));
    let status = pool.json(3, &["pool", "status", "tank"]);
    let lost = status["files"]["lost"].as_array().unwrap().len();
    assert!(lost > 0, "{status}");
    let refused = pool.fixture.run(&["pool", "rebuild", "tank", "--pools", "names"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains(&triple.map(|number| format!("d{number}")).join(", ")), "{said}");
    let digest = said.trim().rsplit(' ').next().unwrap().to_owned();
    let report = pool.json(3, &["pool", "rebuild", "tank", "--agree", &digest]);
    assert_eq!(report["plan"]["lost"].as_array().unwrap().len(), lost, "{report}");
    assert_eq!(report["failed"].as_array().unwrap().len(), 0, "{report}");
    triple.iter().for_each(|&number| pool.bring_back(number));
    pool.json(0, &["pool", "rebuild", "tank"]);
    assert_eq!(pool.compare(), 0);
    pool.json(0, &["scrub", "tank"]);
}

#[test]
fn a_retired_target_is_empty_afterwards() {
    let pool = Pool::new();
    pool.json(0, &["pool", "retire", "tank", "d5", "--no-rebuild"]);
    let status = pool.json(0, &["pool", "status", "tank"]);
    assert_eq!(status["status"]["targets"][4]["state"], "retired", "{status}");
    let report = pool.json(0, &["pool", "retire", "tank", "d5"]);
    assert!(report["data_columns"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["reconstructed_blocks"], 0, "{report}");
    pool.lose(5);
    assert_eq!(pool.compare(), 0);
}

/// A dead disk stayed OFFLINE with exit code 1 for ever, and a new disk at its mount point was "there twice".
#[test]
fn a_dead_target_is_replaced_at_its_mount_point_and_forgotten() {
    let pool = Pool::new();
    let names = |status: &serde_json::Value| -> Vec<String> {
        let targets = status["status"]["targets"].as_array().unwrap();
        targets.iter().map(|target| target["name"].as_str().unwrap().to_owned()).collect()
    };
    pool.lose(3);
    std::fs::create_dir(pool.target(3)).unwrap();
    // One in service is neither forgotten, nor is its directory given to another.
    let refused = pool.json(2, &["pool", "forget", "tank", "d4"])["error"].to_string();
    assert!(refused.contains("files have columns on it"), "{refused}");
    let refused = pool.json(2, &["pool", "add", "tank", "d3"])["error"].to_string();
    assert!(refused.contains("gabion pool replace"), "{refused}");
    // Files still need it.
    pool.json(2, &["pool", "forget", "tank", "d3"]);
    pool.json(1, &["pool", "replace", "tank", "d3", "d3", "--dry-run"]);
    assert_eq!(names(&pool.json(1, &["pool", "status", "tank"])).len(), 8);
    let report = pool.json(0, &["pool", "replace", "tank", "d3", "d3"]);
    assert!(report["files"].as_u64().unwrap() > 0, "{report}");
    let status = pool.json(0, &["pool", "status", "tank"]);
    assert_eq!(names(&status), ["d1", "d2", "d4", "d5", "d6", "d7", "d8", "d3-2"]);
    assert_eq!(pool.compare(), 0);
    pool.json(0, &["scrub", "tank"]);
    pool.json(0, &["status", "tank"]);
    // The dead one comes to life: it is no target any more, and leads to the pool.
    let away = pool.fixture.dir().join("away3");
    let status = pool.json(0, &["pool", "status", away.to_str().unwrap()]);
    assert_eq!(names(&status).len(), 8, "{status}");
    // One that works is replaced as well; its directory is no target then.
    pool.json(0, &["pool", "replace", "tank", "d1", "new"]);
    assert!(!pool.target(1).join("pool.toml").exists());
    assert_eq!(names(&pool.json(0, &["pool", "status", "tank"])).last().unwrap(), "new");
    assert_eq!(pool.compare(), 0);
    pool.json(0, &["protect", "tank"]);
    assert_eq!(pool.json(0, &["scrub", "tank"])["files"], 18);
}

/// Two targets on one disk would count as two that fail on their own.
#[test]
fn targets_in_each_other_are_refused() {
    let pool = Pool::new();
    for command in [&["pool", "add", "tank"][..], &["pool", "replace", "tank", "d2"]] {
        for place in ["d1/below", "d2/new/deeper", "."] {
            let refused = pool.json(2, &[command, &[place]].concat())["error"].to_string();
            assert!(refused.contains("lie in each other"), "{command:?} {place}: {refused}");
        }
    }
    assert!(!pool.target(1).join("below").exists() && !pool.target(2).join("new").exists());
    let create = ["pool", "create", "other", "--stripe", "2", "--redundancy", "1", "--targets"];
    let refused = pool.json(2, &[&create[..], &["n1", "n1/n2", "n3", "n4"]].concat())["error"].to_string();
    assert!(refused.contains("lie in each other"), "{refused}");
    assert!(!pool.fixture.dir().join("n1").exists());
    assert_eq!(pool.compare(), 0);
}

/// Columns of existing files never moved to a target that was added.
#[test]
fn a_new_target_gets_its_share() {
    let pool = Pool::new();
    pool.json(0, &["pool", "add", "tank", "d9"]);
    let plan = pool.json(0, &["pool", "balance", "tank", "--within", "0", "--dry-run"]);
    let target = |name: &str| {
        let found = plan["targets"].as_array().unwrap().iter().find(|target| target["name"] == name);
        found.unwrap_or_else(|| panic!("{plan}")).clone()
    };
    assert_eq!(target("d9")["used"], 0);
    let goal = target("d9")["goal"].as_u64().unwrap();
    assert!(goal > 100_000 && plan["bytes"] == 0, "{plan}");
    // By default nothing moves: the disks are nearly empty.
    assert_eq!(pool.json(0, &["pool", "balance", "tank"])["planned_bytes"], 0);
    let report = pool.json(0, &["pool", "balance", "tank", "--within", "0"]);
    assert!(report["files"].as_u64().unwrap() > 3, "{report}");
    let plan = pool.json(0, &["pool", "balance", "tank", "--within", "0", "--dry-run"]);
    let used = plan["targets"][8]["used"].as_u64().unwrap();
    assert!(used > goal / 2 && used < goal * 3 / 2, "{used} of {goal}: {plan}");
    assert_eq!(pool.compare(), 0);
    pool.json(0, &["scrub", "tank"]);
    pool.json(0, &["pool", "status", "tank"]);
    let swept = pool.json(0, &["pool", "status", "tank", "--sweep", "--dry-run"]);
    assert_eq!(swept["swept"]["orphans"].as_array().unwrap().len(), 0, "{swept}");
    pool.lose(9);
    pool.json(2, &["pool", "balance", "tank"]);
}

/// `status` said "survives any 3 of 4 targets" with one of them gone, and exit 0 while fewer targets had the names of
/// a pool than it had promised.
#[test]
fn status_says_what_a_pool_survives_now() {
    let fixture = Fixture::new();
    let create =
        ["pool", "create", "tank", "--pools", "pools", "--stripe", "1", "--redundancy", "3", "--targets"];
    fixture.expect(0, &[&create[..], &["d1", "d2", "d3", "d4"]].concat());
    fixture.expect(0, &["pool", "put", "tank", "tree", "/", "--pools", "pools"]);
    fixture.expect(0, &["protect", "tank", "--pools", "pools"]);
    let survives = |code: i32| {
        let status = fixture.json(code, &["status", "tank", "--pools", "pools"]);
        let all = status["survives"].as_array().unwrap().clone();
        let words = all.iter().find(|it| it["loss"] == "disk").unwrap()["words"].as_str().unwrap().to_owned();
        (words, status)
    };
    assert_eq!(survives(0).0, "any 3 of 4 targets");
    let (here, away) = (fixture.dir().join("d4"), fixture.dir().join("away"));
    std::fs::rename(&here, &away).unwrap();
    assert_eq!(survives(1).0, "any 2 of the 3 targets that are left (1 of 4 targets gone)");
    // The target misses changes of names, after which all files are as they were.
    fixture.expect(0, &["pool", "put", "tank", "tree", "/other/", "--pools", "pools"]);
    fixture.expect(0, &["pool", "rm", "tank", "other", "--recursive", "--pools", "pools"]);
    std::fs::rename(&away, &here).unwrap();
    let (words, status) = survives(1);
    assert_eq!(words, "any 2 of 4 targets", "names are on three");
    assert_eq!((&status["pending"]["files"], &status["degraded"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(status["mirrors"], serde_json::json!({ "current": 3, "required": 4, "outdated": ["d4"] }));
    fixture.expect(0, &["protect", "tank", "--pools", "pools"]);
    assert_eq!(survives(0).0, "any 3 of 4 targets");
}
