//! The sockets: one thread that has all connections.

use super::counters::{Board, Counter, Counters};
use super::keeper::Keeper;
use super::session::{Outgoing, Session};
use super::{Options, Shared};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{interval, sleep, timeout};

/// For Redis to take a connection, and a client the last that was said to it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at what the operator wants.
const TURN: Duration = Duration::from_millis(20);
/// Between two tries to connect.
const AGAIN: Duration = Duration::from_millis(200);
/// A client that has said nothing for so long is asked by TCP whether it is there, as Redis does.
const KEEPALIVE: Duration = Duration::from_secs(300);
/// Bytes that are read at once.
const READ: usize = 32 << 10;

/// A front that listens.
pub struct Front {
    options: Options,
    listeners: Vec<std::net::TcpListener>,
    watch: Watch,
}

/// Looks at a front that runs, and makes what it keeps void.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    board: Board,
    show: Arc<Wish>,
    flush: Arc<Wish>,
}

/// What may be wished for again while it is done: how often it was, and how many of these times have come true.
#[derive(Debug, Default)]
struct Wish {
    asked: AtomicU64,
    done: AtomicU64,
}

impl Wish {
    /// Its number, from 1.
    fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// The last, where something is to be done; asked by one thread, before it does it.
    fn open(&self) -> Option<u64> {
        let last = self.asked.load(Ordering::Acquire);
        (!self.is_done(last)).then_some(last)
    }

    fn close(&self, number: u64) {
        self.done.store(number, Ordering::Release);
    }
}

impl Watch {
    /// Live numbers, as they were last shown.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        self.board.add_to(&mut counters);
        counters
    }

    /// Has all that was counted until now shown, soon, if it runs: when [`is_shown`](Self::is_shown) says so of the number.
    pub fn show(&self) -> u64 {
        self.show.ask()
    }

    /// Whether that is done.
    pub fn is_shown(&self, number: u64) -> bool {
        self.show.is_done(number)
    }

    /// Has all that is kept made void, soon, if it runs: when [`is_flushed`](Self::is_flushed) says so of the number.
    pub fn flush(&self) -> u64 {
        self.flush.ask()
    }

    /// Whether that is done.
    pub fn is_flushed(&self, number: u64) -> bool {
        self.flush.is_done(number)
    }
}

/// What all tasks of the thread share.
struct Place {
    options: Options,
    shared: RefCell<Shared>,
    /// There is a question.
    asked: Notify,
    open: Cell<usize>,
    /// Clients by their [source].
    sources: RefCell<HashMap<IpAddr, usize>>,
}

/// What counts as one address: of IPv6 a network of 64 bits, of which every host has as many addresses as it likes.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

impl Place {
    /// Has one more client of a source, or says what there is none for.
    fn enter(&self, source: IpAddr) -> Result<(), Counter> {
        if self.open.get() >= self.options.connections {
            return Err(Counter::Refused);
        }
        let mut sources = self.sources.borrow_mut();
        let its = sources.entry(source).or_default();
        if *its >= self.options.per_address {
            return Err(Counter::Crowded);
        }
        *its += 1;
        self.open.set(self.open.get() + 1);
        Ok(())
    }

    fn leave(&self, source: IpAddr) {
        let mut sources = self.sources.borrow_mut();
        let left = sources.get(&source).map_or(0, |its| its.saturating_sub(1));
        if left == 0 {
            sources.remove(&source);
        } else {
            sources.insert(source, left);
        }
        self.open.set(self.open.get().saturating_sub(1));
    }

    fn count(&self, counter: Counter) {
        self.shared.borrow_mut().counters.one(counter);
    }
}

