//! What `top` looks like.

use super::super::grid::{or_dash, si, si_unit, span};
use super::super::show::books;
use super::sample::{DropRate, NodeRate, PortRate, Rates, Sample, WorkerRate};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use tidemill_control::schema::{Link, Summary};

/// Columns of a worker's load bar.
const BAR: usize = 20;

/// A worker busier than this has no room for bursts.
const BUSY_PERCENT: f64 = 90.0;

/// What fills the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Panel {
    /// A little of everything.
    #[default]
    All,
    Ports,
    Drops,
    Workers,
    Neighbors,
    Nodes,
}

impl Panel {
    /// In the order of their keys, 0 to 5.
    pub(super) const LIST: [Panel; 6] =
        [Panel::All, Panel::Ports, Panel::Drops, Panel::Workers, Panel::Neighbors, Panel::Nodes];

    fn name(self) -> &'static str {
        match self {
            Panel::All => "all",
            Panel::Ports => "ports",
            Panel::Drops => "drops",
            Panel::Workers => "workers",
            Panel::Neighbors => "neighbors",
            Panel::Nodes => "nodes",
        }
    }
}

/// What there is to draw.
#[derive(Default)]
pub(super) struct View {
    pub(super) sample: Option<Sample>,
    pub(super) rates: Rates,
    /// Why there is nothing new.
    pub(super) error: Option<String>,
    pub(super) paused: bool,
    pub(super) panel: Panel,
    /// Rows scrolled over.
    pub(super) scroll: usize,
    /// Without colours: what they say is said by bold, reverse and words as well.
    pub(super) plain: bool,
}

