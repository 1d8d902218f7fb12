//! The control side: checks the configuration, makes the cache, reads its numbers beside it.

use crate::cache::Cache;
use crate::config::KvcacheSection;
use crate::counters::{Board, Counter, Counters};
use crate::error::KvcacheError;
use crate::host::Host;
use crate::hot::HotKey;
use crate::settings::Settings;
use crossbeam_queue::ArrayQueue;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What the worker and the control side share.
pub(crate) struct Shared {
    /// Until its node is made.
    seat: Mutex<Option<Box<Cache>>>,
    /// Somebody wants to know the hottest keys.
    wanted: AtomicBool,
    hottest: ArrayQueue<Vec<HotKey>>,
    /// All that is kept is to be made void.
    flush: AtomicBool,
    /// The cache answers, if the host decides that.
    answers: AtomicBool,
}

impl Shared {
    pub(crate) fn take(&self) -> Option<Box<Cache>> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The worker's turn: does and tells what is wanted.
    pub(crate) fn serve(&self, cache: &mut Cache) {
        cache.shift_to(self.answers.load(Ordering::Relaxed));
        if self.flush.load(Ordering::Acquire) {
            cache.flush();
            self.flush.store(false, Ordering::Release);
        }
        if self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::AcqRel) {
            self.hottest.force_push(cache.hottest());
        }
    }
}

/// The control side of a cache. The worker never waits for it.
pub struct KvcacheControl {
    section: KvcacheSection,
    ports: Vec<String>,
    clients: usize,
    shared: Arc<Shared>,
    board: Board,
    /// What decides who answers, if the host does.
    host: Option<Host>,
    /// What was said already.
    noted: [bool; 3],
}

/// Questions that memcached leaves without an answer before that is said.
const UNHEARD: u64 = 12;

impl KvcacheControl {
    /// Checks a configuration against the names of the ports, and makes the cache.
    ///
    /// # Errors
    /// Which key is wrong, and what to do.
    pub fn new(section: &KvcacheSection, ports: &[String], workers: usize) -> Result<Self, KvcacheError> {
        // Nobody can foresee it: clients pick the keys.
        Self::with_secret(section, ports, workers, RandomState::new().hash_one(0))
    }

