//! What a run shows: a live line while it goes on, tables or JSON at the end.

use super::log::Levels;
use super::role::Told;
use crate::progress::redraws;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};
use tidemill_burst::DropReason;
use tidemill_daemon::journal::is_journal;
use tidemill_graph::trace::TraceEntry;
use tidemill_graph::{Handle, Ledger, Snapshot};

/// Says on standard error how a run is going: a line that renews itself on a terminal, elsewhere one every 10 s, in the journal only if that is wanted
/// (`run = "debug"`): `/metrics` has the same, and a year has three million of them.
pub(crate) struct Live {
    every: Duration,
    terminal: bool,
    last: Instant,
    before: (u64, Instant),
    shown: bool,
}

impl Live {
    pub(crate) fn new() -> Self {
        let terminal = redraws(&std::io::stderr());
        let every = if terminal { Duration::from_millis(500) } else { Duration::from_secs(10) };
        let now = Instant::now();
        Live { every, terminal, last: now, before: (0, now), shown: false }
    }

    pub(crate) fn tick(&mut self, handle: &Handle, levels: &Levels, progress: impl Fn() -> String) {
        if self.last.elapsed() < self.every {
            return;
        }
        self.last = Instant::now();
        if !levels.counts(is_journal()) {
            return;
        }
        let ledger = handle.snapshot().ledger();
        let (packets, then) = self.before;
        let rate =
            (ledger.received - packets.min(ledger.received)) as f64 / then.elapsed().as_secs_f64() / 1e6;
        self.before = (ledger.received, self.last);
        let line = format!(
            "{:.1} s: in {} ({rate:.2} Mpps), out {}, dropped {}, {}",
            ledger.seconds,
            ledger.received,
            ledger.out,
            ledger.dropped_total(),
            progress()
        );
        self.shown = true;
        let mut err = std::io::stderr().lock();
        // A closed standard error is no reason to stop forwarding.
        let _ = if self.terminal { write!(err, "\r\x1b[K{line}") } else { writeln!(err, "{line}") };
        let _ = err.flush();
    }

    pub(crate) fn end(&mut self) {
        if self.shown && self.terminal {
            eprintln!();
        }
    }
}

/// What the final report is made of.
pub(crate) struct Report<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) nodes: &'a [String],
    pub(crate) ports: &'a [String],
    pub(crate) told: Told,
    pub(crate) traces: &'a [TraceEntry],
}

