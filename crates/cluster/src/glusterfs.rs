//! GlusterFS: the attribute `glusterfs.pathinfo` and what `gluster --xml` prints.
//!
//! On a distributed volume a file lies whole on one brick, unless the volume replicates, disperses or shards it. A
//! target is a brick, named `HOST:PATH`.

use crate::layout::{Component, Layout, Placement, State, Target};
use crate::lines::number;
use crate::xml::{self, Element};

/// Attribute with the bricks of a file. Any error of it means that the placement is unknown: on dispersed volumes it
/// fails with `ENOMEM`.
pub const PATHINFO: &str = "glusterfs.pathinfo";

/// Server and volume from the source of a mount: `HOST:VOLUME` or `HOST:/VOLUME/DIRECTORY`.
pub fn volume(source: &str) -> Option<(&str, &str)> {
    let (host, path) = source.rsplit_once(':')?;
    let volume = path.strip_prefix('/').unwrap_or(path).split('/').next()?;
    let valid = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_name = |text: &str| !text.is_empty() && !text.starts_with('-');
    (is_name(volume) && volume.chars().all(valid) && is_name(host)).then_some((host, volume))
}

/// Decodes the value of [`PATHINFO`] of a file:
///
/// ```text
/// (<DISTRIBUTE:dist-dht> <POSIX(/srv/b4):node4:/srv/b4/dir/f1>)
/// (<DISTRIBUTE:r-dht> (<REPLICATE:r-replicate-0> <POSIX(/srv/b1):node1:/srv/b1/f> <POSIX(/srv/b2):node2:/srv/b2/f>))
/// ```
///
/// The host in it is the name that the brick's machine gives itself, which need not be the one under which the volume
/// knows it: `bricks` are the targets of the volume, and one with the same directory is taken if there is only one.
///
/// # Errors
/// What is wrong with it. A value with other translators between is refused: what they do to the bytes is not known.
pub fn layout(value: &str, bricks: &[Target]) -> Result<Layout, String> {
    let mut component = Component::whole(0, None);
    let mut rest = value;
    while let Some((_, tag)) = rest.split_once('<') {
        // A path may have any character, also `>`; but then ` <POSIX(` or `)` follows only by malice.
        let end = tag.find('>').ok_or("pathinfo: a part does not end")?;
        let part = &tag[..end];
        rest = &tag[end + 1..];
        if let Some(posix) = part.strip_prefix("POSIX(") {
            let (directory, place) = posix.split_once("):").ok_or("pathinfo: a brick without a directory")?;
            let (host, path) = place.split_once(':').ok_or("pathinfo: a brick without a path")?;
            let copy = u32::try_from(component.placements.len()).map_err(|_| "pathinfo: too many bricks")?;
            component.placements.push(Placement {
                column: 0,
                copy,
                target: Some(brick(host, directory, bricks)),
                object: Some(path.to_owned()),
                state: None,
            });
        } else {
            let (kind, _) = part.split_once(':').ok_or("pathinfo: a translator without a name")?;
            match kind {
                "DISTRIBUTE" => {}
                "REPLICATE" => component.flags.push("replicated".to_owned()),
                "EC" | "DISPERSE" => return Err("pathinfo: the file is dispersed".to_owned()),
                other => {
                    return Err(format!(
                        "pathinfo: {:?} is not known",
                        other.chars().take(40).collect::<String>()
                    ));
                }
            }
        }
    }
    let copies = component.placements.len();
    match copies {
        0 => Err("pathinfo names no brick".to_owned()),
        // Several bricks without replication are those of a directory.
        2.. if component.flags.is_empty() => {
            Err("pathinfo names several bricks without replication".to_owned())
        }
        _ => Ok(Layout { components: vec![component] }),
    }
}

/// Name of the target of a brick.
fn brick(host: &str, directory: &str, bricks: &[Target]) -> String {
    let exact = format!("{host}:{directory}");
    if bricks.iter().any(|target| target.name == exact) {
        return exact;
    }
    let mut same = bricks
        .iter()
        .filter(|target| target.name.split_once(':').is_some_and(|(_, known)| known == directory));
    match (same.next(), same.next()) {
        (Some(only), None) => only.name.clone(),
        _ => exact,
    }
}

