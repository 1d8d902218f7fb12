//! `[[queue]]`, checked: which ports have a queue of the Gatekeeper system's path in front of them, and what it is like.

use crate::config::{QueueConfig, RouterConfig};
use crate::settings::{ConfigError, PortInfo, port_index};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use tidemill_ip::nodes::path_queue::{PathBoard, PathBudgets, PathQueue, PathQueueOptions, PathStats};
use tidemill_ip::queue::{GrantedOptions, RedParameters, wire_bytes};
use tidemill_port::number;

/// The queue in front of one port, on all workers.
#[derive(Debug)]
pub(crate) struct PortQueue {
    pub(crate) port: usize,
    options: PathQueueOptions,
    budgets: PathBudgets,
    board: Arc<PathBoard>,
    seed: u64,
}

impl PortQueue {
    /// Makes the node of each worker.
    pub(crate) fn factory(&self) -> impl Fn(usize) -> PathQueue + Send + Sync + 'static {
        let (options, budgets, board, seed) =
            (self.options, self.budgets.clone(), self.board.clone(), self.seed);
        move |worker| PathQueue::new(&options, &budgets, &board, seed.wrapping_add(worker as u64))
    }

    pub(crate) fn shown(&self, ports: &[PortInfo]) -> ShownQueue {
        ShownQueue {
            port: ports.get(self.port).map_or_else(String::new, |port| port.name.clone()),
            options: self.options,
            stats: self.board.sum(),
        }
    }
}

/// A port's queue, as an operator sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownQueue {
    /// The port's name.
    pub port: String,
    /// What it is like.
    pub options: PathQueueOptions,
    /// Its counters, all workers together.
    pub stats: PathStats,
}

/// Checks all entries against the ports.
pub(crate) fn queues(config: &RouterConfig, ports: &[PortInfo]) -> Result<Vec<PortQueue>, ConfigError> {
    let mut queues: Vec<PortQueue> = Vec::new();
    for (n, entry) in config.queue.iter().enumerate() {
        let key = |field: &str| format!("queue[{n}].{field}");
        let port = port_index(ports, &entry.port, || key("port"))?;
        if queues.iter().any(|queue| queue.port == port) {
            let what = format!("{:?} has a queue already: keep one", entry.port);
            return Err(ConfigError::new(key("port"), what));
        }
        let options = options(entry, &key)?;
        let budgets = PathBudgets::new(&options);
        let seed = entry.seed.unwrap_or_else(|| RandomState::new().hash_one(n));
        queues.push(PortQueue { port, options, budgets, board: Arc::default(), seed });
    }
    // A graph has room for so many nodes, of which the router has about twenty.
    const MOST: usize = 64;
    let nodes = queues.len() + if config.router.coalesce_tcp { ports.len() } else { 0 };
    if !queues.is_empty() && nodes > MOST {
        let what = format!(
            "{} queues: {MOST} nodes in front of ports are possible, router.coalesce_tcp's counted",
            queues.len()
        );
        return Err(ConfigError::new("queue", what));
    }
    Ok(queues)
}

