//! The Gatekeeper and the Grantor: their configurations, their processes, and a folder for both.
//!
//! A process ends with the one that started it, however that ends (`setpriv --pdeathsig`); a folder that a killed scenario has left is removed by the next.

use super::file::Read;
use super::lab::BACK_MTU;
use crate::netns::Netns;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::{Drops, path};

const PREFIX: &str = "tidemill-scenario-";

/// A folder that goes when this is dropped.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// Makes one, and removes those whose scenario is gone.
    fn new() -> Result<Folder> {
        let all = std::env::temp_dir();
        for entry in std::fs::read_dir(&all).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let left = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
            // Of our own number is one that has had it before us.
            let is_gone = |process: u32| {
                process == std::process::id() || !Path::new(&format!("/proc/{process}")).exists()
            };
            if left.is_some_and(is_gone) {
                // Nobody needs it; if it stays, nobody is harmed.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let path = all.join(format!("{PREFIX}{}", std::process::id()));
        // The key of both is in it: nobody else's business.
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| path.display().to_string())?;
        Ok(Folder(path))
    }

    /// One with the scenario's files in it.
    pub(super) fn of(read: &Read) -> Result<Folder> {
        let folder = Folder::new()?;
        for file in &read.scenario.files {
            let (from, name) = (read.base.join(file), file.file_name().unwrap_or_default());
            std::fs::copy(&from, folder.0.join(name)).with_context(|| from.display().to_string())?;
        }
        Ok(folder)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.0.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The texts of the two configurations.
pub(super) struct Configurations {
    head: [String; 2],
    gatekeeper: toml::Table,
    grantor: toml::Table,
}

fn strings(list: &[String]) -> toml::Value {
    toml::Value::Array(list.iter().cloned().map(toml::Value::String).collect())
}

impl Configurations {
    /// `secret`: of the key that both have.
    pub(super) fn new(read: &Read, secret: &[u8; 32]) -> Configurations {
        let (network, cpus) = (&read.scenario.network, &read.scenario.cpus);
        let hex = secret.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let keys = strings(&[format!("1 {hex}")]);
        let port = |name: &str, nets: &[super::file::Net; 2], host: u32, mtu: u16| {
            let kind = &network.port;
            let ring =
                if kind == "af_xdp" { format!("rx_ring = {}\n", network.rx_ring) } else { String::new() };
            let [v4, v6] = [0, 1].map(|v6| format!("{}/{}", nets[v6].host(host), nets[v6].1));
            format!(
                "[[port]]\nname = \"{name}\"\nkind = \"{kind}\"\ninterface = \"tm-{name}\"\n{ring}\
                 [[interface]]\nport = \"{name}\"\nmtu = {mtu}\naddresses = [\"{v4}\", \"{v6}\"]\n"
            )
        };
        let route = |to: &str, nets: &[super::file::Net; 2], host: u32, v6: usize| {
            format!("[[route]]\nprefix = \"{to}\"\nvia = \"{}\"\n", nets[v6].host(host))
        };
        // What waits at two ports, in both directions, and inside.
        let frames = (4 * network.rx_ring).max(8192) + 8192;
        let head = |role: &str, cpu: usize, idle: &str| {
            format!(
                "version = 1\nrole = \"{role}\"\n[run]\ncpus = [{cpu}]\n{idle}[memory]\nframes = {frames}\n[control]\nsocket = \"{role}.sock\"\n"
            )
        };
        let mut gatekeeper = head("gatekeeper", cpus.gatekeeper, "");
        gatekeeper += &port("wan", &network.front, 1, 1500);
        gatekeeper += &port("lan", &network.back, 1, BACK_MTU);
        // It has its processor for itself no more than the others here: it sleeps when there is nothing to do.
        let mut grantor = head("grantor", cpus.grantor, "idle_us = 0\n");
        grantor += &port("up", &network.back, 2, BACK_MTU);
        grantor += &port("down", &network.server, 1, 1500);
        let everything = ["0.0.0.0/0", "::/0"];
        for v6 in [0, 1] {
            gatekeeper += &route(everything[v6], &network.front, 2, v6);
            gatekeeper += &route(&network.server[v6].to_string(), &network.back, 2, v6);
            grantor += &route(everything[v6], &network.back, 1, v6);
        }
        let mut sections = (read.gatekeeper.clone(), read.grantor.clone());
        let policies = [0, 1].map(|v6| {
            let mut policy = toml::Table::new();
            policy.insert("prefix".into(), network.server[v6].to_string().into());
            policy.insert("action".into(), "grantor".into());
            policy.insert("grantors".into(), strings(&[network.back[v6].host(2).to_string()]));
            toml::Value::Table(policy)
        });
        sections.0.insert("front".into(), strings(&["wan".into()]));
        sections.0.insert("keys".into(), keys.clone());
        sections.0.insert("policy".into(), toml::Value::Array(policies.into()));
        let asks =
            [0, 1].map(|v6| format!("{}/{}", network.back[v6].host(1), if v6 == 0 { 32 } else { 128 }));
        sections.1.insert("gatekeepers".into(), strings(&asks));
        sections.1.insert("keys".into(), keys);
        Configurations { head: [gatekeeper, grantor], gatekeeper: sections.0, grantor: sections.1 }
    }

    pub(super) fn gatekeeper(&self) -> String {
        let section = toml::Table::from_iter([("gatekeeper".into(), self.gatekeeper.clone().into())]);
        format!("{}{section}", self.head[0])
    }

    /// The Grantor's; with another policy if one is named.
    pub(super) fn grantor(&self, policy: Option<&str>) -> String {
        let mut section = self.grantor.clone();
        let own = section.entry("policy").or_insert_with(|| toml::Table::new().into());
        if let (Some(file), Some(own)) = (policy, own.as_table_mut()) {
            own.remove("name");
            own.insert("file".into(), file.into());
        }
        let section = toml::Table::from_iter([("grantor".into(), section.into())]);
        format!("{}{section}", self.head[1])
    }
}

/// A tidemill at work.
pub(super) struct Tidemill {
    name: &'static str,
    pub(super) child: Child,
    folder: PathBuf,
    pub(super) control: Client,
}

/// Where the kernel shares processors between sessions first (autogroups), priorities count within one only: this session comes before others.
fn apart(process: u32) {
    // Without autogroups there is no such file, and no need of it.
    let begun = Instant::now();
    let path = format!("/proc/{process}/autogroup");
    let own = std::fs::read_to_string("/proc/self/autogroup").unwrap_or_default();
    while begun.elapsed() < Duration::from_secs(2) {
        match std::fs::read_to_string(&path) {
            // It has not come to its own session yet.
            Ok(text) if text == own => std::thread::sleep(Duration::from_millis(5)),
            Ok(_) => {
                let _ = std::fs::write(&path, "-15");
                return;
            }
            Err(_) => return,
        }
    }
}

impl Tidemill {
    /// Starts the configuration NAME.toml of a folder, and waits until it answers.
    pub(super) fn start(folder: &Path, name: &'static str, inside: &Netns) -> Result<Tidemill> {
        let log = folder.join(format!("{name}.log"));
        let file = |path: &Path| File::create(path).with_context(|| path.display().to_string());
        let mut command = Command::new("setpriv");
        // A session of its own, for `apart`.
        command.args(["--pdeathsig", "KILL", "setsid", "nsenter"]).arg(format!("--net={}", inside.path()));
        command.arg(std::env::current_exe()?).args(["run", &format!("{name}.toml"), "--json"]);
        command.current_dir(folder).stdin(Stdio::null());
        command.stdout(file(&folder.join(format!("{name}.out")))?).stderr(file(&log)?);
        let child = command.spawn().context("setpriv, nsenter (package util-linux)")?;
        apart(child.id());
        let control = Client::new(&folder.join(format!("{name}.sock")))?;
        let mut own = Tidemill { name, child, folder: folder.to_owned(), control };
        let begun = Instant::now();
        while own.control.get::<Drops>(path::DROPS, &()).is_err() {
            own.alive()?;
            if begun.elapsed() > Duration::from_secs(60) {
                bail!("the {name} does not answer: {}", own.said());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(own)
    }

    /// Fails if it has ended.
    pub(super) fn alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the {} ended: {status}: {}", self.name, self.said());
        }
        Ok(())
    }

    fn said(&self) -> String {
        let mut text = String::new();
        let log = File::open(self.folder.join(format!("{}.log", self.name)));
        let _ = log.and_then(|mut log| log.read_to_string(&mut text));
        text.trim().replace('\n', "; ")
    }

    /// Ends it in good order. It fails if its books do not balance.
    pub(super) fn end(&mut self) -> Result<()> {
        let done: Result<tidemill_control::schema::Done, _> = self.control.post(path::STOP, &());
        done.with_context(|| format!("the {}", self.name))?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the {} ended: {status}: {}", self.name, self.said()),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        bail!("the {} does not end: {}", self.name, self.said())
    }
}

impl Drop for Tidemill {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container, say, each run may have the same number.
    #[test]
    fn a_folder_that_one_of_our_number_has_left_is_removed() {
        let path = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("left"), "").unwrap();
        let folder = Folder::new().unwrap();
        assert_eq!(folder.0, path);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        drop(folder);
        assert!(!path.exists());
    }
}