/// What a volume is, as `gluster volume info VOLUME --xml` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Type, such as `Distribute` or `Disperse`.
    pub kind: String,
    /// Status, such as `Started`.
    pub status: String,
    /// Bricks in the order of the volume.
    pub bricks: Vec<String>,
    /// Options that were set.
    pub options: Vec<(String, String)>,
}

impl Volume {
    /// True if the files of the volume are cut into shards.
    pub fn is_sharded(&self) -> bool {
        self.options.iter().any(|(name, value)| name == "features.shard" && is_on(value))
    }

    /// True if the bricks record changes.
    pub fn has_changelog(&self) -> bool {
        self.options.iter().any(|(name, value)| name == "changelog.changelog" && is_on(value))
    }
}

fn is_on(value: &str) -> bool {
    ["on", "enable", "yes", "true", "1"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Decodes `gluster volume info VOLUME --xml`.
///
/// # Errors
/// What is wrong with it.
pub fn volume_info(text: &str, name: &str) -> Result<Volume, String> {
    let document = answer(text)?;
    let volumes = document.descendant(&["volInfo", "volumes"]).ok_or("volume info: no volumes")?;
    let volume = volumes.children.iter().find(|volume| volume.text_of("name") == Some(name));
    let volume = volume.ok_or_else(|| format!("volume info: no volume {name}"))?;
    let text_of = |name: &str| volume.text_of(name).unwrap_or("unknown").to_owned();
    let bricks = volume.child("bricks").map_or(&[][..], |bricks| &bricks.children);
    let options = volume.child("options").map_or(&[][..], |options| &options.children);
    Ok(Volume {
        kind: text_of("typeStr"),
        status: text_of("statusStr"),
        bricks: bricks.iter().filter_map(|brick| brick.text_of("name").map(str::to_owned)).collect(),
        options: options
            .iter()
            .filter_map(|option| {
                Some((option.text_of("name")?.to_owned(), option.text_of("value")?.to_owned()))
            })
            .collect(),
    })
}

/// Decodes `gluster volume status VOLUME --xml`. Other processes than bricks are left out.
///
/// # Errors
/// What is wrong with it.
pub fn volume_status(text: &str, name: &str) -> Result<Vec<Target>, String> {
    let document = answer(text)?;
    let volumes = document.descendant(&["volStatus", "volumes"]).ok_or("volume status: no volumes")?;
    let volume = volumes.children.iter().find(|volume| volume.text_of("volName") == Some(name));
    let volume = volume.ok_or_else(|| format!("volume status: no volume {name}"))?;
    let nodes = volume.children.iter().filter(|child| child.name == "node");
    let bricks = nodes.filter_map(|node| {
        let (host, path) = (node.text_of("hostname")?, node.text_of("path")?);
        // Self-heal daemons and the like have a name instead of a host.
        path.starts_with('/').then(|| Target {
            name: format!("{host}:{path}"),
            domain: Some(host.to_owned()),
            state: match node.text_of("status") {
                Some("1") => State::Online,
                Some("0") => State::Offline,
                _ => State::Unknown,
            },
            labels: Vec::new(),
            used: None,
            total: node.text_of("sizeTotal").and_then(number),
        })
    });
    let bricks: Vec<Target> = bricks.collect();
    if bricks.is_empty() { Err("volume status: no bricks".to_owned()) } else { Ok(bricks) }
}

/// An answer of `gluster --xml`; its own error if it has one.
fn answer(text: &str) -> Result<Element, String> {
    let document = xml::decode(text).map_err(|why| format!("gluster printed no XML: {why}"))?;
    match document.text_of("opRet") {
        Some("0") => Ok(document),
        Some(_) => {
            Err(format!("gluster: {}", document.text_of("opErrstr").unwrap_or("failed without a reason")))
        }
        None => Err("gluster printed XML without a result".to_owned()),
    }
}

#[cfg(test)]
mod tests;
