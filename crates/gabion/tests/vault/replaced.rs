//! `gabion replaced`: content that repair replaced is listed and removed.

use super::corruption::rot;
use super::fixture::Fixture;

#[test]
fn replaced_content_is_listed_and_removed() {
    let fixture = Fixture::new();
    let content = fixture.content();
    fixture.expect(0, &["protect", "tree"]);
    assert_eq!(fixture.json(0, &["replaced", "list", "tree"])["runs"].as_array().unwrap().len(), 0);
    rot(&fixture.path("sub/b"), 1000, 50);
    fixture.expect(0, &["repair", "tree", "--yes"]);
    assert_eq!(fixture.content(), content);
    let list = fixture.json(0, &["replaced", "list", "tree"]);
    let run = &list["runs"][0];
    assert_eq!(run["files"][0]["path"], "sub/b", "{list}");
    let name = run["run"].as_str().unwrap().to_owned();
    let text = fixture.expect(0, &["replaced", "list", "tree"]);
    assert!(text.contains(&name) && text.contains("sub/b") && text.contains("1 file,"), "{text}");
    // What is not selected, not there or not confirmed stays.
    fixture.json(0, &["replaced", "purge", "tree", "--older-than", "1d", "--yes"]);
    for args in
        [&["--run", "2020-01-01-00-00-00-UTC", "--yes"][..], &["--run", "../..", "--yes"], &["--all"], &[]]
    {
        let output = fixture.run(&[&["replaced", "purge", "tree"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    }
    assert_eq!(fixture.json(0, &["replaced", "purge", "tree", "--all", "--dry-run"])["removed"], false);
    assert_eq!(fixture.json(0, &["replaced", "list", "tree"]), list);
    assert_eq!(fixture.json(0, &["replaced", "purge", "tree", "--run", &name, "--yes"])["removed"], true);
    fixture.expect(0, &["replaced", "list", "tree"]);
    assert!(!fixture.path(".gabion/replaced").join(&name).exists());
    fixture.expect(0, &["scrub", "tree"]);
}