impl View {
    fn coloured(&self, colour: Color) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.plain { style } else { style.fg(colour) }
    }

    fn bad(&self, bad: bool) -> Style {
        if bad { self.coloured(Color::Red) } else { Style::new() }
    }

    /// How many rows the frame needs to show everything.
    pub(super) fn height(&self) -> u16 {
        let sections: usize = self.sections().iter().map(|section| section.rows.len() + 1).sum();
        u16::try_from(sections + 7).unwrap_or(u16::MAX)
    }

    /// Draws a frame.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(5), Constraint::Fill(1), Constraint::Length(1)])
                .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        self.body(frame, body);
        frame.render_widget(Paragraph::new(self.foot()), foot);
    }

    fn head(&self) -> Vec<Line<'static>> {
        let Some(sample) = &self.sample else {
            return vec![Line::styled("tidemill top", Style::new().add_modifier(Modifier::BOLD))];
        };
        let (summary, rates) = (&sample.summary, &self.rates);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut title = vec![
            Span::styled(format!("tidemill {}", summary.version), bold),
            Span::raw(format!("  {}  up {}", summary.config, span(summary.seconds))),
        ];
        if self.paused {
            title.push(Span::styled("  paused", self.coloured(Color::Yellow)));
        }
        let both = |pps, bps| format!("{} {}", si_unit(pps, "pps"), si_unit(bps, "b/s"));
        let flow = vec![
            Span::styled(format!("in {}", both(rates.in_pps, rates.in_bps)), bold),
            Span::styled(format!("   out {}", both(rates.out_pps, rates.out_bps)), bold),
            Span::styled(
                format!("   dropped {}", si_unit(rates.dropped_pps, "pps")),
                self.bad(rates.dropped_pps > 0.0),
            ),
        ];
        let off = books_off_by(summary);
        let mut account = vec![Span::raw(books(summary))];
        if off != 0 {
            account.push(Span::styled(format!("  off by {off}"), self.bad(true)));
        }
        let mut states = std::collections::BTreeMap::<&str, u64>::new();
        for (state, count) in sample.neighbors.values().flatten() {
            *states.entry(state).or_default() += count;
        }
        let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let neighbors = if states.is_empty() { "none".to_owned() } else { states.join(", ") };
        let tabs = Panel::LIST.iter().enumerate().flat_map(|(key, panel)| {
            let style =
                if *panel == self.panel { bold.add_modifier(Modifier::REVERSED) } else { Style::new() };
            [Span::styled(format!(" {key} {} ", panel.name()), style), Span::raw(" ")]
        });
        vec![
            Line::from(title),
            Line::from(flow),
            Line::from(account),
            Line::from(format!("neighbors: {neighbors}")),
            Line::from(tabs.collect::<Vec<_>>()),
        ]
    }

    fn foot(&self) -> Line<'static> {
        match &self.error {
            Some(error) => Line::styled(format!("trying again: {error}"), self.bad(true)),
            None => Line::from("q quit  tab 0-5 panel  up down scroll  p pause"),
        }
    }

    fn body(&self, frame: &mut Frame<'_>, area: Rect) {
        let sections = self.sections();
        let wanted: Vec<usize> = sections.iter().map(|section| section.rows.len() + 1).collect();
        let heights = share(area.height as usize, &wanted);
        let areas = Layout::vertical(heights.iter().map(|&rows| Constraint::Length(rows as u16))).split(area);
        for (section, area) in sections.into_iter().zip(areas.iter()) {
            section.draw(frame, *area, if self.panel == Panel::All { 0 } else { self.scroll });
        }
    }

    /// The rows that the panel could scroll over.
    pub(super) fn rows(&self) -> usize {
        if self.panel == Panel::All {
            0
        } else {
            self.sections().iter().map(|section| section.rows.len()).sum()
        }
    }

    fn sections(&self) -> Vec<Section> {
        match self.panel {
            Panel::All => vec![self.ports(), self.drops(), self.workers(), self.nodes()],
            Panel::Ports => vec![self.ports()],
            Panel::Drops => vec![self.drops()],
            Panel::Workers => vec![self.workers()],
            Panel::Neighbors => vec![self.neighbors()],
            Panel::Nodes => vec![self.nodes()],
        }
    }

    fn ports(&self) -> Section {
        let row = |port: &PortRate| {
            let (link, down) = match port.link {
                Some(Link::Up) => ("up", false),
                Some(Link::Down) => ("down", true),
                Some(Link::Away) => ("away", true),
                None => ("-", false),
            };
            let rates = [port.in_pps, port.in_bps, port.out_pps, port.out_bps, port.dropped_pps];
            let mut row = vec![(port.name.clone(), Style::new()), (link.to_owned(), self.bad(down))];
            row.extend(rates.map(|rate| (si(rate), Style::new())));
            if let Some(dropped) = row.last_mut() {
                dropped.1 = self.bad(port.dropped_pps > 0.0);
            }
            row
        };
        let header =
            ["ports", "link", ">in pps", ">in b/s", ">out pps", ">out b/s", ">dropped/s"].map(str::to_owned);
        let widths = [16, 5, 10, 10, 10, 10, 10].map(Constraint::Length);
        Section::new(header, widths, self.rates.ports.iter().map(row))
    }

    fn drops(&self) -> Section {
        let row = |drop: &DropRate| {
            let style = self.bad(drop.pps > 0.0);
            let plain = Style::new();
            vec![
                (drop.reason.clone(), style),
                (drop.at.clone(), plain),
                (si(drop.pps), style),
                (drop.packets.to_string(), plain),
                (drop.help.clone(), plain),
            ]
        };
        let header = ["drops", "at", ">per s", ">packets", "meaning"].map(str::to_owned);
        let widths = [
            Constraint::Length(22),
            Constraint::Length(16),
            Constraint::Length(8),
            Constraint::Length(12),
            Constraint::Fill(1),
        ];
        Section::new(header, widths, self.rates.drops.iter().map(row))
    }

    fn workers(&self) -> Section {
        let row = |worker: &WorkerRate| {
            let plain = Style::new();
            let few = worker.pool_free * 20 < worker.pool_frames;
            let load = format!("[{}] {:>5.1} %", bar(worker.busy_percent), worker.busy_percent);
            vec![
                (worker.index.to_string(), plain),
                (or_dash(worker.cpu.map(|cpu| cpu.to_string()).as_deref()), plain),
                (load, self.bad(worker.busy_percent > BUSY_PERCENT)),
                (format!("{:.1} %", worker.asleep_percent), plain),
                (si(worker.in_pps), plain),
                (format!("{} of {}", worker.pool_free, worker.pool_frames), self.bad(few)),
            ]
        };
        // Node and stage are in `show workers`: here all has to fit into 80 columns.
        let header = ["workers", "cpu", "busy", ">asleep", ">in pps", ">frames free"].map(str::to_owned);
        let widths = [8, 4, BAR as u16 + 10, 7, 9, 15].map(Constraint::Length);
        Section::new(header, widths, self.rates.workers.iter().map(row))
    }

    fn neighbors(&self) -> Section {
        let plain = Style::new();
        let all = self.sample.iter().flat_map(|sample| &sample.neighbors);
        let rows = all.flat_map(|(interface, states)| {
            let row = |(state, count): (&String, &u64)| {
                vec![(interface.clone(), plain), (state.clone(), plain), (count.to_string(), plain)]
            };
            states.iter().map(row).collect::<Vec<_>>()
        });
        let header = ["neighbors", "state", ">how many"].map(str::to_owned);
        Section::new(header, [20, 16, 10].map(Constraint::Length), rows)
    }

    fn nodes(&self) -> Section {
        let row = |node: &NodeRate| {
            let plain = Style::new();
            vec![
                (node.name.clone(), plain),
                (si(node.pps), plain),
                (format!("{:.1}", node.per_burst), plain),
                (format!("{:.1}", node.ns_per_packet), plain),
                (si(node.dropped_pps), self.bad(node.dropped_pps > 0.0)),
            ]
        };
        let header = ["nodes", ">pps", ">per burst", ">ns/packet", ">dropped/s"].map(str::to_owned);
        let widths = [24, 10, 10, 10, 10].map(Constraint::Length);
        Section::new(header, widths, self.rates.nodes.iter().map(row))
    }
}

