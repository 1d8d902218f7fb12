//! `tidemill top`: a running router, live.

mod draw;
mod sample;

use super::{Live, failed, print_line};
use crate::progress::redraws;
use anyhow::Result;
use clap::Args;
use draw::{Panel, View};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use sample::{Rates, Sample};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};
use tidemill_control::schema::Summary;
use tidemill_control::{Client, ClientError};

/// Between two looks at the router.
const EVERY: Duration = Duration::from_secs(1);

/// How soon a key or a signal is noticed.
const TICK: Duration = Duration::from_millis(50);

/// Columns where there is no terminal.
const WIDTH: u16 = 100;

/// Arguments of `tidemill top`.
#[derive(Args)]
#[command(
    after_help = "Keys: q quit, tab or 0 to 5 choose what to see, arrows scroll, p pauses. NO_COLOR is respected.\n\n\
    Examples:\n  tidemill top\n  tidemill top --once\n  tidemill top --json | jq .rates.in_pps"
)]
pub(crate) struct Top {
    /// Print one frame as text, after a second, and end; so too where standard output is no terminal, or one that cannot redraw (TERM=dumb)
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    live: Live,
}

/// A line of `--json`.
#[derive(Serialize)]
struct TopLine<'a> {
    summary: &'a Summary,
    rates: &'a Rates,
}

pub(super) fn run(args: &Top) -> Result<bool> {
    let client = args.live.client()?;
    if args.live.json {
        return lines_of_json(&client, args.once);
    }
    if args.once || !redraws(&std::io::stdout()) {
        return once(&client);
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let samples = watch(client)?;
    // Puts the terminal back when the program panics, too.
    let mut terminal = ratatui::try_init()?;
    let result = live(&mut terminal, &samples, &stop);
    ratatui::restore();
    result?;
    Ok(true)
}

/// Two looks, a second apart.
fn once(client: &Client) -> Result<bool> {
    let start = Instant::now();
    let old = Sample::take(client, start).map_err(failed)?;
    thread::sleep(EVERY);
    let new = Sample::take(client, start).map_err(failed)?;
    let rates = Rates::between(Some(&old), &new);
    let view = View { sample: Some(new), rates, plain: true, ..View::default() };
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, view.height()))?;
    terminal.draw(|frame| view.draw(frame))?;
    let lines = lines(terminal.backend().buffer());
    // The last line is about keys, and the one with the panels' names too.
    for (at, line) in lines.iter().enumerate() {
        if at != 4 && at + 1 != lines.len() {
            println!("{line}");
        }
    }
    Ok(true)
}

/// The text of a frame, line by line.
fn lines(buffer: &Buffer) -> Vec<String> {
    let row = |cells: &[ratatui::buffer::Cell]| {
        cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    };
    buffer.content().chunks(usize::from(buffer.area.width).max(1)).map(row).collect()
}

fn lines_of_json(client: &Client, once: bool) -> Result<bool> {
    let start = Instant::now();
    let mut old = Sample::take(client, start).map_err(failed)?;
    loop {
        thread::sleep(EVERY);
        let new = Sample::take(client, start).map_err(failed)?;
        print_line(&TopLine { summary: &new.summary, rates: &Rates::between(Some(&old), &new) })?;
        if once {
            return Ok(true);
        }
        old = new;
    }
}

/// Looks at the router every second on a thread of its own, so that a router that does not answer holds up no key.
fn watch(client: Client) -> Result<Receiver<Result<Sample, ClientError>>> {
    let (tell, samples) = channel();
    let start = Instant::now();
    thread::Builder::new().name("top".to_owned()).spawn(move || {
        loop {
            let began = Instant::now();
            if tell.send(Sample::take(&client, start)).is_err() {
                return;
            }
            thread::sleep(EVERY.saturating_sub(began.elapsed()));
        }
    })?;
    Ok(samples)
}