    /// The same with a secret of the caller's, for runs that are to be repeated.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_secret(
        section: &KvcacheSection,
        ports: &[String],
        workers: usize,
        secret: u64,
    ) -> Result<Self, KvcacheError> {
        let clients = sides(section, ports)?;
        if workers != 1 {
            let what = format!("{workers}: what a cache knows of a key is in one place: give 1");
            return Err(KvcacheError { key: "run.workers".into(), what });
        }
        let (settings, board) = (Settings::new(section)?, Board::default());
        let host = settings.on_demand_host.as_ref().map(Host::new);
        let cache = Cache::tied(settings, secret, board.clone());
        let shared = Shared {
            seat: Mutex::new(Some(Box::new(cache))),
            wanted: AtomicBool::new(false),
            hottest: ArrayQueue::new(1),
            flush: AtomicBool::new(false),
            answers: AtomicBool::new(false),
        };
        let (section, ports, shared) = (section.clone(), ports.to_vec(), Arc::new(shared));
        Ok(KvcacheControl { section, ports, clients, shared, board, host, noted: [false; 3] })
    }

    /// Time goes on: once a second the host is looked at, if it decides who answers. Reads files: for the control side, beside the packets.
    pub fn turn(&mut self, now_ns: u64) {
        let Some(host) = self.host.as_mut().filter(|host| host.is_due(now_ns)) else { return };
        let mut counters = Counters::default();
        self.board.add_to(&mut counters);
        self.shared.answers.store(host.turn(now_ns, &counters), Ordering::Relaxed);
    }

    /// Takes another configuration if it is the same.
    ///
    /// # Errors
    /// It is not.
    pub fn reload(&mut self, section: &KvcacheSection) -> Result<(), KvcacheError> {
        if *section == self.section {
            return Ok(());
        }
        let what = "the section cannot change while the cache runs: put it back, or restart".into();
        Err(KvcacheError { key: "kvcache".into(), what })
    }

    /// Lines for the log since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        let counters = self.counters();
        let [asks, heard] = [Counter::Checks, Counter::Heard].map(|counter| counters.get(counter));
        let [used, refused] =
            [Counter::AskPortUsed, Counter::FillRefused].map(|counter| counters.get(counter));
        let (addresses, port) = (self.section.addresses.join(", "), self.section.ask_port);
        let lines = [
            (heard == 0 && asks >= UNHEARD).then(|| format!(
                "kvcache: memcached ({addresses}) does not answer `stats` over UDP from port {port}, in the clients' name: so nothing is answered here. Is its UDP side on (-U), and does \
                 nothing on the way keep that port out (kvcache.ask_port)?"
            )),
            (used > 0).then(|| format!(
                "kvcache: a client uses UDP port {port} (kvcache.ask_port): after each such packet memcached is not asked for some seconds, and nothing is answered here then. Give another port"
            )),
            (refused > 0).then(|| format!(
                "kvcache: memcached ({addresses}) does not know `mg`: nothing can be kept. It came with memcached 1.6"
            )),
        ];
        let news = lines.into_iter().zip(&mut self.noted).filter_map(|(line, noted)| {
            let line = line.filter(|_| !*noted)?;
            *noted = true;
            Some(line)
        });
        let news: Vec<String> = news.collect();
        news.into_iter().chain(self.host.iter_mut().flat_map(Host::notes)).collect()
    }

    /// Live numbers.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        self.board.add_to(&mut counters);
        if let Some(host) = &self.host {
            host.show(&mut counters);
        }
        counters
    }

    /// What was read of the host last, in words, if it decides who answers.
    pub fn host_read(&self) -> Option<String> {
        self.host.as_ref()?.latest()
    }

    /// The last shift that the host has made, in words, with the means that made it.
    pub fn host_shifted(&self) -> Option<&str> {
        self.host.as_ref()?.shifted()
    }

    /// Asks the worker for the hottest keys; [`hottest`](Self::hottest) has them soon, if it runs.
    pub fn want_hottest(&self) {
        while self.shared.hottest.pop().is_some() {}
        self.shared.wanted.store(true, Ordering::Release);
    }

    /// The keys that were given most, most first, once the worker has told.
    pub fn hottest(&self) -> Option<Vec<HotKey>> {
        self.shared.hottest.pop()
    }

    /// Has the worker make all that is kept void, soon, if it runs; until then [`is_flushing`](Self::is_flushing).
    pub fn flush(&self) {
        self.shared.flush.store(true, Ordering::Release);
    }

    /// Whether that is still to be done.
    pub fn is_flushing(&self) -> bool {
        self.shared.flush.load(Ordering::Acquire)
    }

    /// The configuration in force.
    pub fn section(&self) -> &KvcacheSection {
        &self.section
    }

    /// The names of the ports, in their order.
    pub fn ports(&self) -> &[String] {
        &self.ports
    }

    /// The clients' port.
    pub fn clients(&self) -> &str {
        &self.ports[self.clients]
    }

    /// memcached's port.
    pub fn servers(&self) -> &str {
        &self.ports[1 - self.clients]
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }
}

