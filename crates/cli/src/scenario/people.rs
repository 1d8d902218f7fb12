//! All who mean well, at work: a thread for each sender and receiver, in the namespace in which it belongs.

use super::file::{Network, Scenario};
use super::lab::Lab;
use super::load::{self, Clock, Family, LATER, NEWCOMERS, UDP};
use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Hosts of the client's network.
pub(super) const CLIENT: u32 = 2;
const TRANSFER: u32 = 3;
const DECLINED: u32 = 4;
const FALLEN: u32 = 5;
const FIRST_NEWCOMER: u32 = 256;
const FIRST_LATER: u32 = 32_768;

/// A newcomer says its first word again after so long, and then after twice as long each time: who waits longer is heard earlier, and one that
/// comes again within 0.55 s is no more urgent than one that comes for the first time.
const AGAIN: Duration = Duration::from_millis(600);
/// From one newcomer of a phase to the next, at most.
const APART: Duration = Duration::from_millis(100);

/// Everybody, and what they know.
pub(super) struct People {
    pub(super) families: [Arc<Family>; 2],
    pub(super) clock: Clock,
    threads: Vec<JoinHandle<Result<()>>>,
    stop: Arc<AtomicBool>,
}

impl People {
    /// Begins: the servers, streams (at rate 0), transfers (at rate 0).
    pub(super) fn begin(scenario: &Scenario, lab: &Lab) -> Result<People> {
        let families = [(); 2].map(|()| Arc::new(Family::new(scenario.newcomers())));
        let clock = Clock(Instant::now());
        let mut own = People { families, clock, threads: Vec::new(), stop: Arc::default() };
        let network = &scenario.network;
        for v6 in [0, 1] {
            let server = network.server[v6].host(2);
            let (socket, listener) = (lab.server.udp(server, UDP)?, load::listen(&lab.server, server)?);
            let family = own.families[v6].clone();
            own.spawn(move |stop| load::receive(&socket, &family, clock, stop));
            let family = own.families[v6].clone();
            own.spawn(move |stop| load::serve(&listener, &family, stop));
            for (who, (host, bytes)) in
                [(CLIENT, scenario.client.bytes), (DECLINED, 32), (FALLEN, 32)].into_iter().enumerate()
            {
                let socket = lab.client.udp(network.client[v6].host(host), 0)?;
                let family = own.families[v6].clone();
                let to = SocketAddr::new(server, UDP);
                own.spawn(move |stop| {
                    load::send(&socket, to, who as u32, bytes, family.streams()[who], stop)
                });
            }
            if scenario.client.tcp_kib_s > 0 {
                let (inside, from) = (lab.client.descriptor()?, network.client[v6].host(TRANSFER));
                let family = own.families[v6].clone();
                own.spawn(move |stop| {
                    crate::netns::move_in(&inside)?;
                    load::transfer(from, server, &family, stop);
                    Ok(())
                });
            }
        }
        Ok(own)
    }

    fn spawn(&mut self, work: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static) {
        let stop = self.stop.clone();
        self.threads.push(std::thread::spawn(move || work(&stop)));
    }

    /// Ends all of it.
    pub(super) fn end(&mut self) -> Result<()> {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    }
}

impl Drop for People {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The priority of attacks, and of slow ones.
pub(super) const ATTACK: [i32; 2] = [0, 15];
/// The priority of everybody else, which is before other programs, too: a Gatekeeper has its processors for itself.
const OURS: i32 = -15;

/// Has the calling thread, and those and the processes that it makes, come before others.
pub(super) fn come_first() -> Result<()> {
    rustix::process::setpriority_process(None, OURS).context("the scenario's priority")
}

/// Has the calling thread, and those that it makes, run on one CPU.
pub(super) fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cpus.others = {cpu}: is there such a CPU?"))
}

/// Has those threads of a process that have no place of their own, as its workers have, run on one CPU.
pub(super) fn keep_on(process: u32, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
        let number = thread.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(thread) = number.and_then(Pid::from_raw) else { continue };
        // One that has just ended needs no place.
        if sched_getaffinity(Some(thread)).is_ok_and(|places| places.count() > 1) {
            let _ = sched_setaffinity(Some(thread), &set);
        }
    }
}

/// What a newcomer has done.
struct Newcomer {
    socket: UdpSocket,
    v6: usize,
    number: u32,
    first: u64,
    next: u64,
    wait: u64,
}

/// Newcomers of one phase, on a thread of their own.
pub(super) struct Newcomers(JoinHandle<Result<Vec<Option<u64>>>>);

impl Newcomers {
    /// Begins with those numbered from `from`, so many of each family, all of them in this time.
    pub(super) fn begin(
        people: &People,
        lab: &Lab,
        network: &Network,
        from: u32,
        count: u32,
        seconds: f64,
        stop: &Arc<AtomicBool>,
    ) -> Result<Newcomers> {
        // The last ones have time to ask a second time.
        let span = Duration::from_secs_f64((seconds - 1.2).max(seconds / 4.0));
        let apart = (span / count.max(1)).min(APART).as_nanos() as u64;
        let (clock, begun) = (people.clock, people.clock.now() + 50_000_000);
        let mut all = Vec::new();
        for number in from..from + count {
            for v6 in [0, 1] {
                let socket = lab.client.udp(network.client[v6].host(FIRST_NEWCOMER + number), 0)?;
                socket.connect(SocketAddr::new(network.server[v6].host(2), UDP))?;
                let next = begun + u64::from(number - from) * apart + v6 as u64 * apart / 2;
                all.push(Newcomer { socket, v6, number, first: 0, next, wait: AGAIN.as_nanos() as u64 });
            }
        }
        let (families, stop) = (people.families.clone(), stop.clone());
        Ok(Newcomers(std::thread::spawn(move || {
            let arrived = |one: &Newcomer| families[one.v6].newcomers[one.number as usize].load(Relaxed);
            while !stop.load(Relaxed) {
                for one in &mut all {
                    let now = clock.now();
                    if now >= one.next && arrived(one) == 0 {
                        if one.first == 0 {
                            one.first = now;
                        }
                        let _ = one.socket.send(&load::header(NEWCOMERS + one.number, 0));
                        one.next = now + one.wait;
                        one.wait *= 2;
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            let waited = |one: &Newcomer| match arrived(one) {
                0 => None,
                at => Some(at.saturating_sub(one.first)),
            };
            // Who had no chance to ask has not been heard either.
            Ok(all.iter().map(waited).collect())
        })))
    }

    /// How long each has waited, in ns; none: in vain. To be called when `stop` is set.
    pub(super) fn end(self) -> Result<Vec<Option<u64>>> {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Sends a datagram from another address each time, every 2 ms, of those whom only a later policy grants, until it is told to stop. `from`: of them all, the first that
/// has not been used.
pub(super) fn later(
    lab: &Lab,
    network: &Network,
    from: u32,
    stop: &Arc<AtomicBool>,
) -> Result<JoinHandle<Result<u32>>> {
    let (inside, stop) = (lab.client.descriptor()?, stop.clone());
    let (client, server) = (network.client, network.server);
    Ok(std::thread::spawn(move || {
        crate::netns::move_in(&inside)?;
        let mut used = 0;
        while !stop.load(Relaxed) {
            for v6 in [0, 1] {
                let address = client[v6].host(FIRST_LATER + (from + used) % 16_384);
                let socket = UdpSocket::bind(SocketAddr::new(address, 0))?;
                let _ = socket.send_to(&load::header(LATER, 0), SocketAddr::new(server[v6].host(2), UDP));
            }
            used += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(used)
    }))
}
