//! `tidemill kv redis`: a cache in front of a Redis, in the foreground until it is told to end. `kv stats` and `kv flush` look at it by its socket.

use super::print_line;
use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Map, Value};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tidemill_control::schema::Done;
use tidemill_control::schema::kv::{Counters, path};
use tidemill_control::{ApiError, Family, Registry, Request, Server};
use tidemill_kvcache::redis::{Front, Options, Watch};

/// The front looks at what the operator wants fifty times a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is longer is no password.
const MOST_PASSWORD_BYTES: u64 = 1 << 16;

#[derive(Args)]
pub(super) struct Redis {
    /// Where clients connect; repeatable
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6380")]
    listen: Vec<SocketAddr>,
    /// The Redis behind: a master, 6.0 or later
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6379")]
    redis: SocketAddr,
    /// The user of its own connection, which has to be allowed HELLO, CLIENT TRACKING, COMMAND, ROLE, SELECT, PTTL of any key, and CONFIG GET where Redis has a timeout [default: Redis' default user]
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// A file with the password for that
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Memory for values
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    memory: u32,
    /// Longest reply whose value is kept, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 65536, value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    value_max: u32,
    /// Clients at a time; each has a connection to Redis
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    connections: u32,
    /// Clients of one address at a time; of IPv6, of one /64 [default: seven eighths of --connections, so that others find a place]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    per_address: Option<u32>,
    /// A client that takes nothing of its replies for so long is ended
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    unread: u32,
    /// So long values may be given that others have written past this, if Redis does not tell of it
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=60_000))]
    lease: u32,
    /// A value is kept so long at most, and so is what Redis has allowed whom
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    hold: u32,
    /// A Unix socket for kv stats and kv flush (--socket), and metrics
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print what was counted in the end as a JSON object
    #[arg(long)]
    json: bool,
}

/// Stands in front of a Redis until it is told to end.
pub(super) fn serve(args: &Redis) -> Result<bool> {
    let text = |path: &PathBuf| crate::files::text(path, MOST_PASSWORD_BYTES, "give a file with a password");
    let password = args.password_file.as_ref().map(text);
    let password = password.transpose()?.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
    let options = Options {
        listen: args.listen.clone(),
        redis: args.redis,
        login: password.map(|password| (args.user.clone(), password)),
        connections: args.connections as usize,
        per_address: args.per_address.unwrap_or(args.connections - args.connections / 8) as usize,
        unread: Duration::from_secs(args.unread.into()),
        memory: (args.memory as usize) << 20,
        value_max: args.value_max as usize,
        lease: Duration::from_millis(args.lease.into()),
        hold: Duration::from_secs(args.hold.into()),
    };
    let front = Front::bind(options).context("cannot listen")?;
    let watch = front.watch();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot watch for signals")?;
    }
    let server = args.socket.as_ref().map(|path| Server::start(registry(&watch), path)).transpose()?;
    for address in front.addresses() {
        eprintln!("tidemill: kv: clients connect at {address}; behind is Redis at {}", args.redis);
    }
    front.run(&stop, |line| eprintln!("tidemill: kv: {line}"))?;
    drop(server);
    let counters = watch.counters();
    if args.json {
        let object: Map<String, Value> =
            counters.iter().map(|(name, count)| (name.to_owned(), Value::from(count))).collect();
        print_line(&object)?;
    } else {
        let counted: Vec<String> =
            counters.nonzero().map(|(counter, count)| format!("{} {count}", counter.name())).collect();
        println!("{}", counted.join(", "));
    }
    Ok(true)
}

/// What is asked by the socket: the verbs of a cache, without the most wanted keys.
fn registry(watch: &Watch) -> Registry {
    let mut registry = Registry::new("tidemill kv redis", env!("CARGO_PKG_VERSION"));
    let of = watch.clone();
    registry.get(path::COUNTERS, "All that the cache counts", move |_: &Request| {
        let number = of.show();
        done(|| of.is_shown(number))?;
        let counters = of.counters().iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Ok(Counters { counters })
    });
    let of = watch.clone();
    registry.post(path::FLUSH, "Make all that is kept void", move |_: &Request| flush(&of));
    let of = watch.clone();
    registry.panel("Cache in front of Redis", move || figures(&of));
    registry
}

fn flush(watch: &Watch) -> Result<Done, ApiError> {
    let number = watch.flush();
    done(|| watch.is_flushed(number))?;
    Ok(Done { done: vec!["all that was kept is void".into()] })
}

/// What the front does between two looks at what the operator wants.
fn done(is_done: impl Fn() -> bool) -> Result<(), ApiError> {
    let since = Instant::now();
    while !is_done() {
        if since.elapsed() > PATIENCE {
            return Err(ApiError::conflict("it has not been done: is it running?"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// As metrics.
fn figures(watch: &Watch) -> Vec<Family> {
    let mut grows = Family::counter("kv_redis", "What the cache in front of Redis has counted");
    let mut now = Family::gauge("kv_redis_now", "What it has now");
    for (name, count, is_now) in watch.counters().figures() {
        if is_now { &mut now } else { &mut grows }.add(&[("figure", name)], count);
    }
    vec![grows, now]
}