/// The number of the clients' port.
fn sides(section: &KvcacheSection, ports: &[String]) -> Result<usize, KvcacheError> {
    if ports.len() != 2 {
        let what = format!("a cache has two ports, and there are {}: give two [[port]]s", ports.len());
        return Err(KvcacheError::new("clients", what));
    }
    let find = |key: &str, name: &Option<String>| match name {
        None => Ok(None),
        Some(name) => ports.iter().position(|port| port == name).map(Some).ok_or_else(|| {
            let what = format!("there is no port {name:?}; there are {:?} and {:?}", ports[0], ports[1]);
            KvcacheError::new(key, what)
        }),
    };
    match (find("clients", &section.clients)?, find("servers", &section.servers)?) {
        (Some(clients), Some(servers)) if clients == servers => {
            let what = format!("{:?} is where the clients are: give the other port", ports[servers]);
            Err(KvcacheError::new("servers", what))
        }
        (Some(clients), _) => Ok(clients),
        (None, Some(servers)) => Ok(1 - servers),
        (None, None) => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::{Machine, RULES};

    #[test]
    fn the_two_sides_are_two_ports_and_the_worker_is_one() {
        let ports: Vec<String> = vec!["a".into(), "b".into()];
        let base = "addresses = ['10.0.0.1']\nallow = ['10.0.0.0/8']\nl1 = { memory_mib = 1 }\n";
        let control = |toml: &str, ports: &[String], workers| {
            let section = toml::from_str(&format!("{toml}\n{base}")).unwrap();
            KvcacheControl::new(&section, ports, workers).map_err(|error| error.to_string())
        };
        let sides = |toml: &str| {
            let control = control(toml, &ports, 1)?;
            Ok((control.clients().to_owned(), control.servers().to_owned()))
        };
        let (ab, ba) = (("a".to_owned(), "b".to_owned()), ("b".to_owned(), "a".to_owned()));
        assert_eq!((sides(""), sides("clients = 'b'")), (Ok(ab), Ok(ba.clone())));
        assert_eq!(sides("servers = 'a'"), Ok(ba));
        fn said<T>(result: Result<T, String>) -> String {
            result.err().unwrap_or_default()
        }
        assert!(said(sides("clients = 'c'")).starts_with("kvcache.clients: there is no port \"c\""));
        assert!(said(sides("clients = 'a'\nservers = 'a'")).starts_with("kvcache.servers: \"a\" is where"));
        assert!(said(control("", &ports[..1], 1)).starts_with("kvcache.clients: a cache has two ports"));
        assert!(said(control("", &ports, 2)).starts_with("run.workers: 2: what a cache knows"));
    }

    #[test]
    fn the_host_decides_and_the_worker_is_told() {
        let ports: Vec<String> = vec!["a".into(), "b".into()];
        let text = format!(
            "addresses = ['10.0.0.1']\nallow = ['10.0.0.0/8']\nl1 = {{ memory_mib = 1 }}\n[on_demand_host]\n{RULES}"
        );
        let mut control = KvcacheControl::new(&toml::from_str(&text).unwrap(), &ports, 1).unwrap();
        let mut machine = Machine::new();
        control.host = Some(machine.host(RULES));
        let (mut cache, mut now_ns) = (control.shared.take().unwrap(), 0);
        let mut second = |percent, watts| {
            machine.second(percent, watts);
            now_ns += 1_000_000_000;
            control.turn(now_ns);
            // It is not time yet.
            control.turn(now_ns + 1);
            control.shared.serve(&mut cache);
            cache.show();
            control.counters().get(Counter::Answering)
        };
        assert_eq!([(); 4].map(|()| second(90, 70)), [0, 0, 0, 1]);
        // Nothing is asked for.
        assert_eq!([(); 4].map(|()| second(5, 40)), [1, 0, 0, 0]);
        let counters = control.counters();
        let count = |counter| counters.get(counter);
        assert_eq!((count(Counter::Shifts), count(Counter::HostRead), count(Counter::HostUnread)), (2, 7, 0));
        assert_eq!(
            (count(Counter::HostCpu), count(Counter::HostWatts), count(Counter::HostGets)),
            (5, 40, 0)
        );
        let (read, shifted) = (control.host_read(), control.host_shifted().map(str::to_owned));
        assert_eq!(
            read.as_deref(),
            Some("the machine's processors are busy to 5 %, 40.0 W (RAPL), 0 gets a second")
        );
        let notes = control.take_notes();
        assert_eq!(Some(&notes[1]), shifted.map(|shifted| format!("kvcache: {shifted}")).as_ref());
        assert!(notes[0].starts_with("kvcache: the cache answers: the machine"), "{notes:?}");
        assert!(notes[1].starts_with("kvcache: memcached answers: the machine"), "{notes:?}");
        assert_eq!((notes.len(), control.take_notes().len()), (2, 0));
    }

    #[test]
    fn what_keeps_the_cache_empty_is_said_once() {
        let base = "addresses = ['10.0.0.1']\nallow = ['10.0.0.0/8']\nl1 = { memory_mib = 1 }\n";
        let ports: Vec<String> = vec!["a".into(), "b".into()];
        let mut counters = Counters::default();
        let mut control = KvcacheControl::new(&toml::from_str(base).unwrap(), &ports, 1).unwrap();
        let board = control.board.clone();
        let mut said = |counter, count| {
            counters.set(counter, count);
            board.show(&counters);
            let notes = control.take_notes();
            assert!(control.take_notes().is_empty(), "twice");
            notes.join("\n")
        };
        assert_eq!(said(Counter::Checks, UNHEARD - 1), "");
        assert!(said(Counter::Checks, UNHEARD).contains("does not answer `stats`"));
        assert_eq!(said(Counter::Heard, 1), "");
        assert!(said(Counter::AskPortUsed, 1).contains("a client uses UDP port 61211"));
        assert!(said(Counter::FillRefused, 5).contains("does not know `mg`"));
        assert_eq!(said(Counter::FillRefused, 6), "");
    }
}