impl Front {
    /// Listens.
    ///
    /// # Errors
    /// An address that cannot be had, with its name.
    pub fn bind(options: Options) -> io::Result<Self> {
        let listen = |address: &SocketAddr| -> io::Result<_> {
            let listener = std::net::TcpListener::bind(address)
                .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listeners = options.listen.iter().map(listen).collect::<io::Result<_>>()?;
        Ok(Front { options, listeners, watch: Watch::default() })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// To look at it while it runs.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Answers clients until `stop`, and says what there is to say in lines.
    ///
    /// # Errors
    /// The system has no more descriptors for it.
    pub fn run(self, stop: &AtomicBool, mut say: impl FnMut(&str)) -> io::Result<()> {
        let Front { options, listeners, watch } = self;
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let shared = RefCell::new(Shared::new(options.memory, options.value_max));
        let (asked, open, sources) = (Notify::new(), Cell::new(0), RefCell::default());
        let place = Rc::new(Place { options, shared, asked, open, sources });
        let tasks = LocalSet::new();
        tasks.block_on(&runtime, async {
            for listener in listeners {
                spawn_local(accept(place.clone(), TcpListener::from_std(listener)?));
            }
            spawn_local(keep(place.clone()));
            while !stop.load(Ordering::Relaxed) {
                sleep(TURN).await;
                turn(&place, &watch, &mut say);
            }
            Ok::<(), io::Error>(())
        })
    }
}

/// What the operator wants, and sees.
fn turn(place: &Place, watch: &Watch, say: &mut impl FnMut(&str)) {
    let mut shared = place.shared.borrow_mut();
    let Shared { store, counters, notes, .. } = &mut *shared;
    let show = watch.show.open();
    if let Some(number) = watch.flush.open() {
        store.void();
        counters.one(Counter::Flushed);
        watch.flush.close(number);
    }
    let (entries, bytes) = store.size();
    counters.set(Counter::Entries, entries);
    counters.set(Counter::Bytes, bytes);
    counters.set(Counter::Connections, place.open.get() as u64);
    counters.set(Counter::Sure, u64::from(store.is_sure(Instant::now())));
    watch.board.show(counters);
    if let Some(number) = show {
        watch.show.close(number);
    }
    notes.drain(..).for_each(|note| say(&note));
}

async fn accept(place: Rc<Place>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((client, from)) => {
                let source = source(from.ip());
                match place.enter(source) {
                    Ok(()) => drop(spawn_local(serve(place.clone(), client, source))),
                    Err(counter) => place.count(counter),
                }
            }
            // No descriptors, say: there will be some.
            Err(_) => sleep(TURN).await,
        }
    }
}

async fn serve(place: Rc<Place>, client: TcpStream, source: IpAddr) {
    place.count(Counter::Opened);
    match connect(&place.options).await {
        Ok(redis) => {
            let mut session = Session::default();
            let talked = talk(&place, &mut session, &client, &redis).await;
            session.end(&mut place.shared.borrow_mut());
            if talked.is_ok() {
                last(&mut session.to_client, &client).await;
            }
        }
        Err(_) => place.count(Counter::Refused),
    }
    place.leave(source);
}

async fn connect(options: &Options) -> io::Result<TcpStream> {
    let redis = timeout(PATIENCE, TcpStream::connect(options.redis)).await??;
    redis.set_nodelay(true)?;
    Ok(redis)
}

