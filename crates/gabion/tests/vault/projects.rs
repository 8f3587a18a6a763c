//! Policies by project quota id, on real file systems.

use super::fixture::Fixture;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sets project ids: `FS_IOC_FSGETXATTR`, then `FS_IOC_FSSETXATTR`.
const SET: &str = "import fcntl, os, struct, sys
for path in sys.argv[2:]:
    file = os.open(path, os.O_RDONLY)
    found = bytearray(28)
    fcntl.ioctl(file, 0x801c581f, found)
    struct.pack_into('I', found, 12, int(sys.argv[1]))
    fcntl.ioctl(file, 0x401c5820, bytes(found))";

/// A file system in an image, mounted on the fixture's tree.
struct Mounted {
    image: PathBuf,
    point: PathBuf,
}

fn run(program: &str, args: &[&str], paths: &[&Path]) -> Result<(), String> {
    let output = Command::new(program).args(args).args(paths).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Mounted {
    fn new(fixture: &Fixture, mkfs: &[&str]) -> Result<Mounted, String> {
        let (image, point) = (fixture.dir().join("image"), fixture.tree());
        std::fs::File::create(&image).and_then(|file| file.set_len(320 << 20)).unwrap();
        run(mkfs[0], &mkfs[1..], &[&image])?;
        run("mount", &["-o", "loop"], &[&image, &point])?;
        Ok(Mounted { image, point })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        gabion_testkit::unmount_image(&self.image, &self.point);
    }
}

fn check(test: &str, mkfs: &[&str]) {
    let fixture = Fixture::new();
    let _mounted = match Mounted::new(&fixture, mkfs) {
        Ok(mounted) => mounted,
        // Without quotas of format 2 the kernel mounts an ext4 only if it keeps no projects.
        Err(_)
            if mkfs[0] == "mkfs.ext4"
                && Mounted::new(&Fixture::new(), &["mkfs.ext4", "-q", "-F"]).is_ok() =>
        {
            return gabion_testkit::skip_for_kernel(test, "disk quotas for ext4");
        }
        Err(why) => return gabion_testkit::skip(test, why),
    };
    for name in ["seven", "nine", "none"] {
        fixture.write(name, name.as_bytes());
    }
    for (project, name) in [("7", "seven"), ("9", "nine")] {
        run("python3", &["-I", "-B", "-c", SET, project], &[&fixture.path(name)]).unwrap();
    }
    let policy = "[[rule]]\nname = \"important\"\nprojects = [7, 8]\ncode = \"4+2\"\n\
                  [[rule]]\nname = \"scratch\"\nnot = { projects = [0, 7] }\nprotect = false\n";
    std::fs::write(fixture.dir().join("policy"), policy).unwrap();
    fixture.expect(0, &["policy", "check", "policy"]);
    let report = fixture.json(0, &["protect", "tree", "--policy", "policy"]);
    assert_eq!((&report["files"], &report["left_out"]), (&2.into(), &1.into()), "{report}");
    let explained = |name: &str| fixture.json(0, &["policy", "explain", &format!("tree/{name}")]);
    let seven = explained("seven");
    assert_eq!((&seven["rule"], &seven["because"][0]), (&"important".into(), &"its project is 7".into()));
    assert_eq!(seven["treatment"]["code"], "subspace:4+2:w8");
    let nine = explained("nine");
    assert_eq!((&nine["rule"], &nine["because"][0]), (&"scratch".into(), &"its project is 9".into()));
    assert_eq!(nine["passed_over"][0]["why"], "its project is 9");
    let none = explained("none");
    assert_eq!(none["rule"], "default");
    assert_eq!(none["passed_over"][1]["why"], "its project is 0, which `not` excludes");
    // A file gets another project: the next run follows, and says so.
    run("python3", &["-I", "-B", "-c", SET, "8"], &[&fixture.path("none")]).unwrap();
    assert_eq!(fixture.json(0, &["protect", "tree"])["encoded"], 1);
    assert_eq!(explained("none")["rule"], "important");
    let text = fixture.expect(0, &["policy", "explain", "tree/seven"]);
    assert!(text.contains("important: applies, its project is 7: code subspace:4+2:w8"), "{text}");
}

#[test]
fn files_of_an_xfs_have_projects() {
    check("files_of_an_xfs_have_projects", &["mkfs.xfs", "-q"]);
}

#[test]
fn files_of_an_ext4_have_projects() {
    check("files_of_an_ext4_have_projects", &["mkfs.ext4", "-q", "-F", "-I", "256", "-O", "quota,project"]);
}

/// Where there are no projects, all files count as having none.
#[test]
fn other_file_systems_have_no_projects() {
    let fixture = Fixture::new();
    let policy = "[[rule]]\nprojects = [7]\nprotect = false\n";
    std::fs::write(fixture.dir().join("policy"), policy).unwrap();
    assert_eq!(fixture.json(0, &["protect", "tree", "--policy", "policy"])["left_out"], 0);
}
