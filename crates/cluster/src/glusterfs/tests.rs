use super::{layout, volume, volume_info, volume_status};
use crate::layout::{State, Target};

fn brick(name: &str) -> Target {
    let state = State::Online;
    Target { name: name.to_owned(), domain: None, state, labels: Vec::new(), used: None, total: None }
}

const STATUS: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<cliOutput><opRet>0</opRet><opErrno>0</opErrno><opErrstr/>
  <volStatus><volumes><volume><volName>dist</volName><nodeCount>4</nodeCount>
    <node><hostname>n1</hostname><path>/srv/b1</path><status>1</status><port>50891</port><pid>28728</pid></node>
    <node><hostname>n2</hostname><path>/srv/b2</path><status>0</status><port>N/A</port><pid>-1</pid></node>
    <node><hostname>n3</hostname><path>/srv/b3</path><port>N/A</port></node>
    <node><hostname>Self-heal Daemon</hostname><path>n1</path><status>1</status></node>
    <tasks/></volume></volumes></volStatus></cliOutput>"#;

const INFO: &str = r#"<cliOutput><opRet>0</opRet><opErrstr/><volInfo><volumes>
  <volume><name>other</name><typeStr>Replicate</typeStr></volume>
  <volume><name>dist</name><statusStr>Started</statusStr><typeStr>Distribute</typeStr>
    <bricks><brick uuid="e4">n1:/srv/b1<name>n1:/srv/b1</name><isArbiter>0</isArbiter></brick></bricks>
    <options><option><name>changelog.changelog</name><value>on</value></option>
      <option><name>features.shard</name><value>off</value></option></options></volume>
  <count>2</count></volumes></volInfo></cliOutput>"#;

#[test]
fn a_file_of_a_distributed_volume_is_on_one_brick() {
    let value = "(<DISTRIBUTE:dist-dht> <POSIX(/srv/b4):vm:/srv/b4/dir/f 1>) ";
    let found = layout(value, &[]).unwrap();
    let placement = &found.components[0].placements[0];
    assert_eq!(placement.target.as_deref(), Some("vm:/srv/b4"));
    assert_eq!(placement.object.as_deref(), Some("/srv/b4/dir/f 1"));
    // The volume knows the machine by its address.
    let known = layout(value, &[brick("10.78.0.1:/srv/b3"), brick("10.78.0.1:/srv/b4")]).unwrap();
    assert_eq!(known.targets().into_iter().collect::<Vec<_>>(), ["10.78.0.1:/srv/b4"]);
    // Two machines have such a directory: which of them it is cannot be told from the address.
    let two = layout(value, &[brick("10.78.0.1:/srv/b4"), brick("10.78.0.2:/srv/b4")]).unwrap();
    assert_eq!(two.targets().into_iter().collect::<Vec<_>>(), ["vm:/srv/b4"]);
}

#[test]
fn replicas_are_copies() {
    let value =
        "(<DISTRIBUTE:r-dht> (<REPLICATE:r-replicate-0> <POSIX(/b1):n1:/b1/f> <POSIX(/b2):n2:/b2/f>))";
    let found = layout(value, &[]).unwrap();
    assert_eq!(found.components[0].placements.iter().map(|it| it.copy).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(found.components[0].flags, ["replicated"]);
}

/// A directory, and translators that change the bytes, have no placement rather than a wrong one.
#[test]
fn other_values_are_no_layout() {
    for bad in [
        "",
        "(<DISTRIBUTE:d-dht>)",
        "((<DISTRIBUTE:d> <POSIX(/b1):n:/b1/> <POSIX(/b2):n:/b2/>) (d-layout (d-client-0 0 1073741822)))",
        "(<EC:disp-disperse-0> <POSIX(/b1):n:/b1/f>)",
        "(<STRIPE:s> <POSIX(/b1):n:/b1/f>)",
        "(<POSIX(/b1):n>)",
        "(<POSIX(/b1",
    ] {
        assert!(layout(bad, &[]).is_err(), "{bad}");
    }
}

#[test]
fn volumes_are_read() {
    let bricks = volume_status(STATUS, "dist").unwrap();
    let states: Vec<_> = bricks.iter().map(|it| (it.name.as_str(), it.state)).collect();
    let expected =
        [("n1:/srv/b1", State::Online), ("n2:/srv/b2", State::Offline), ("n3:/srv/b3", State::Unknown)];
    assert_eq!(states, expected);
    let info = volume_info(INFO, "dist").unwrap();
    assert_eq!((info.kind.as_str(), info.bricks.len()), ("Distribute", 1));
    assert!(info.has_changelog() && !info.is_sharded());
    assert!(volume_info(INFO, "none").is_err());
    let failed = "<cliOutput><opRet>-1</opRet><opErrstr>Volume x does not exist</opErrstr></cliOutput>";
    assert_eq!(volume_status(failed, "x").unwrap_err(), "gluster: Volume x does not exist");
}

#[test]
fn the_source_of_a_mount_names_the_volume() {
    assert_eq!(volume("10.78.0.1:dist"), Some(("10.78.0.1", "dist")));
    assert_eq!(volume("node1:/vol/sub/dir"), Some(("node1", "vol")));
    for bad in ["dist", "h:", "h:/", "h:-x", "-h:vol", "h:a b"] {
        assert_eq!(volume(bad), None, "{bad}");
    }
}
