//! The file of rules that a configuration names. It is read apart from the control side, which waits for no disk and no pipe, and to a bound.

use crate::config::{SwitchError, SwitchSection};
use std::io;
use std::path::Path;

/// The rule of a switch that has no file of rules.
const BRIDGE: &str = "priority=0 actions=normal";

/// Bytes of text for groups and meters, whatever the room for rules.
const SHARED_BYTES: usize = 16 << 20;

/// A text of rules, groups and meters: all that a switch is to have.
#[derive(Debug, Clone)]
pub struct RulesText {
    /// Where it is from, for messages.
    pub(crate) name: String,
    pub(crate) text: Vec<u8>,
}

impl SwitchSection {
    /// Bytes that a text of rules may have: 256 for each rule that there can be, and 16 MiB for groups and meters.
    pub fn text_bytes(&self) -> usize {
        self.rules.saturating_mul(256).saturating_add(SHARED_BYTES)
    }

    /// Reads the rules that it names. What they say is looked at when a switch takes them.
    ///
    /// # Errors
    /// The file cannot be read, is none, or is longer than [`text_bytes`](Self::text_bytes).
    pub fn read_rules(&self) -> Result<RulesText, SwitchError> {
        let Some(path) = &self.flows else {
            return Ok(RulesText { name: "the rule of a bridge".into(), text: BRIDGE.into() });
        };
        let name = path.display().to_string();
        match read(path, self.text_bytes() as u64) {
            Ok(text) => Ok(RulesText { name, text }),
            Err(error) => Err(SwitchError::Read { name, error }),
        }
    }
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let data = std::fs::metadata(path)?;
    if data.is_dir() {
        return Err(io::Error::other("is a folder: give a file"));
    }
    if data.len() > most {
        let what = "256 for each rule that there can be, and 16 MiB for groups and meters";
        return Err(io::Error::other(format!(
            "longer than {most} bytes ({what}): give fewer, or raise switch.rules"
        )));
    }
    tidemill_archive::read_whole(path, most)
}