impl Report<'_> {
    /// As JSON: traces, then one object with the books.
    pub(crate) fn print_json(&self, ledger: &Ledger) -> anyhow::Result<()> {
        let mut out = crate::usage::out();
        for trace in self.traces {
            let mut line = serde_json::to_value(trace)?;
            line["v"] = json!(1);
            line["trace"] = json!(true);
            writeln!(out, "{line}")?;
        }
        let mut line = serde_json::to_value(ledger)?;
        line["v"] = json!(1);
        for (key, value) in &self.told.json {
            line[key] = value.clone();
        }
        line["nodes"] = self.nodes_json();
        line["ports"] = self.ports_json();
        writeln!(out, "{line}")?;
        Ok(())
    }

    fn nodes_json(&self) -> serde_json::Value {
        let one = |(name, node): (&String, &tidemill_graph::counters::NodeCounters)| {
            let drops = node.dropped.iter().map(|(reason, n)| (reason.name().to_string(), json!(n)));
            let drops: serde_json::Map<_, _> = drops.collect();
            json!({"name": name, "packets": node.packets, "calls": node.calls, "busy_ns": node.busy_ns,
                "made": node.made, "consumed": node.consumed, "dropped": drops})
        };
        self.nodes.iter().zip(&self.snapshot.nodes).map(one).collect()
    }

    fn ports_json(&self) -> serde_json::Value {
        let one = |(name, port): (&String, &tidemill_port::PortCounters)| {
            json!({"name": name, "in": port.rx.packets, "in_bytes": port.rx.bytes,
                "out": port.tx.packets, "out_bytes": port.tx.bytes})
        };
        self.ports.iter().zip(&self.snapshot.ports).map(one).collect()
    }

    /// For people.
    pub(crate) fn print(&self, ledger: &Ledger) -> anyhow::Result<()> {
        let mut out = crate::usage::out();
        for trace in self.traces {
            let note = trace.note.as_deref().map(|note| format!("  [{note}]")).unwrap_or_default();
            let at = format!("{}#{}", trace.worker, trace.id);
            writeln!(out, "trace {at:<6} {:<16} -> {:<24} {}{note}", trace.at, trace.verdict, trace.packet)?;
        }
        self.told.first.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out, "\n{}\n", self.node_table(ledger))?;
        writeln!(out, "{}\n", self.port_table())?;
        let drops = self.drop_table(ledger);
        if ledger.dropped_total() > 0 {
            writeln!(out, "{drops}\n")?;
        }
        writeln!(
            out,
            "in {} + made {} = out {} + dropped {} + consumed {} + held {}",
            ledger.received,
            ledger.made,
            ledger.out,
            ledger.dropped_total(),
            ledger.consumed,
            ledger.held
        )?;
        writeln!(out, "{:.3} s, {:.3} Mpps", ledger.seconds, ledger.mpps)?;
        self.told.last.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        Ok(())
    }

    fn node_table(&self, ledger: &Ledger) -> Table {
        let mut table = new_table(&[
            "node",
            "packets",
            "bursts",
            "ns/packet",
            "% of time",
            "made",
            "consumed",
            "dropped",
        ]);
        let total = ledger.seconds * 1e9;
        let mut row = |name: String, packets: u64, calls: u64, ns: u64, rest: [u64; 3]| {
            if packets > 0 {
                let [made, consumed, dropped] = rest.map(|n| n.to_string());
                let each = format!("{:.1}", ns as f64 / packets as f64);
                let share = format!("{:.1}", 100.0 * ns as f64 / total.max(1.0));
                table.add_row([
                    name,
                    packets.to_string(),
                    calls.to_string(),
                    each,
                    share,
                    made,
                    consumed,
                    dropped,
                ]);
            }
        };
        for (name, (port, ns)) in
            self.ports.iter().zip(self.snapshot.ports.iter().zip(&self.snapshot.port_ns))
        {
            row(
                format!("{name} rx"),
                port.rx.packets,
                self.snapshot.bursts,
                ns.0,
                [port.rx.made, 0, port.rx.dropped.total()],
            );
        }
        for (name, node) in self.nodes.iter().zip(&self.snapshot.nodes) {
            row(
                name.clone(),
                node.packets,
                node.calls,
                node.busy_ns,
                [node.made, node.consumed, node.dropped.total()],
            );
        }
        for (name, (port, ns)) in
            self.ports.iter().zip(self.snapshot.ports.iter().zip(&self.snapshot.port_ns))
        {
            row(
                format!("{name} tx"),
                port.tx.packets,
                self.snapshot.bursts,
                ns.1,
                [port.tx.made, 0, port.tx.dropped.total()],
            );
        }
        table
    }

    fn port_table(&self) -> Table {
        let mut table = new_table(&["port", "in", "in bytes", "out", "out bytes"]);
        for (name, port) in self.ports.iter().zip(&self.snapshot.ports) {
            let numbers = [port.rx.packets, port.rx.bytes, port.tx.packets, port.tx.bytes];
            table.add_row(std::iter::once(name.clone()).chain(numbers.iter().map(u64::to_string)));
        }
        table
    }

    fn drop_table(&self, ledger: &Ledger) -> Table {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(["drops", "packets", ""]);
        for reason in DropReason::ALL {
            let packets = ledger.dropped_for(*reason);
            if packets > 0 {
                table.add_row([reason.name(), &packets.to_string(), reason.help()]);
            }
        }
        right_align(&mut table, 1..2);
        table
    }
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    right_align(&mut table, 1..header.len());
    table
}

fn right_align(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        table.column_mut(column).into_iter().for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    }
}
