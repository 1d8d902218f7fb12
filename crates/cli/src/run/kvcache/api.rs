//! The verbs that only a cache has.

use super::Kvcache;
use crate::run::service::lock;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_control::schema::Done;
use tidemill_control::schema::kv::{Counters, OnDemand, Top, TopLine, TopQuery, path};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_kvcache::{Counter, KvcacheControl};

/// The worker tells between two bursts, and wakes at least so often.
const PATIENCE: Duration = Duration::from_secs(2);

/// Adds them.
pub(super) fn register(kvcache: &Arc<Kvcache>, registry: &mut Registry) {
    let to = kvcache.clone();
    registry.get(path::COUNTERS, "All that the cache counts", move |_: &Request| {
        let counters = lock(&to.control).counters();
        let counters = counters.iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Ok(Counters { counters })
    });
    let to = kvcache.clone();
    let help = "Who answers gets, the cache or memcached, and why";
    registry.get(path::ON_DEMAND, help, move |_: &Request| Ok(on_demand(&lock(&to.control))));
    let to = kvcache.clone();
    registry.post(path::FLUSH, "Make all that is kept void", move |_: &Request| flush(&to));
    let to = kvcache.clone();
    registry.get(path::TOP, "The most wanted keys", move |r: &Request| top(&to, &r.query()?));
    registry.takes::<TopQuery>();
}

fn on_demand(control: &KvcacheControl) -> OnDemand {
    let section = control.section();
    let decides = match (&section.on_demand, &section.on_demand_host) {
        (None, None) => "always",
        (Some(_), _) => "network",
        (None, Some(_)) => "host",
    };
    OnDemand {
        cache_answers: control.counters().get(Counter::Answering) == 1,
        decides: decides.into(),
        read: control.host_read(),
        shifted: control.host_shifted().map(str::to_owned),
    }
}

fn flush(kvcache: &Kvcache) -> Result<Done, ApiError> {
    lock(&kvcache.control).flush();
    awaited(|| (!lock(&kvcache.control).is_flushing()).then_some(()))?;
    Ok(Done { done: vec!["all that was kept is void".into()] })
}

fn top(kvcache: &Kvcache, query: &TopQuery) -> Result<Top, ApiError> {
    lock(&kvcache.control).want_hottest();
    let hottest = awaited(|| lock(&kvcache.control).hottest())?;
    let limit = query.limit.map_or(usize::MAX, |limit| limit as usize);
    let line =
        |(key, hits): (Vec<u8>, u64)| TopLine { key: String::from_utf8_lossy(&key).into_owned(), hits };
    Ok(Top { lines: hottest.into_iter().take(limit).map(line).collect() })
}

/// What the worker does or tells between two bursts.
fn awaited<T>(done: impl Fn() -> Option<T>) -> Result<T, ApiError> {
    let since = Instant::now();
    loop {
        if let Some(done) = done() {
            return Ok(done);
        }
        if since.elapsed() > PATIENCE {
            return Err(ApiError::conflict("the worker has not told: is it running?"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