/// Carries both directions until Redis ends its connection, which it does when it knows that nothing more will come.
async fn talk(place: &Place, session: &mut Session, client: &TcpStream, redis: &TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    sockopt::set_socket_keepalive(client, true)?;
    sockopt::set_tcp_keepidle(client, KEEPALIVE)?;
    let mut bytes = vec![0; READ];
    // The client may still say something; it is gone; Redis was told that nothing comes; something waits for the client, which
    // has that long to take a part of it.
    let (mut is_open, mut is_gone, mut is_shut, mut is_behind) = (true, false, false, false);
    let mut patience = pin!(sleep(place.options.unread));
    loop {
        tokio::select! {
            ready = client.readable(), if is_open && session.wants_requests() => {
                match ready.and_then(|()| read(client, &mut bytes)) {
                    Ok(0) => is_open = false,
                    Ok(read) => session.client(&bytes[..read], Instant::now(), &mut place.shared.borrow_mut()),
                    Err(error) => is_gone |= error.kind() != ErrorKind::WouldBlock,
                }
            }
            ready = redis.readable(), if session.wants_replies() => {
                match ready.and_then(|()| read(redis, &mut bytes)) {
                    Ok(0) => return Ok(()),
                    Ok(read) => {
                        let mut shared = place.shared.borrow_mut();
                        if !session.redis(&bytes[..read], Instant::now(), &mut shared) {
                            return Err(ErrorKind::InvalidData.into());
                        }
                        if !shared.questions.is_empty() {
                            place.asked.notify_one();
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return Ok(()),
                }
            }
            ready = client.writable(), if !is_gone && !session.to_client.is_empty() => is_gone |= ready.is_err(),
            // Writing fails, too.
            _ = redis.writable(), if !session.to_redis.is_empty() => {}
            () = patience.as_mut(), if is_behind => {
                place.count(Counter::Unread);
                is_gone = true;
            }
        }
        // At once, for there is room nearly always: all that was read together is answered by one call.
        if !is_gone && !session.to_client.is_empty() {
            let taken = write(&mut session.to_client, client);
            is_gone = taken.is_err();
            let is_left = !session.to_client.is_empty();
            if is_left && (!is_behind || taken.is_ok_and(|bytes| bytes > 0)) {
                patience.as_mut().reset(tokio::time::Instant::now() + place.options.unread);
            }
            is_behind = is_left;
        }
        // What Redis has said before may still be there to be read.
        if !session.to_redis.is_empty() && write(&mut session.to_redis, redis).is_err() {
            session.to_redis.clear();
            is_open = false;
        }
        if is_gone {
            (is_open, is_behind) = (false, false);
            session.to_client.clear();
        }
        if !is_open && !is_shut && session.to_redis.is_empty() {
            // It may have ended the connection itself.
            let _ = shutdown(redis, Shutdown::Write);
            is_shut = true;
        }
        // Sockets that are always ready would never let anybody else have this thread.
        consume_budget().await;
    }
}

/// Reads what is there. Less than there is room for is all of it, and what comes later is told anew: so nobody has to ask in vain (tokio's `poll_read` does the same).
fn read(from: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
    let mut all = None;
    let part = from.try_io(Interest::READABLE, || {
        let (_, read) = recv(from, &mut *bytes, RecvFlags::empty())?;
        if read == 0 || read == bytes.len() {
            return Ok(read);
        }
        all = Some(read);
        Err(ErrorKind::WouldBlock.into())
    });
    all.map_or(part, Ok)
}

/// Writes what there is room for, and says how much that was.
fn write(from: &mut Outgoing, to: &TcpStream) -> io::Result<usize> {
    match to.try_write(from.pending()) {
        Ok(sent) => {
            from.sent(sent);
            Ok(sent)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error),
    }
}

/// What Redis has said before it ended the connection. Who does not read it for a while does without.
async fn last(to_client: &mut Outgoing, client: &TcpStream) {
    while !to_client.is_empty() {
        let Ok(ready) = timeout(PATIENCE, client.writable()).await else { return };
        if ready.and_then(|()| write(to_client, client)).is_err() {
            return;
        }
    }
}

/// Keeps a connection of our own, for ever.
async fn keep(place: Rc<Place>) {
    let (mut before, mut is_lost) = (String::new(), false);
    loop {
        let Err(why) = heard(&place, &mut before, &mut is_lost).await;
        lost(&mut place.shared.borrow_mut());
        if why != before {
            let redis = place.options.redis;
            let note = format!("warning: Redis at {redis}: {why}: nothing is answered here");
            place.shared.borrow_mut().notes.push(note);
            before = why;
        }
        is_lost = true;
        sleep(AGAIN).await;
    }
}

/// Nobody tells of changes any more.
fn lost(shared: &mut Shared) {
    shared.store.sure(None);
    shared.store.void();
    if std::mem::take(&mut shared.is_heard) {
        shared.counters.one(Counter::Lost);
    }
    shared.questions.clear();
    shared.asked = 0;
}

/// A connection of our own, until it is of no use.
async fn heard(place: &Place, before: &mut String, is_lost: &mut bool) -> Result<Infallible, String> {
    let text = |error: io::Error| error.to_string();
    let redis = connect(&place.options).await.map_err(text)?;
    let mut keeper = Keeper::new(&place.options, Instant::now());
    let mut beat = interval(place.options.lease / 4);
    let mut bytes = vec![0; READ];
    loop {
        tokio::select! {
            ready = redis.readable() => {
                match ready.and_then(|()| read(&redis, &mut bytes)) {
                    Ok(0) => return Err("it has ended the connection".into()),
                    Ok(read) => keeper.redis(&bytes[..read], &mut place.shared.borrow_mut())?,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(text(error)),
                }
            }
            ready = redis.writable(), if !keeper.to_redis.is_empty() => {
                ready.and_then(|()| write(&mut keeper.to_redis, &redis)).map_err(text)?;
            }
            () = place.asked.notified() => {}
            _ = beat.tick() => keeper.beat(Instant::now())?,
        }
        let mut shared = place.shared.borrow_mut();
        keeper.ask(Instant::now(), &mut shared);
        if *is_lost && shared.store.is_sure(Instant::now()) {
            shared.notes.push(format!("Redis at {} is heard", place.options.redis));
            (*is_lost, *before) = (false, String::new());
        }
    }
}

#[cfg(test)]
mod tests;
