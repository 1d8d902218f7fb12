//! How large the maps are, by what the operator says, and whether what is pinned is of these sizes.

use super::layout::{LAYOUT, MOST_CONNECTIONS, WAYS, entry, state};
use super::look::{entries, is_cache};
use super::{KvError, Options};
use std::path::Path;
use std::sync::atomic::Ordering;
use tidemill_bpf::{Mapped, Pins};

pub(super) fn sets(memory: u64) -> u64 {
    let fit = memory / (entry::WORDS * 8 * WAYS) as u64;
    1 << fit.clamp(16, 1 << 18).ilog2()
}

/// How many entries maps have whose sizes are options.
pub(super) fn room(options: &Options) -> [(&'static str, u32); 4] {
    let sets = sets(options.memory);
    let slots = (sets * 16).clamp(1 << 12, 1 << 22) as u32;
    let sets = sets as u32;
    [
        ("kv_values", sets * WAYS as u32),
        ("kv_slots", slots),
        ("kv_conns", options.connections),
        ("kv_tags", sets),
    ]
}

pub(super) fn network_port(options: &Options) -> u64 {
    u64::from(u16::from_ne_bytes(options.port.to_be_bytes()))
}

/// Whether connections that are told apart have room in what is counted of each.
pub(super) fn holds(options: &Options) -> Result<(), KvError> {
    if (1..=MOST_CONNECTIONS).contains(&options.connections) {
        return Ok(());
    }
    let text = format!(
        "--connections {}: there is room for 1 to {MOST_CONNECTIONS} (so many writes as they may have unanswered are counted)",
        options.connections
    );
    Err(KvError::Refused(text))
}

/// The layout of maps that are pinned under a name and that these programs would misread.
fn other_layout(root: &Path, name: &str) -> Option<String> {
    let folders = std::fs::read_dir(root.join(name)).ok()?;
    folders.flatten().find_map(|folder| {
        let layout = folder.file_name().to_str()?.strip_prefix("layout-")?.to_owned();
        let is_empty = std::fs::read_dir(folder.path()).ok()?.next().is_none();
        (layout != LAYOUT.to_string() && !is_empty).then_some(layout)
    })
}

/// Whether there is something pinned that a process before has left. Refuses what is no cache, and one that is of another layout, in front of another port, or of
/// other sizes; nothing is changed.
pub(super) fn fits(options: &Options) -> Result<bool, KvError> {
    let (root, name) = (&options.pin_root, &options.name);
    if !is_cache(root, name) {
        let text = format!("what is pinned as {name:?} is no cache: take another --name");
        return Err(KvError::Refused(text));
    }
    let refused = |what: String| {
        let text = format!(
            "what is pinned as {name:?} {what}: detach it first (tidemill kv detach --name {name}), or take another --name"
        );
        Err(KvError::Refused(text))
    };
    if let Some(other) = other_layout(root, name) {
        return refused(format!(
            "was left by another version (its maps are of layout {other}, this one's of layout {LAYOUT})"
        ));
    }
    if !root.join(name).join(format!("layout-{LAYOUT}")).join("kv_state").exists() {
        return Ok(false);
    }
    let map = Mapped::of(&Pins::map(root, name, LAYOUT, "kv_state")?, state::WORDS)?;
    let before = map.words()[state::PORT].load(Ordering::SeqCst) & 0xffff;
    if before != 0 && before != network_port(options) {
        return refused(format!("stands in front of port {}", u16::from_be(before as u16)));
    }
    let [(values, wanted), _, (connections, most), _] = room(options);
    let there = entries(root, name, values)?;
    if there != wanted as usize {
        let mib = (there * entry::WORDS * 8).div_ceil(1 << 20);
        return refused(format!(
            "has other room for values than --memory {}: --memory {mib} fits",
            options.memory >> 20
        ));
    }
    let there = entries(root, name, connections)?;
    if there != most as usize {
        return refused(format!("has room for {there} connections: --connections {there} fits"));
    }
    Ok(true)
}

/// Whether what is pinned was left by a process that was killed while it took counts back: they are wrong for ever.
pub(super) fn is_broken(options: &Options) -> bool {
    Pins::map(&options.pin_root, &options.name, LAYOUT, "kv_state")
        .and_then(|map| Mapped::of(&map, state::WORDS))
        .is_ok_and(|map| map.words()[state::BROKEN].load(Ordering::SeqCst) != 0)
        // One that is alive is in the midst of it.
        && Pins::left(&options.pin_root)
            .is_ok_and(|left| left.iter().all(|left| left.name != options.name || left.process.is_none()))
}