/// Draws until somebody quits.
fn live(
    terminal: &mut ratatui::DefaultTerminal,
    samples: &Receiver<Result<Sample, ClientError>>,
    stop: &AtomicBool,
) -> Result<()> {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let mut view = View { plain, ..View::default() };
    let mut changed = true;
    while !stop.load(Ordering::Relaxed) {
        loop {
            match samples.try_recv() {
                Ok(sample) => changed |= view.take(sample),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => anyhow::bail!("top: the watching thread has ended: a bug"),
            }
        }
        if changed {
            terminal.draw(|frame| view.draw(frame))?;
            changed = false;
        }
        if event::poll(TICK)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if !view.key(key, terminal.size()?.height) {
                        return Ok(());
                    }
                    changed = true;
                }
                Event::Resize(..) => changed = true,
                _ => {}
            }
        }
    }
    Ok(())
}

impl View {
    /// Takes news; whether there is anything new to see.
    fn take(&mut self, sample: Result<Sample, ClientError>) -> bool {
        if self.paused {
            return false;
        }
        match sample {
            Ok(sample) => {
                self.rates = Rates::between(self.sample.as_ref(), &sample);
                (self.sample, self.error) = (Some(sample), None);
            }
            Err(error) => {
                self.error = Some(error.to_string());
                // What has stopped to come in has no rate.
                if let Some(sample) = &self.sample {
                    self.rates = Rates::between(None, sample);
                }
            }
        }
        true
    }

    /// Does what a key says; false if that is to quit.
    fn key(&mut self, key: KeyEvent, height: u16) -> bool {
        let page = usize::from(height.saturating_sub(8)).max(1);
        let panels = Panel::LIST.len();
        let at = Panel::LIST.iter().position(|panel| *panel == self.panel).unwrap_or(0);
        let (mut panel, mut scroll) = (at, self.scroll);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char(digit @ '0'..='5') => panel = digit as usize - '0' as usize,
            KeyCode::Tab | KeyCode::Right => panel = (at + 1) % panels,
            KeyCode::BackTab | KeyCode::Left => panel = (at + panels - 1) % panels,
            KeyCode::Up | KeyCode::Char('k') => scroll = scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => scroll += 1,
            KeyCode::PageUp => scroll = scroll.saturating_sub(page),
            KeyCode::PageDown => scroll += page,
            KeyCode::Home => scroll = 0,
            KeyCode::End => scroll = usize::MAX,
            _ => {}
        }
        if panel != at {
            self.panel = Panel::LIST.get(panel).copied().unwrap_or_default();
            scroll = 0;
        }
        // Not farther than the last row, so that the way back is no longer than it looks.
        let room = usize::from(height.saturating_sub(7));
        self.scroll = scroll.min(self.rows().saturating_sub(room));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_control::schema::Node;

    #[test]
    fn keys_choose_scroll_pause_and_quit() {
        let nodes = (0..40).map(|n| Node { name: format!("n{n}"), ..Node::default() }).collect();
        let mut view = View::default();
        assert!(view.take(Ok(Sample { nodes, ..Sample::default() })));
        let press = |view: &mut View, code| view.key(KeyEvent::from(code), 24);
        assert!(press(&mut view, KeyCode::Char('5')));
        assert_eq!(view.panel, Panel::Nodes);
        assert!(press(&mut view, KeyCode::Down) && view.scroll == 1);
        assert!(press(&mut view, KeyCode::End) && view.scroll == 23);
        assert!(press(&mut view, KeyCode::Up) && view.scroll == 22);
        assert!(press(&mut view, KeyCode::Tab));
        assert_eq!((view.panel, view.scroll), (Panel::All, 0));
        assert!(press(&mut view, KeyCode::BackTab) && view.panel == Panel::Nodes);
        assert!(press(&mut view, KeyCode::Char('p')) && view.paused);
        let gone = || ClientError::Missing { path: "gone".into() };
        assert!(!view.take(Err(gone())) && view.error.is_none(), "paused is paused");
        assert!(press(&mut view, KeyCode::Char('p')) && view.take(Err(gone())));
        assert!(view.error.is_some() && view.sample.is_some(), "the last figures stay");
        assert!(view.take(Ok(Sample::default())) && view.error.is_none());
        assert!(!press(&mut view, KeyCode::Char('q')));
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!view.key(ctrl_c, 24));
    }
}
