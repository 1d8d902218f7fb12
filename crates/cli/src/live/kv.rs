//! `tidemill kv`: the cache in the kernel in front of a memcached. `attach` is the daemon; the others look at what it has pinned, or with `--socket` into a
//! running role `kvcache`, a cache in front of Redis, or the daemon.

use super::grid::{Grid, plain};
use super::{attached, failed, print_line, redis};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_control::schema::{Done, kv as schema};
use tidemill_control::{Client, ClientError, Server};
use tidemill_daemon::journal::is_journal;
use tidemill_kv::kernel::{self, COUNTS, Cache, Look, Mode, Options};

/// `tidemill kv`.
#[derive(Args)]
pub(crate) struct Kv {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Stand in front of a memcached on these interfaces, until Ctrl-C or SIGTERM
    #[command(
        after_help = "Examples:\n  tidemill kv attach eth0 lo    (lo: clients on this machine write that way)\n  tidemill kv attach eth0 lo --port 11300 --memcached 127.0.0.1:11300\n  \
        tidemill kv attach eth0 lo --allow 10.0.0.0/8 --memory 1024 --stay\n  tidemill kv attach eth0 lo --json    (every ten seconds what was answered)"
    )]
    Attach(Attach),
    /// Stand in front of a Redis: reads of strings, hashes, sets, lists and sorted sets are answered here, until Ctrl-C or SIGTERM
    #[command(
        after_help = "Examples:\n  tidemill kv redis\n  tidemill kv redis --listen 10.0.0.1:6379 --redis 10.0.0.2:6379 --user tidemill --password-file redis.password\n  \
        tidemill kv redis --socket kv.sock    (tidemill kv stats --socket kv.sock)"
    )]
    Redis(redis::Redis),
    /// End it: programs leave their interfaces
    #[command(after_help = "Example:\n  tidemill kv detach")]
    Detach(Name),
    /// What is counted, and whether values are served
    #[command(
        after_help = "Examples:\n  tidemill kv stats --json\n  tidemill kv stats --socket /run/tidemill/tidemill.sock"
    )]
    Stats {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        role: RoleSocket,
    },
    /// The most wanted keys
    #[command(
        after_help = "Examples:\n  tidemill kv top --limit 5\n  tidemill kv top --socket /run/tidemill/tidemill.sock"
    )]
    Top {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        role: RoleSocket,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Make everything void that is kept; memcached keeps what it has
    #[command(
        after_help = "Examples:\n  tidemill kv flush\n  tidemill kv flush --socket /run/tidemill/tidemill.sock"
    )]
    Flush {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        role: RoleSocket,
    },
}

#[derive(Args)]
struct Name {
    /// Under which name it is pinned
    #[arg(long, default_value = "kv")]
    name: String,
    /// One JSON object for each line
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct RoleSocket {
    /// Ask the role kvcache, kv redis or kv attach that runs behind this control socket, not what is pinned
    #[arg(long, value_name = "PATH", conflicts_with = "name")]
    socket: Option<PathBuf>,
}

#[derive(Args)]
struct Attach {
    /// Interfaces that clients come by; lo too, where they are on this machine
    #[arg(required = true, value_name = "INTERFACE")]
    interfaces: Vec<String>,
    #[command(flatten)]
    name: Name,
    /// memcached's port, TCP and UDP
    #[arg(long, default_value_t = 11211)]
    port: u16,
    /// Where memcached is asked for values [default: 127.0.0.1 and the port]
    #[arg(long, value_name = "ADDR:PORT")]
    memcached: Option<SocketAddr>,
    /// Memory for values; what is used is the next smaller power of two of sets, and said
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    memory: u32,
    /// Answer sources in this prefix, on every interface [default: on each its own subnets]
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    allow: Vec<(IpAddr, u8)>,
    /// Longest value that is kept, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..=1024))]
    value_max: u16,
    /// Ask for so many of the hottest keys once a minute, so that memcached keeps them
    #[arg(long, value_name = "KEYS", default_value_t = 0)]
    refresh: u32,
    /// Answers a second for one source (an IPv4 address, or the /64 of an IPv6 one), beyond which memcached answers; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    rate: u64,
    /// The same for all sources together
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rate_total: u64,
    /// TCP connections to memcached that there is room for, at most 130559
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(16..=130_559))]
    connections: u32,
    /// Longest time that memcached may take to execute a datagram
    #[arg(long, value_name = "MS", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..))]
    settle: u32,
    /// Reset the TCP connections that memcached has already (clients connect again); else nothing is served until they end
    #[arg(long)]
    reset_connections: bool,
    /// Behind the driver, not in it: works with any interface, and is slower [default: in the driver where it can, and on a virtual cable behind it]
    #[arg(long, conflicts_with = "native")]
    generic: bool,
    /// In the driver, on a virtual cable (veth) too: its other end has to have an XDP program then, or answers are lost
    #[arg(long)]
    native: bool,
    /// A Unix socket for kv stats, top and flush (--socket), and metrics
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Leave programs and maps at the end, for the next process to take over: they watch, and serve nothing meanwhile
    #[arg(long)]
    stay: bool,
}

