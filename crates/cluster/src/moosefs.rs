//! MooseFS 3 and 4: `mfsfileinfo`, `mfscli` and the address of the master.
//!
//! A file consists of chunks of 64 MiB, each with its copies on chunk servers. A target is a chunk server, named
//! `ADDRESS:PORT`.

use crate::layout::{Component, Layout, Placement, State, Target};
use crate::lines::number;

/// Bytes of a chunk.
pub const CHUNK: u64 = 64 << 20;

/// Chunks of a file at most: 2^31 by the index that MooseFS has.
const MAX_CHUNKS: u64 = 1 << 31;

/// Address and port of the master from the source of a mount: `mfs#HOST:PORT`, perhaps with a directory after it.
pub fn master(source: &str) -> Option<(&str, u16)> {
    let address = source.strip_prefix("mfs#")?;
    let address = address.split('/').next()?;
    let (host, port) = address.rsplit_once(':')?;
    let named = !host.is_empty() && !host.starts_with('-') && !host.contains(char::is_whitespace);
    named.then_some(())?;
    Some((host, u16::try_from(number(port)?).ok()?))
}

/// Decodes what `mfsfileinfo FILE` prints. Versions 3 and 4 differ in where the state of a copy stands:
///
/// ```text
/// chunk 0: 0000000000000001_00000001 / (id:1 ver:1)
///     copy 1: 10.77.0.1:19504 (status:VALID)
/// chunk 0: 0000000000000001_00000001 / (id:1 ver:1) ; mtime:1794954400 (2026-11-17 22:26:40)
///     copy 1: 10.77.0.1:19503 ; status:VALID
/// ```
///
/// # Errors
/// The first line that is not understood. Chunks without a valid copy are placed nowhere.
pub fn layout(text: &str) -> Result<Layout, String> {
    let mut components: Vec<Component> = Vec::new();
    let mut is_empty = false;
    for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        let unread = || format!("mfsfileinfo: cannot read the line {:?}", shortened(line));
        let trimmed = line.trim();
        if let Some(rest) = trimmed.strip_prefix("chunk ") {
            let (index, rest) = rest.split_once(':').ok_or_else(unread)?;
            let index = number(index).filter(|index| *index < MAX_CHUNKS).ok_or_else(unread)?;
            let mut component = Component::whole(index * CHUNK, Some((index + 1) * CHUNK));
            let name = rest.trim();
            if name == "empty" {
                component.flags.push("empty".to_owned());
            } else {
                let name = name.split_whitespace().next().ok_or_else(unread)?;
                component.flags.push(format!("chunk {}", shortened(name)));
            }
            components.push(component);
        } else if let Some(rest) = trimmed.strip_prefix("copy ") {
            let (number_of, rest) = rest.split_once(':').ok_or_else(unread)?;
            let copy = number(number_of)
                .and_then(|copy| u32::try_from(copy.checked_sub(1)?).ok())
                .ok_or_else(unread)?;
            let component = components.last_mut().ok_or_else(unread)?;
            let rest = rest.trim();
            let target =
                rest.split([' ', ';']).next().filter(|target| is_address(target)).ok_or_else(unread)?;
            let state =
                rest.split_once("status:").map(|(_, state)| state.trim_end_matches(')').trim().to_owned());
            component.placements.push(Placement {
                column: 0,
                copy,
                target: Some(target.to_owned()),
                object: None,
                state: state.map(|state| shortened(&state).to_owned()),
            });
        } else if trimmed.starts_with("no chunks") {
            is_empty = true;
        } else if trimmed.starts_with("no valid copies") {
            components.last_mut().ok_or_else(unread)?.flags.push("no valid copies".to_owned());
        } else {
            return Err(unread());
        }
    }
    match components.is_empty() && !is_empty {
        true => Err("mfsfileinfo printed no chunks".to_owned()),
        false => Ok(Layout { components }),
    }
}

/// True for `ADDRESS:PORT`, also for what stands for a server that is not connected.
fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && number(port).is_some())
}

/// True if the master counts the copy as readable.
pub fn is_valid(placement: &Placement) -> bool {
    placement.state.as_deref() == Some("VALID")
}

/// Decodes what `mfscli -p -s'|' -SCS` prints:
///
/// ```text
/// chunk servers:|10.77.0.1|19501|1|A|3.0.117|0|maintenance_off|2|51308756992|97572749312|-|0|0|0
/// Disconnected chunk servers:|10.77.0.1|19502|2|maintenance_off
/// ```
///
/// Other sections are passed over. The state of a line that is too short is unknown.
///
/// # Errors
/// No chunk server is listed.
pub fn targets(text: &str) -> Result<Vec<Target>, String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let connected = match cells[0].trim_end_matches(':').to_ascii_lowercase().as_str() {
            "chunk servers" => true,
            "disconnected chunk servers" => false,
            _ => continue,
        };
        let (Some(&host), Some(&port)) = (cells.get(1), cells.get(2)) else { continue };
        if host.is_empty() || number(port).is_none() {
            continue;
        }
        // Labels are letters; `-` stands for none.
        let labels = cells.get(4).filter(|_| connected).copied().unwrap_or_default();
        let labels: Vec<String> = labels
            .split(',')
            .map(str::trim)
            .filter(|label| label.len() == 1 && label.starts_with(|letter: char| letter.is_ascii_uppercase()))
            .map(str::to_owned)
            .collect();
        let in_maintenance = cells.contains(&"maintenance_on");
        let state = match (connected, in_maintenance, cells.len() >= 11) {
            (false, ..) => State::Offline,
            (true, true, _) => State::Restricted,
            (true, false, true) => State::Online,
            (true, false, false) => State::Unknown,
        };
        let count = |at: usize| cells.get(at).filter(|_| connected).and_then(|cell| number(cell));
        found.push(Target {
            name: format!("{}:{port}", shortened(host)),
            domain: Some(shortened(host).to_owned()),
            state,
            labels,
            used: count(9),
            total: count(10),
        });
    }
    if found.is_empty() { Err("mfscli listed no chunk servers".to_owned()) } else { Ok(found) }
}

/// At most 80 characters.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(80).map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests;
