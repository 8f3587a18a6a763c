//! Held change-sets as a person meets them: shown by every command, approved by a line that is pasted into a shell.

use super::corruption::rot;
use super::fixture::Fixture;
use std::process::Command;

/// The command that a text names for the approval.
fn approve_line(text: &str) -> String {
    let start = text.find("gabion approve").unwrap_or_else(|| panic!("no command in {text}"));
    text[start..].lines().next().unwrap().to_owned()
}

/// The printed line lacked the path and the repository, and `status` knew nothing of what was held.
#[test]
fn status_shows_what_is_held_and_its_command_can_be_pasted() {
    let fixture = Fixture::new();
    let (tree, other) = (fixture.dir().join("it's a \"tree\" $x"), fixture.dir().join("the other\ndisk"));
    std::fs::rename(fixture.tree(), &tree).unwrap();
    for number in 0..150 {
        std::fs::write(tree.join(format!("many {number}")), b"content").unwrap();
    }
    let (tree, other) = (tree.to_str().unwrap(), other.to_str().unwrap());
    fixture.expect(0, &["protect", tree, "--repository", other]);
    let none = fixture.json(0, &["status", tree]);
    assert!(none["held"].is_null() && none["approved"].is_null(), "{none}");
    for number in 0..150 {
        std::fs::remove_file(std::path::Path::new(tree).join(format!("many {number}"))).unwrap();
    }
    let protect = approve_line(&fixture.expect(1, &["protect", tree]));
    let held = fixture.json(1, &["protect", tree])["held"].clone();
    let status = fixture.json(1, &["status", tree]);
    assert_eq!((&status["held"], &status["approved"]), (&held, &serde_json::Value::Null));
    let text = fixture.expect(1, &["status", tree]);
    assert!(text.contains("HELD") && text.contains("150 disappeared"), "{text}");
    assert_eq!(approve_line(&text), protect);
    // The pointer of the tree is gone as well: the line names the repository.
    std::fs::remove_file(std::path::Path::new(tree).join(".gabion")).unwrap();
    let program = format!("gabion() {{ {} \"$@\"; }}\n{protect}", env!("CARGO_BIN_EXE_gabion"));
    let pasted = Command::new("bash").args(["-c", &program]).current_dir("/").output().unwrap();
    assert!(pasted.status.success(), "{protect}: {}", String::from_utf8_lossy(&pasted.stderr));
    let status = fixture.json(1, &["status", tree, "--repository", other]);
    assert_eq!((&status["held"], &status["approved"]), (&serde_json::Value::Null, &held["digest"]));
    let text = fixture.expect(1, &["status", tree, "--repository", other]);
    assert!(text.contains("`gabion protect` carries it out"), "{text}");
    assert_eq!(fixture.json(0, &["protect", tree, "--repository", other])["removed"], 150);
}

/// `repair` cut its plan after ten files and then printed a line for each of 72; a missing file was one whose "size or
/// time changed".
#[test]
fn repairs_list_as_many_files_as_their_plan() {
    let fixture = Fixture::new();
    (0..30).for_each(|number| fixture.write(&format!("many/{number:02}"), &[7; 3000]));
    fixture.expect(0, &["protect", "tree"]);
    std::fs::remove_file(fixture.path("sub/b")).unwrap();
    let missing = fixture.expect(0, &["scrub", "tree"]);
    assert!(missing.contains("1 file is gone"), "{missing}");
    let plan = fixture.json(1, &["repair", "tree", "--dry-run", "--missing"])["plan"].clone();
    assert_eq!((&plan[0]["path"], &plan[0]["missing"]), (&"sub/b".into(), &true.into()), "{plan}");
    let text = fixture.expect(1, &["repair", "tree", "--dry-run", "--missing"]);
    assert!(text.contains("the file is missing") && !text.contains("size or time"), "{text}");
    (0..30).for_each(|number| rot(&fixture.path(&format!("many/{number:02}")), 5, 1));
    let lines = |text: &str, word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    let all = fixture.expect(1, &["repair", "tree", "--dry-run", "--files"]);
    assert_eq!(lines(&all, "damaged "), 30, "{all}");
    let text = fixture.expect(0, &["repair", "tree", "--yes"]);
    assert_eq!((lines(&text, "damaged "), lines(&text, "repaired  ")), (10, 10), "{text}");
    assert!(
        text.contains("and 20 files more repaired") && text.contains("repaired 30 of 30 files"),
        "{text}"
    );
    (0..30).for_each(|number| rot(&fixture.path(&format!("many/{number:02}")), 5, 1));
    let text = fixture.expect(0, &["repair", "tree", "--yes", "--files"]);
    assert_eq!((lines(&text, "damaged "), lines(&text, "repaired  ")), (30, 30), "{text}");
}
