//! Capture files.

use super::{FaultSpec, OpenContext, one, one_f64};
use crate::{Pace, PcapPort, Playback, PortError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Receives from one capture file and sends into another.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PcapSpec {
    /// The port's name.
    pub name: String,
    /// The file to receive from: pcap or pcapng, plain or compressed (gz, xz, zst).
    #[serde(default)]
    pub input: Option<PathBuf>,
    /// The file to send into: pcapng by that ending, else pcap; compressed by a further `.gz`, `.xz`, `.zst`.
    #[serde(default)]
    pub output: Option<PathBuf>,
    /// How often the input is played; 0 is for ever.
    #[serde(default = "one")]
    pub repeat: u64,
    /// `flat` (as fast as possible) or `time` (at the capture's pace).
    #[serde(default)]
    pub pace: PaceSpec,
    /// With `pace = "time"`: how many times as fast.
    #[serde(default = "one_f64")]
    pub speed: f64,
    /// The most packets to receive.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Read the whole input into memory first.
    #[serde(default)]
    pub preload: bool,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
}

/// When packets of a capture are received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaceSpec {
    /// As fast as possible.
    #[default]
    Flat,
    /// At the capture's pace.
    Time,
}

impl PcapSpec {
    /// How the input is played, if there is one.
    fn playback(&self, base: &Path) -> Option<Playback> {
        self.input.as_ref().map(|input| Playback {
            input: base.join(input),
            repeat: self.repeat,
            pace: match self.pace {
                PaceSpec::Flat => Pace::Flat,
                PaceSpec::Time => Pace::Time { speed: self.speed },
            },
            limit: self.limit,
            preload: self.preload,
        })
    }

    /// Finds what is wrong whatever the files are.
    pub(super) fn check(&self) -> Result<(), PortError> {
        if self.input.is_none() && self.output.is_none() {
            return Err(PortError::config(&self.name, "a pcap port needs an input, an output or both"));
        }
        self.playback(Path::new("")).iter().try_for_each(|input| input.check(&self.name))
    }

    pub(super) fn open(&self, queues: usize, context: &OpenContext<'_>) -> Result<Vec<PcapPort>, PortError> {
        self.check()?;
        let input = self.playback(context.base);
        let output = self.output.as_ref().map(|output| context.base.join(output));
        if let (Some(input), Some(output)) = (&input, &output)
            && same_file(&input.input, output)
        {
            return Err(PortError::config(&self.name, "input and output are the same file"));
        }
        PcapPort::open(&self.name, input.as_ref(), output.as_deref(), queues)
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
