//! A machine in the middle of the cable, where `role = "kvcache"` runs over AF_XDP.
//!
//! ```text
//!  client ---- clients [tidemill run: L0, L1] servers ---- server
//! ```

use super::lab::{PORT, SERVER};
use crate::netns::Netns;
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::kv::{Counters, path};

/// Its ends of the two cables.
pub(super) const ENDS: [&str; 2] = ["clients", "servers"];

pub(super) struct Middle {
    pub(super) net: Netns,
    child: Option<Child>,
    folder: tempfile::TempDir,
    control: Client,
}

impl Middle {
    /// The machine; nothing runs there yet.
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the configuration")?;
        let control = Client::new(&folder.path().join("kv.sock"))?;
        Ok(Middle { net: Netns::new("middle")?, child: None, folder, control })
    }

    /// Starts the role on this processor, with so much memory for values.
    pub(super) fn start(&mut self, processor: usize, memory: u64) -> Result<()> {
        let port = |name: &str| {
            format!(
                "[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"{name}\"\npromiscuous = true\n"
            )
        };
        let config = format!(
            "version = 1\nrole = \"kvcache\"\n[run]\nidle_us = 0\n[control]\nsocket = \"kv.sock\"\n[kvcache]\naddresses = [\"{SERVER}\"]\nport = {PORT}\n\
            allow = [\"10.3.0.0/16\"]\nrate = {}\nmisses = 1\n[kvcache.l1]\nmemory_mib = {}\n{}{}",
            u32::MAX,
            (memory >> 20).max(1),
            port(ENDS[0]),
            port(ENDS[1])
        );
        std::fs::write(self.folder.path().join("kv.toml"), config)?;
        let said = self.folder.path().join("said");
        let file = File::create(&said).with_context(|| said.display().to_string())?;
        let own = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new("taskset");
        command.arg("-c").arg(processor.to_string()).arg(own).args(["run", "kv.toml", "--json"]);
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        self.child = Some(self.net.enter(|| command.spawn())?.context("taskset (package util-linux)")?);
        let started = Instant::now();
        while self.counts().is_none() {
            if started.elapsed() > Duration::from_secs(10) {
                bail!("role kvcache does not run: {}", std::fs::read_to_string(&said).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Gets answered from L0 or L1, and gets for keys that were not there; `None` while it does not run.
    pub(super) fn counts(&self) -> Option<(u64, u64)> {
        let counters: Counters = self.control.get(path::COUNTERS, &()).ok()?;
        let count = |name: &str| counters.counters.get(name).copied().unwrap_or(0);
        Some((count("hit-l0") + count("hit-l1"), count("get-miss")))
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
