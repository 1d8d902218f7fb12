//! Network namespaces without names: one lives as long as a file descriptor names it, so nothing is left behind, however a command ends.

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

/// A network namespace.
pub(crate) struct Netns {
    /// For messages.
    pub(crate) name: &'static str,
    file: File,
}

impl Netns {
    pub(crate) fn new(name: &'static str) -> Result<Self> {
        // A helper makes it, and stays until we have it open.
        let mut helper = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("unshare (package util-linux)")?;
        let mut line = String::new();
        let read = helper.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        let file = File::open(format!("/proc/{}/ns/net", helper.id()));
        drop(helper.stdin.take());
        helper.wait()?;
        if !matches!(read, Some(Ok(1))) {
            bail!("no network namespace can be made: this needs root");
        }
        let own = Netns { name, file: file.context("the new network namespace")? };
        own.run("ip link set lo up")?;
        Ok(own)
    }

    /// As a path that programs take for a namespace.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// It, for [`move_in`].
    pub(crate) fn descriptor(&self) -> Result<File> {
        self.file.try_clone().with_context(|| format!("namespace {}", self.name))
    }

    /// Does something on a thread inside.
    pub(crate) fn enter<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R> {
        let inside = || -> Result<R> {
            move_in(&self.file)?;
            Ok(act())
        };
        let done = std::thread::scope(|scope| scope.spawn(inside).join());
        let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.with_context(|| format!("namespace {}", self.name))
    }

    /// Runs a command without spaces in its words; what it printed.
    pub(crate) fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        let output = self.enter(|| command.output())?.with_context(|| line.to_owned())?;
        if !output.status.success() {
            bail!("in {}: {line}: {}", self.name, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A socket inside.
    pub(crate) fn udp(&self, address: IpAddr, port: u16) -> Result<UdpSocket> {
        let at = SocketAddr::new(address, port);
        self.enter(|| UdpSocket::bind(at))?.with_context(|| format!("{}: {at}", self.name))
    }

    /// The number and the MAC address of an interface inside.
    pub(crate) fn device(&self, interface: &str) -> Result<(u32, [u8; 6])> {
        let device = self.enter(|| tidemill_port::device(interface))??;
        Ok((device.index, device.mac.0))
    }
}

/// Moves the calling thread into a namespace, for good.
pub(crate) fn move_in(inside: &File) -> Result<()> {
    move_into_link_name_space(inside.as_fd(), Some(LinkNameSpaceType::Network)).context("a network namespace")
}