fn prefix(text: &str) -> Result<(IpAddr, u8), String> {
    let (address, length) = text.split_once('/').ok_or("give ADDRESS/LENGTH")?;
    let address: IpAddr = address.parse().map_err(|_| "that is no address")?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = length.parse().ok().filter(|length| *length <= most);
    Ok((address, length.ok_or(format!("a length is 0 to {most}"))?))
}

pub(super) fn root() -> PathBuf {
    PathBuf::from("/sys/fs/bpf/tidemill")
}

/// `tidemill kv`.
pub(crate) fn run(args: &Kv) -> Result<bool> {
    match &args.verb {
        Verb::Attach(attach) => serve(attach),
        Verb::Redis(front) => redis::serve(front),
        Verb::Detach(name) => {
            let found = kernel::detach(&root(), &name.name)?;
            if name.json {
                print_line(&json!({ "detached": found }))?;
                return Ok(found);
            }
            if !found {
                eprintln!("tidemill: kv: nothing is attached as {:?}", name.name);
            }
            Ok(found)
        }
        Verb::Stats { name, role: RoleSocket { socket: Some(socket) } } => role_stats(socket, name.json),
        Verb::Top { name, limit, role: RoleSocket { socket: Some(socket) } } => {
            role_top(socket, *limit, name.json)
        }
        Verb::Stats { name, .. } => {
            stats(&Look::open(&root(), &name.name)?, name.json)?;
            Ok(true)
        }
        Verb::Top { name, limit, .. } => {
            for hot in Look::open(&root(), &name.name)?.hot(*limit)?.1 {
                let key = String::from_utf8_lossy(&hot.key);
                let shown = plain(&key);
                if name.json {
                    print_line(&json!({ "key": key, "hits": hot.hits, "bytes": hot.length }))?;
                } else {
                    println!("{:>10} {:>5} B  {shown}", hot.hits, hot.length);
                }
            }
            Ok(true)
        }
        Verb::Flush { name, role } => {
            match &role.socket {
                Some(socket) => role_flush(socket)?,
                None => Look::open(&root(), &name.name)?.flush(),
            }
            if name.json {
                print_line(&json!({ "flushed": true }))?;
            }
            Ok(true)
        }
    }
}

/// What a cache that is attached says of itself.
fn stats(look: &Look, json: bool) -> Result<()> {
    let (counts, commands, blind) = (look.counts()?, look.commands()?, look.blind()?);
    let (why, holding) = (look.why(), look.holding()?);
    let values = look.hot(0)?.0;
    if json {
        let mut line = Map::new();
        let state = look.state().into_iter().map(|(known, value, _)| (known, value));
        for (known, value) in state.chain(counts) {
            line.insert(known.to_owned(), json!(value));
        }
        line.insert("values".to_owned(), json!(values));
        line.insert("why".to_owned(), json!(why));
        let ends = blind.iter().map(|one| {
            json!({ "client": one.client.to_string(), "server": one.server.to_string(), "why": one.why, "word": one.word })
        });
        line.insert("blind-ends".to_owned(), ends.collect());
        let ends = holding.iter().map(|one| {
            json!({ "client": one.client.to_string(), "server": one.server.to_string(), "mutations": one.mutations, "deaf": one.is_deaf })
        });
        line.insert("held-ends".to_owned(), ends.collect());
        let commands = commands.iter().map(|one| {
            json!({ "command": one.name, "transport": one.transport, "hits": one.hits, "passes": one.passes })
        });
        line.insert("commands".to_owned(), commands.collect());
        return print_line(&Value::Object(line));
    }
    let explained = COUNTS.iter().zip(counts).map(|((_, text), (known, value))| (known, value, *text));
    let values = ("values", values as u64, "values that may be served");
    for (known, value, text) in look.state().into_iter().chain([values]).chain(explained) {
        println!("{known:<18} {value:>12}  {text}");
    }
    for one in &why {
        println!("nothing is served: {one}");
    }
    for one in &blind {
        let word = one.word.as_ref().map(|word| format!(" (it read {word:?} last)")).unwrap_or_default();
        println!("not followed: {} to {}: {}{word}", one.client, one.server, one.why);
    }
    for one in &holding {
        let why = if one.is_deaf {
            "its answers cannot be followed"
        } else {
            "nor has memcached read them all, and said all that it has to"
        };
        println!(
            "nothing is admitted: {} to {}: {} mutations, of which no answer says that they are executed: {why}",
            one.client, one.server, one.mutations
        );
    }
    let mut grid = Grid::new(&["command", "by", ">answered here", ">passed"]);
    for one in commands {
        grid.row([
            one.name.to_owned(),
            one.transport.to_owned(),
            one.hits.to_string(),
            one.passes.to_string(),
        ]);
    }
    grid.print("no command was seen");
    Ok(())
}

