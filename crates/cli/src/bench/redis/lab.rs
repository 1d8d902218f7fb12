//! Two machines and a cable: a client's namespace, and one with a Redis and the front before it.
//!
//! ```text
//!  processor 0: the client                    the last processor: the server
//!  [client, its end of the cable] 10.3.0.1 ---- 10.3.0.2 [its end of the cable, network stack, :6380 front -> :6379 Redis]
//! ```
//! Each end receives on a thread of its own (threaded NAPI), as in `bench kv`, and for its reason: the kernel would do the receiver's work on the sender's processor.

use super::super::cable::{FIRST, last, on, receive};
use crate::netns::Netns;
use anyhow::{Context as _, Result, bail};
use rustix::thread::sched_setaffinity;
use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidemill_control::Client;
use tidemill_control::schema::kv::{Counters, path};

/// The ports of the server.
pub(super) const REDIS: u16 = 6379;
pub(super) const FRONT: u16 = 6380;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);
/// The ends of the cable.
const ENDS: [&str; 2] = ["asker", "redis"];
/// For a process to be ready, for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whatever happens, it does not go on.
struct Process {
    name: &'static str,
    child: Child,
    /// What it says.
    said: PathBuf,
}

impl Process {
    /// Starts it on the server's processor.
    fn start(server: &Netns, folder: &Path, name: &'static str, mut command: Command) -> Result<Self> {
        let said = folder.join(name);
        let file = File::create(&said).with_context(|| said.display().to_string())?;
        command.current_dir(folder).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        // It begins where the thread is that starts it.
        let started = server.enter(|| -> Result<Child> {
            sched_setaffinity(None, &on(last()))?;
            Ok(command.spawn()?)
        })?;
        Ok(Process { name, child: started.with_context(|| name.to_owned())?, said })
    }

    fn wait(&mut self, is_ready: &dyn Fn() -> bool) -> Result<()> {
        let started = Instant::now();
        while !is_ready() {
            if started.elapsed() > PATIENCE || self.child.try_wait()?.is_some() {
                let said = std::fs::read_to_string(&self.said).unwrap_or_default();
                bail!("{} does not run: {}", self.name, said.trim());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole of it.
pub(super) struct Lab {
    _front: Process,
    _redis: Process,
    control: Client,
    /// Connections to the front, until now.
    opened: Cell<u64>,
    client: Netns,
    server: Netns,
    _folder: TempDir,
}

fn connect(client: &Netns, port: u16) -> Result<TcpStream> {
    let stream = client.enter(|| TcpStream::connect((SERVER, port)))??;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

impl Lab {
    /// With so much memory for the front's values.
    pub(super) fn new(memory_mib: u32) -> Result<Self> {
        if last() == FIRST {
            bail!("bench redis needs two processors: one for the client, one for the server");
        }
        let mut version = Command::new("redis-server");
        version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if !version.status().is_ok_and(|status| status.success()) {
            bail!("redis-server cannot be started: install the package redis-server");
        }
        let folder = tempfile::tempdir().context("a folder for Redis")?;
        let (client, server) = (Netns::new("client")?, Netns::new("server")?);
        let [near, far] = ENDS;
        client.run(&format!("ip link add name {near} type veth peer name {far} netns {}", server.path()))?;
        sched_setaffinity(None, &on(FIRST))?;
        for (net, end, address) in [(&client, near, 1), (&server, far, 2)] {
            net.run(&format!("ip addr add 10.3.0.{address}/16 dev {end}"))?;
            // With GRO an end has a queue that a thread can work at; what a sender leaves to a card (TSO, which needs its checksums) would go past that queue.
            net.run(&format!("ethtool -K {end} tx off gro on"))?;
            net.run(&format!("ip link set {end} up"))?;
        }
        let mut command = Command::new("redis-server");
        command.args(["--port", &REDIS.to_string(), "--bind", &SERVER.to_string()]);
        command.args(["--protected-mode", "no", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
        let mut redis = Process::start(&server, folder.path(), "redis-server", command)?;
        redis.wait(&|| connect(&client, REDIS).is_ok())?;
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.args(["kv", "redis", "--socket", "kv.sock", "--memory", &memory_mib.to_string()]);
        // Any value has room; and a machine that stands for a second does not make all of them void.
        command.args(["--value-max", "1048576", "--lease", "5000"]);
        let [listen, behind] = [FRONT, REDIS].map(|port| format!("{SERVER}:{port}"));
        command.args(["--listen", &listen, "--redis", &behind]);
        let control = Client::new(&folder.path().join("kv.sock"))?;
        let mut front = Process::start(&server, folder.path(), "tidemill kv redis", command)?;
        front.wait(&|| counters(&control).is_ok_and(|all| all.counters.get("sure") == Some(&1)))?;
        let opened = Cell::new(0);
        let lab = Lab { _front: front, _redis: redis, control, opened, client, server, _folder: folder };
        lab.apart(true)?;
        Ok(lab)
    }

    /// A connection to one of the server's ports.
    pub(super) fn connect(&self, port: u16) -> Result<TcpStream> {
        let stream = connect(&self.client, port)?;
        self.opened.set(self.opened.get() + u64::from(port == FRONT));
        Ok(stream)
    }

    /// Whether fields of Redis' hashes may end by themselves (7.4 and later): then the front keeps no hashes.
    pub(super) fn fields_end(&self) -> Result<bool> {
        let mut stream = connect(&self.client, REDIS)?;
        stream.write_all(b"*3\r\n$7\r\nCOMMAND\r\n$4\r\nINFO\r\n$8\r\nhpexpire\r\n")?;
        let mut head = [0; 6];
        stream.read_exact(&mut head).context("what Redis says of HPEXPIRE")?;
        Ok(is_known(head))
    }

    /// Whether each end receives on a thread and a processor of its own. At a low rate a processor that sleeps would have to be woken for that, which takes longer
    /// than all the rest.
    pub(super) fn apart(&self, apart: bool) -> Result<()> {
        receive(&self.client, ENDS[0], apart.then_some(FIRST))?;
        receive(&self.server, ENDS[1], apart.then(last))
    }

    /// Requests that the front has answered by itself, until now.
    pub(super) fn hits(&self) -> Result<u64> {
        // It shows its counters now and then. Once it shows one more client, it shows all that was before.
        let _last = self.connect(FRONT)?;
        let started = Instant::now();
        loop {
            let all = counters(&self.control)?.counters;
            if all.get("connections-opened").is_some_and(|opened| *opened >= self.opened.get()) {
                return Ok(all
                    .iter()
                    .filter(|(name, _)| name.starts_with("hit-"))
                    .map(|(_, count)| count)
                    .sum());
            }
            if started.elapsed() > PATIENCE {
                bail!("the front does not count any more");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Whether a command is there, by the beginning of what `COMMAND INFO` says of it: a list of its properties, or nothing.
fn is_known(head: [u8; 6]) -> bool {
    matches!(head, [b'*', b'1', b'\r', b'\n', b'*', count] if count.is_ascii_digit())
}

fn counters(control: &Client) -> Result<Counters> {
    Ok(control.get(path::COUNTERS, &())?)
}

#[cfg(test)]
mod tests {
    use super::is_known;

    #[test]
    fn commands_are_known_by_what_redis_says_of_them() {
        // Redis 7 has ten properties of a command, and older ones have six.
        assert!(is_known(*b"*1\r\n*1") && is_known(*b"*1\r\n*6"));
        assert!(!is_known(*b"*1\r\n*-") && !is_known(*b"*1\r\n$-") && !is_known(*b"-ERR u"));
    }
}
