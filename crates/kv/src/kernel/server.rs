//! The memcached behind the cache: which process it is, and whether it is that one who answers.

use super::ask::Asker;
use super::cache::system;
use super::layout::Tuple;
use super::machine;
use super::{KvError, Options};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The memcached behind it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pid: u32,
    pub(super) watch: OwnedFd,
    /// Sockets on the port that are known to be its.
    pub(super) known: HashSet<u64>,
    /// It takes datagrams by these sockets.
    pub(super) udp: Vec<u64>,
    pub(super) asker: Option<Asker>,
    /// Our own connection's ends, wherever these addresses are known.
    pub(super) own: Option<Tuple>,
    /// That it is this process who answers is seen.
    pub(super) is_asked: bool,
    /// That it is another is said.
    pub(super) is_told: bool,
    version: String,
}

/// What the tests stand for.
const TESTED: &str = "1.6.18";

impl Server {
    /// What there is to say of a version that was not tested.
    pub(super) fn untested(&self) -> Option<String> {
        let text = || {
            format!(
                "memcached says that it is {}; tested is {TESTED}: how others read what is not strictly right, and count time, was not compared",
                self.version
            )
        };
        (self.version != TESTED).then(text)
    }

    /// What there is to say of ways to it that no interface has.
    pub(super) fn unseen(&self) -> Option<String> {
        let sockets = machine::unix_sockets(self.pid);
        (!sockets.is_empty())
            .then(|| format!("what reaches memcached by {} cannot be seen", sockets.join(", ")))
    }
}

pub(super) fn own(asker: &Asker) -> Option<Tuple> {
    let (local, peer) = asker.ends().ok()?;
    Some(machine::tuple((machine::words(local.ip()), local.port()), machine::words(peer.ip()), 0))
}

/// Whether a process is at the other end of a connection that it has answered on.
pub(super) fn is_held(asker: &Asker, pid: u32) -> bool {
    let Ok((ours, theirs)) = asker.ends() else { return false };
    // The kernel's list may lack one while others come and go.
    (0..3).any(|_| machine::other_end(ours, theirs).is_some_and(|socket| machine::holds(pid, &[socket])))
}

/// Whether this is a memcached that can be asked for values and their ends.
fn is_known(version: Result<String, String>, at: SocketAddr) -> Result<String, KvError> {
    let version = match version {
        Ok(version) => version,
        Err(said) => {
            let text = format!(
                "what listens at {at} is no memcached that lets us ask: to \"version\" it says {said:?}"
            );
            return Err(KvError::Refused(text));
        }
    };
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(1), Some(6)) {
        let text = format!(
            "memcached {version} has no meta commands, by which values and their ends are asked for: 1.6 or later is needed"
        );
        return Err(KvError::Refused(text));
    }
    Ok(version)
}

/// The memcached on the port, and which one it is.
pub(super) fn find(options: &Options) -> Result<(Server, u64), KvError> {
    let port = options.port;
    let (tcp, udp) = machine::listeners(port);
    if tcp.is_empty() {
        let text = match machine::memcached_by_unix_sockets() {
            Some((pid, paths)) => format!(
                "no memcached listens on TCP port {port} here; one (process {pid}) listens at {}, where what reaches it cannot be seen: start it with ports, and without -s (memcached -p {port} -U {port}), or say --port",
                paths.join(", ")
            ),
            None => format!(
                "no memcached listens on TCP port {port} here: start it (memcached -p {port} -U {port}), or say --port"
            ),
        };
        return Err(KvError::Refused(text));
    }
    if udp.is_empty() {
        let text = format!(
            "memcached has no UDP port {port}: start it with -U {port} (only gets over UDP are served from here)"
        );
        return Err(KvError::Refused(text));
    }
    let all = [&tcp[..], &udp].concat();
    let (pid, started) = match machine::holders(&all)[..] {
        [] => {
            let text = format!(
                "who listens on TCP port {port} cannot be seen: run as root, in the machine's own process namespace"
            );
            return Err(KvError::Refused(text));
        }
        [one] => one,
        [(one, _), (other, _), ..] => {
            let text = format!(
                "several processes listen on port {port} ({one}, {other}): a cache stands for one memcached; give the others another port"
            );
            return Err(KvError::Refused(text));
        }
    };
    if let Some(other) = machine::other_ports(pid, port).first() {
        let text = format!(
            "memcached (process {pid}) listens on TCP port {other} too, where its mutations are not seen: start it with one port"
        );
        return Err(KvError::Refused(text));
    }
    let watch = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let watch = watch.ok_or(rustix::io::Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let watch = watch.map_err(|error| system("cannot watch memcached")(error.into()))?;
    // Still the same, now that it is watched.
    let (tcp, udp_now) = machine::listeners(port);
    if machine::holders(&[&tcp[..], &udp_now].concat()) != [(pid, started)] || udp_now != udp {
        return Err(KvError::Refused("memcached is just being restarted: try again".to_owned()));
    }
    let silent = |error: std::io::Error| {
        KvError::Refused(format!(
            "memcached does not answer at {}: {error}: say --memcached ADDR:PORT",
            options.memcached
        ))
    };
    let asked = Asker::connect(options.memcached).and_then(|mut asker| Ok((asker.version()?, asker)));
    let (version, mut asker) = asked.map_err(silent)?;
    let version = is_known(version, options.memcached)?;
    if !is_held(&asker, pid) {
        let text = format!(
            "what answers at {} is not process {pid}, which has port {port}: its values would be another's: say the same port in --memcached and --port",
            options.memcached
        );
        return Err(KvError::Refused(text));
    }
    if let Some(protocol) = asker.protocol().map_err(silent)?.filter(|protocol| protocol != "auto-negotiate")
    {
        let text = format!(
            "memcached takes one protocol only (-B {protocol}), and the programs tell protocols by a connection's first byte: start it without -B"
        );
        return Err(KvError::Refused(text));
    }
    let own = own(&asker);
    let known = tcp.into_iter().chain(udp_now).collect();
    let server =
        Server { pid, watch, known, udp, asker: Some(asker), own, is_asked: true, is_told: false, version };
    Ok((server, started << 32 | u64::from(pid)))
}
