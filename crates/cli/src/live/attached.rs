//! What `kv attach --socket` answers: what `kv stats`, `kv top` and `kv flush` do, and metrics. It looks at what is pinned, as those do without a socket: the daemon's own
//! work is held up by nobody who asks.

use super::kv::root;
use crate::usage::one_line;
use tidemill_control::schema::Done;
use tidemill_control::schema::kv::{Counters, Top, TopLine, TopQuery, path};
use tidemill_control::{ApiError, Family, Registry, Request};
use tidemill_kv::kernel::{Hot, KvError, Look};

/// Keys of `kv top`, where it does not say how many.
const TOP: usize = 20;

/// The verbs of the cache that is pinned under a name.
pub(super) fn registry(name: &str) -> Registry {
    let mut registry = Registry::new("tidemill kv attach", env!("CARGO_PKG_VERSION"));
    let of = name.to_owned();
    registry.get(path::COUNTERS, "All that the cache counts, and what it is doing", move |_: &Request| {
        let look = Look::open(&root(), &of).map_err(failed)?;
        let state = look.state().into_iter().map(|(name, value, _)| (name, value));
        let all = state.chain(look.counts().map_err(failed)?);
        Ok(Counters { counters: all.map(|(name, value)| (name.to_owned(), value)).collect() })
    });
    let of = name.to_owned();
    registry.get(path::TOP, "The most wanted keys", move |request: &Request| {
        let query: TopQuery = request.query()?;
        let limit = query.limit.map_or(TOP, |limit| limit as usize);
        let (_, hot) = Look::open(&root(), &of).and_then(|look| look.hot(limit)).map_err(failed)?;
        let line = |one: Hot| TopLine { key: String::from_utf8_lossy(&one.key).into_owned(), hits: one.hits };
        Ok(Top { lines: hot.into_iter().map(line).collect() })
    });
    registry.takes::<TopQuery>();
    let of = name.to_owned();
    let help = "Make all that is kept void; memcached keeps what it has";
    registry.post(path::FLUSH, help, move |_: &Request| {
        Look::open(&root(), &of).map_err(failed)?.flush();
        Ok(Done::from("all that was kept is void"))
    });
    let of = name.to_owned();
    registry.panel("Cache in front of memcached", move || figures(&of).unwrap_or_default());
    registry
}

fn failed(error: KvError) -> ApiError {
    ApiError::internal(one_line(&error.into()))
}

/// As metrics: what only grows, what is so now, and each command by who has answered it.
fn figures(name: &str) -> Result<Vec<Family>, KvError> {
    let look = Look::open(&root(), name)?;
    let mut grows = Family::counter("kv_attached", "What the cache in front of memcached has counted");
    for (figure, count) in look.counts()? {
        grows.add(&[("figure", figure)], count);
    }
    let mut now = Family::gauge("kv_attached_now", "What it is doing now, and what its daemon has done");
    for (figure, value, _) in look.state() {
        now.add(&[("figure", figure)], value);
    }
    let mut commands = Family::counter("kv_attached_commands", "Commands by who has answered them");
    for one in look.commands()? {
        for (by, count) in [("kernel", one.hits), ("memcached", one.passes)] {
            commands.add(&[("command", one.name), ("transport", one.transport), ("by", by)], count);
        }
    }
    Ok([grows, now, commands].into_iter().filter(|family| !family.is_empty()).collect())
}