fn role_stats(socket: &Path, json: bool) -> Result<bool> {
    let client = Client::new(socket).map_err(failed)?;
    let all: schema::Counters = client.get(schema::path::COUNTERS, &()).map_err(failed)?;
    if json {
        print_line(&all)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&["counter", ">"]);
    for (name, count) in &all.counters {
        grid.row([name.clone(), count.to_string()]);
    }
    grid.print("nothing is counted");
    let on_demand: schema::OnDemand = match client.get(schema::path::ON_DEMAND, &()) {
        // The role alone has such a verb.
        Err(ClientError::Answer { status: 404, .. }) => return Ok(true),
        answer => answer.map_err(failed)?,
    };
    on_demand.read.iter().for_each(|read| println!("the host now: {read}"));
    on_demand.shifted.iter().for_each(|why| println!("the last shift: {why}"));
    Ok(true)
}

fn role_flush(socket: &Path) -> Result<()> {
    let client = Client::new(socket).map_err(failed)?;
    let _: Done = client.post(schema::path::FLUSH, &json!({})).map_err(failed)?;
    Ok(())
}

fn role_top(socket: &Path, limit: usize, json: bool) -> Result<bool> {
    let client = Client::new(socket).map_err(failed)?;
    let query = schema::TopQuery { limit: Some(limit.try_into().unwrap_or(u32::MAX)) };
    let top: schema::Top = client.get(schema::path::TOP, &query).map_err(failed)?;
    if json {
        top.lines.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&[">hits", "key"]);
    for line in top.lines {
        grid.row([line.hits.to_string(), line.key]);
    }
    grid.print("nothing was given yet");
    Ok(true)
}

fn serve(args: &Attach) -> Result<bool> {
    let names: Vec<&str> = args.interfaces.iter().map(String::as_str).collect();
    let seed = foldhash::fast::RandomState::default();
    let mut options = Options::new(&names, std::hash::BuildHasher::hash_one(&seed, std::process::id()));
    options.port = args.port;
    options.memcached = args.memcached.unwrap_or(SocketAddr::from(([127, 0, 0, 1], args.port)));
    options.memory = u64::from(args.memory) << 20;
    options.allow.clone_from(&args.allow);
    options.value_max = usize::from(args.value_max);
    options.refresh = args.refresh;
    options.reset_connections = args.reset_connections;
    options.rate = args.rate;
    options.rate_total = args.rate_total;
    options.connections = args.connections;
    options.settle = Duration::from_millis(u64::from(args.settle));
    options.mode = match (args.generic, args.native) {
        (true, _) => Mode::Generic,
        (_, true) => Mode::Native,
        _ => Mode::Auto,
    };
    options.name.clone_from(&args.name.name);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot watch for signals")?;
    }
    // Before anything is taken over: without it what is pinned stays as it is.
    let _server = args
        .socket
        .as_ref()
        .map(|path| Server::start(attached::registry(&args.name.name), path))
        .transpose()?;
    let mut cache = Cache::attach(&options)?;
    cache.describe().iter().for_each(|line| eprintln!("tidemill: kv: {line}"));
    // Counts of the process before go on.
    let (mut said, mut before) = (Instant::now(), cache.count("get-hit"));
    while !stop.load(Ordering::Relaxed) {
        let busy = cache.round()?;
        cache.take_notes().iter().for_each(|line| eprintln!("tidemill: kv: {line}"));
        let elapsed = said.elapsed();
        if elapsed >= Duration::from_secs(10) {
            let (hits, misses) = (cache.count("get-hit"), cache.count("get-miss"));
            let rate = hits.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            let admitted = cache.daemon().admitted;
            if args.name.json {
                print_line(
                    &json!({ "v": 1, "hits-per-second": rate, "get-hit": hits, "get-miss": misses, "admitted": admitted }),
                )?;
            } else if !is_journal() {
                eprintln!(
                    "tidemill: kv: {rate:.0} hits/s, {hits} hits, {misses} misses, {admitted} admitted"
                );
            }
            (said, before) = (Instant::now(), hits);
        }
        if !busy {
            cache.rest();
        }
    }
    if args.stay {
        cache.leave();
        eprintln!(
            "tidemill: kv: programs stay, and serve nothing; tidemill kv attach takes over, tidemill kv detach ends them"
        );
    }
    Ok(true)
}