fn options(entry: &QueueConfig, key: &impl Fn(&str) -> String) -> Result<PathQueueOptions, ConfigError> {
    let within = |field: &str, value: f64, from: f64, to: f64| {
        if (from..=to).contains(&value) {
            return Ok(value);
        }
        Err(ConfigError::new(key(field), format!("{}: give {from} to {to}", number(value))))
    };
    let count = |field: &str, value: usize| {
        if (1..=1 << 20).contains(&value) {
            return Ok(value);
        }
        Err(ConfigError::new(key(field), format!("{value}: give 1 to 1048576")))
    };
    let bits_per_s = entry.rate.bits_per_s().map_err(|what| ConfigError::new(key("rate"), what))?;
    let operational_share = within("operational_share", entry.operational_share, 0.0, 0.5)?;
    let request_share = within("request_share", entry.request_share, 0.001, 0.5)?;
    let min = within("red_min", entry.red_min, 0.0, 1e6)?;
    let max = within("red_max", entry.red_max, 0.0, 1e6)?;
    if min >= max {
        return Err(ConfigError::new(
            key("red_max"),
            format!("{}: give more than red_min ({})", number(max), number(min)),
        ));
    }
    let reseed_s = within("reseed_s", entry.reseed_s, 0.0, 86_400.0)?;
    // "A typical small packet" on what granted packets have at least.
    let left = bits_per_s as f64 * (1.0 - operational_share - request_share).max(0.01);
    let red = RedParameters {
        min,
        max,
        max_p: within("red_probability", entry.red_probability, 0.0, 1.0)?,
        weight: within("red_weight", entry.red_weight, 1e-6, 1.0)?,
        packet_ns: wire_bytes(500) as f64 * 8e9 / left,
    };
    let granted = GrantedOptions {
        capacity: count("granted_packets", entry.granted_packets)?,
        queues: count("granted_queues", entry.granted_queues)?,
        red,
        reseed_ns: (reseed_s * 1e9) as u64,
    };
    Ok(PathQueueOptions {
        bits_per_s,
        operational_share,
        request_share,
        operational: count("operational_packets", entry.operational_packets)?,
        requests: count("request_packets", entry.request_packets)?,
        granted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Vec<PortQueue>, String> {
        let config: RouterConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        queues(&config, &["lan", "wan"].map(PortInfo::new)).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_the_figures() {
        let queue = checked("[[queue]]\nport='wan'\nrate='10 Gbps'").unwrap().remove(0);
        let options = queue.options;
        assert_eq!((queue.port, options.bits_per_s), (1, 10_000_000_000));
        assert_eq!((options.operational_share, options.request_share), (0.05, 0.05));
        assert_eq!(options.packets(), 256 + 512 + 2048);
        for (text, bits) in [("'2.5 gbps'", 2_500_000_000), ("'100Mbps'", 100_000_000), ("64000", 64_000)] {
            let queue = checked(&format!("[[queue]]\nport='lan'\nrate={text}")).unwrap().remove(0);
            assert_eq!(queue.options.bits_per_s, bits);
        }
    }

    #[test]
    fn mistakes_name_the_key_and_the_way_out() {
        let one = "[[queue]]\nport='wan'\nrate='1 Gbps'\n";
        for (text, error) in [
            (
                "[[queue]]\nport='dmz'\nrate=1000000",
                "queue[0].port: there is no port \"dmz\"; there are \"lan\", \"wan\"",
            ),
            (&format!("{one}{one}"), "queue[1].port: \"wan\" has a queue already: keep one"),
            (
                "[[queue]]\nport='wan'\nrate='fast'",
                "queue[0].rate: \"fast\": give a number with Gbps, Mbps, kbps or bps in quotes (\"2.5 Gbps\"), or bits per second as a whole number",
            ),
            (
                "[[queue]]\nport='wan'\nrate=10",
                "queue[0].rate: 10 bits per second: give 64 kbps to 10,000 Gbps",
            ),
            (&format!("{one}request_share=0.7"), "queue[0].request_share: 0.7: give 0.001 to 0.5"),
            (&format!("{one}granted_packets=0"), "queue[0].granted_packets: 0: give 1 to 1048576"),
            (&format!("{one}red_min=48"), "queue[0].red_max: 48: give more than red_min (48)"),
            (&format!("{one}red_max=1e300"), "queue[0].red_max: 1e300: give 0 to 1000000"),
            (&format!("{one}red_weight=nan"), "queue[0].red_weight: NaN: give 0.000001 to 1"),
        ] {
            assert_eq!(checked(text).unwrap_err(), error);
        }
        assert!(checked("[[queue]]\nport='wan'").unwrap_err().contains("missing field `rate`"));
        assert!(checked(&format!("{one}share=1")).unwrap_err().contains("unknown field `share`"));
    }
}
