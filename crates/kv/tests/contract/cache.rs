//! The cache under test, and its daemon on a thread inside the server's namespace.

use super::lab::{PORT, Server};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tidemill_kv::kernel::{self, Mode, Options};

/// What the daemon is to do at its end.
const RUN: u8 = 0;
const DETACH: u8 = 1;
/// Programs and maps stay, as when the process is killed or replaced.
const LEAVE: u8 = 2;

/// What is asked of the daemon's thread.
type Question = Sender<Vec<(&'static str, u64)>>;

pub(crate) struct Cache {
    stop: Arc<AtomicU8>,
    /// While set the daemon does nothing: it hangs.
    pub(crate) hangs: Arc<AtomicBool>,
    questions: Sender<Question>,
    thread: Option<JoinHandle<()>>,
}

/// Options for a server's interfaces; a name that no other process has.
pub(crate) fn options(interfaces: &[&str]) -> Options {
    let mut options = Options::new(interfaces, 0x5eed);
    options.memcached = SocketAddr::from(([127, 0, 0, 1], PORT));
    options.name = format!("kv-test-p{}", std::process::id());
    options.memory = 8 << 20;
    // Other ends of cables have programs.
    options.mode = Mode::Native;
    // On a busy machine memcached waits for a processor; not as long as this, or it would be lost time for every test.
    options.settle = Duration::from_millis(400);
    options
}

/// Programs and maps are pinned where every system has a place for that; a container may have none.
fn have_a_place_for_pins() {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    if !mounts.lines().any(|line| line.contains(" /sys/fs/bpf bpf ")) {
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status();
        assert!(mounted.is_ok_and(|status| status.success()), "mount -t bpf bpf /sys/fs/bpf");
    }
}

impl Cache {
    pub(crate) fn attach(server: &Server, interfaces: &[&str]) -> Self {
        Cache::with(server, &options(interfaces))
    }

    pub(crate) fn with(server: &Server, options: &Options) -> Self {
        have_a_place_for_pins();
        let stop = Arc::new(AtomicU8::new(RUN));
        let hangs = Arc::new(AtomicBool::new(false));
        let (questions, asked) = channel();
        let (ready, started) = channel();
        let (stopped, hung, options) = (stop.clone(), hangs.clone(), options.clone());
        let inside = server.net.enter(|| File::open("/proc/thread-self/ns/net").unwrap());
        let thread = std::thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(inside.as_fd(), kind).unwrap();
            let mut cache = kernel::Cache::attach(&options).unwrap_or_else(|error| panic!("attach: {error}"));
            let _ = ready.send(());
            serve(&mut cache, &stopped, &hung, &asked);
            if stopped.load(Ordering::Relaxed) == LEAVE {
                cache.leave();
            }
        });
        let cache = Cache { stop, hangs, questions, thread: Some(thread) };
        started.recv().expect("the cache is attached");
        cache
    }

    fn end(&mut self, how: u8) {
        self.stop.store(how, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the daemon has failed");
        }
    }

    /// Takes it away.
    pub(crate) fn detach(mut self) {
        self.end(DETACH);
    }

    /// Ends the daemon, and leaves the programs.
    pub(crate) fn leave(mut self) {
        self.end(LEAVE);
    }

    /// What is counted, by name.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let (answer, counts) = channel();
        drop(self.questions.send(answer));
        counts.recv_timeout(Duration::from_secs(5)).unwrap_or_default()
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        let counts = self.counts();
        let found = counts.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("nothing is counted as {name}: {counts:?}")).1
    }

    pub(crate) fn describe(&self) -> String {
        let counts = self.counts();
        let lines = counts.iter().filter(|(_, count)| *count > 0);
        lines.map(|(name, count)| format!("{name} {count}\n")).collect()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.hangs.store(false, Ordering::Relaxed);
        self.end(DETACH);
    }
}

fn serve(cache: &mut kernel::Cache, stop: &AtomicU8, hangs: &AtomicBool, asked: &Receiver<Question>) {
    while stop.load(Ordering::Relaxed) == RUN {
        if let Ok(answer) = asked.try_recv() {
            let mut counts = cache.counts();
            counts.push(("blind-now", cache.blind()));
            drop(answer.send(counts));
        }
        let busy = !hangs.load(Ordering::Relaxed)
            && cache.round().unwrap_or_else(|error| panic!("the daemon: {error}"));
        if !busy {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
