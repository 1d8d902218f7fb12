use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tidemill_control::schema::{Direction, DropCount, Node, Port, Worker};

fn sample(at_s: f64, n: u64) -> Sample {
    let direction = |packets| Direction { packets, bytes: packets * 1000, ..Direction::default() };
    let port = |number: u64| Port {
        name: format!("port{number}"),
        link: Some(if number == 1 { Link::Down } else { Link::Up }),
        rx: direction(n),
        tx: direction(n * 2),
        ..Port::default()
    };
    let drop = |reason: &str, count| DropCount {
        reason: reason.into(),
        at: "ip4-lookup".into(),
        count,
        help: "no route to the destination".into(),
    };
    let node =
        |number: u64| Node { name: format!("node{number}"), packets: n, calls: n / 8, ..Node::default() };
    let summary = Summary {
        received: n,
        in_bytes: n * 1000,
        out: n - 7,
        dropped: [("no-route".to_owned(), 7)].into(),
        version: "9.9".into(),
        config: "router.toml".into(),
        seconds: 3661.0,
        ..Summary::default()
    };
    Sample {
        at_s,
        summary,
        ports: (0..6).map(port).collect(),
        workers: vec![
            Worker { busy_percent: 50.0, pool_free: 900, pool_frames: 1000, ..Worker::default() },
            Worker {
                index: 1,
                cpu: Some(3),
                busy_percent: 99.0,
                pool_free: 3,
                pool_frames: 1000,
                ..Worker::default()
            },
        ],
        drops: vec![drop("constant", 9_000_000), drop("no-route", n / 10)],
        nodes: (0..20).map(node).collect(),
        neighbors: [("left".to_owned(), [("reachable".to_owned(), 12), ("stale".to_owned(), 3)].into())]
            .into(),
    }
}

fn view() -> View {
    let (old, new) = (sample(1.0, 1_000_000), sample(2.0, 2_234_000));
    let rates = Rates::between(Some(&old), &new);
    View { sample: Some(new), rates, ..View::default() }
}

fn drawn(view: &View, width: u16, height: u16) -> (Vec<String>, ratatui::buffer::Buffer) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    (super::super::lines(&buffer), buffer)
}

#[test]
fn everything_is_there_at_80_by_24() {
    let (lines, _) = drawn(&view(), 80, 24);
    assert_eq!(lines.len(), 24);
    assert_eq!(lines[0], "tidemill 9.9  router.toml  up 1:01:01");
    assert!(
        lines[1].starts_with("in 1.23 Mpps 9.87 Gb/s   out 1.23 Mpps 0 b/s   dropped 0 pps"),
        "{}",
        lines[1]
    );
    assert_eq!(lines[2], "in 2234000 + made 0 = out 2233993 + dropped 7 + consumed 0 + held 0");
    assert_eq!(lines[3], "neighbors: 12 reachable, 3 stale");
    assert_eq!(lines[23], "q quit  tab 0-5 panel  up down scroll  p pause");
    let at = |start: &str| {
        lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {lines:#?}"))
    };
    assert!(lines[at("ports")].contains("in pps"), "{lines:#?}");
    assert!(lines[at("port1")].contains("down") && lines[at("port0")].contains("1.23 M"), "{lines:#?}");
    let drops = at("drops");
    assert!(lines[drops + 1].starts_with("no-route") && lines[drops + 1].contains("123 k"), "{lines:#?}");
    assert!(lines[drops + 2].starts_with("constant"), "those that grow come first: {lines:#?}");
    let workers = at("workers");
    assert!(lines[workers + 1].contains("[||||||||||          ]  50.0 %"), "{lines:#?}");
    assert!(lines[workers + 2].contains(" 99.0 %") && lines[workers + 2].contains("3 of 1000"), "{lines:#?}");
    assert!(lines[at("nodes")].starts_with("nodes 1-"), "says that there are more: {lines:#?}");
}

#[test]
fn small_and_odd_terminals_do_no_harm() {
    for (width, height) in [(1, 1), (20, 3), (80, 6), (10, 40), (300, 100)] {
        for panel in Panel::LIST {
            drawn(&View { panel, scroll: 1000, ..view() }, width, height);
            drawn(&View { panel, ..View::default() }, width, height);
        }
    }
}

#[test]
fn a_panel_scrolls_to_its_end_and_no_farther() {
    let nodes = View { panel: Panel::Nodes, scroll: 3, ..view() };
    assert_eq!(nodes.rows(), 20);
    let (lines, _) = drawn(&nodes, 80, 16);
    assert!(lines[5].starts_with("nodes 4-12/20"), "{lines:#?}");
    assert!(lines[6].starts_with("node3 "), "{lines:#?}");
    let (lines, _) = drawn(&View { scroll: 1000, ..nodes }, 80, 16);
    assert!(lines[14].starts_with("node19 "), "{lines:#?}");
}

#[test]
fn colours_are_left_out_when_asked() {
    let coloured = |plain| {
        let (_, buffer) = drawn(&View { plain, error: Some("gone".into()), ..view() }, 80, 24);
        buffer.content().iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(coloured(false));
    assert!(!coloured(true));
}

#[test]
fn a_router_that_went_away_and_wrong_books_are_said() {
    let mut view = view();
    view.error = Some("no router answers".into());
    view.paused = true;
    if let Some(sample) = &mut view.sample {
        sample.summary.held = 5;
    }
    let (lines, _) = drawn(&view, 100, 30);
    assert_eq!(lines[29], "trying again: no router answers");
    assert!(lines[0].ends_with("paused"));
    assert!(lines[2].ends_with("held 5  off by -5"), "{}", lines[2]);
}

#[test]
fn rows_are_shared_fairly() {
    assert_eq!(share(19, &[7, 3, 3, 21]), [7, 3, 3, 6]);
    assert_eq!(share(3, &[7, 3, 3, 21]), [1, 1, 1, 0]);
    assert_eq!(share(100, &[2, 3]), [2, 3]);
    assert_eq!(share(0, &[]), [0; 0]);
}