/// A table with its header; a column whose name begins with `>` holds numbers.
struct Section {
    header: Vec<String>,
    widths: Vec<Constraint>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Section {
    fn new<const N: usize>(
        header: [String; N],
        widths: [Constraint; N],
        rows: impl Iterator<Item = Vec<(String, Style)>>,
    ) -> Self {
        Section { header: header.into(), widths: widths.into(), rows: rows.collect() }
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, scroll: usize) {
        let room = usize::from(area.height).saturating_sub(1);
        let scroll = scroll.min(self.rows.len().saturating_sub(room));
        let shown = self.rows.iter().skip(scroll).take(room);
        let cell = |text: &str, style: Style, number: bool| {
            let side = if number { Alignment::Right } else { Alignment::Left };
            Cell::from(Text::from(text.to_owned()).alignment(side)).style(style)
        };
        let number = |column: usize| self.header.get(column).is_some_and(|name| name.starts_with('>'));
        let rows = shown.map(|row| {
            Row::new(row.iter().enumerate().map(|(at, (text, style))| cell(text, *style, number(at))))
        });
        let header = self.header.iter().enumerate().map(|(at, name)| {
            let hidden = at == 0 && self.rows.len() > room;
            let name = name.trim_start_matches('>');
            let last = (scroll + room).min(self.rows.len());
            let text = if hidden {
                format!("{name} {}-{last}/{}", scroll + 1, self.rows.len())
            } else {
                name.to_owned()
            };
            cell(&text, Style::new().add_modifier(Modifier::UNDERLINED), number(at))
        });
        let table = Table::new(rows, &self.widths).header(Row::new(header)).column_spacing(1);
        frame.render_widget(table, area);
    }
}

/// What the books are off by.
fn books_off_by(s: &Summary) -> i128 {
    let dropped: u64 = s.dropped.values().sum();
    let inside = i128::from(s.received) + i128::from(s.made);
    inside - i128::from(s.out) - i128::from(dropped) - i128::from(s.consumed) - i128::from(s.held)
}

fn bar(percent: f64) -> String {
    let full = (percent.clamp(0.0, 100.0) / 100.0 * BAR as f64).round() as usize;
    format!("{}{}", "|".repeat(full), " ".repeat(BAR - full))
}

/// Shares rows among sections: each gets a row more in turn, as long as it wants one and there are any.
fn share(mut rows: usize, wanted: &[usize]) -> Vec<usize> {
    let mut given = vec![0; wanted.len()];
    loop {
        let before = rows;
        for (given, wanted) in given.iter_mut().zip(wanted) {
            if *given < *wanted && rows > 0 {
                *given += 1;
                rows -= 1;
            }
        }
        if rows == before {
            return given;
        }
    }
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
