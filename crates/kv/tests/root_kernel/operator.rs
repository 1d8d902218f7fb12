//! What an operator does with the cache, and what is told: taking over, interfaces that come and go, whom it answers and how often, what it counts and why
//! it serves nothing.

use crate::lab::{Lab, answer_to, came, frame, packet, passing_on, ready};
use crate::net;
use std::path::Path;
use std::time::Duration;
use tidemill_bpf::Pins;
use tidemill_kv::kernel::{Blind, Command, Look, Mode, detach};

const A: &str = "VALUE v 0 1\r\na\r\nEND\r\n";
const PASS: u32 = 2;
const TX: u32 = 3;

fn kept(lab: &mut Lab) {
    lab.tcp("set v 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("v", A);
}

fn root() -> &'static Path {
    Path::new(Pins::ROOT)
}

/// Another cable, with nobody at its other end.
fn other_cable() {
    net::run("ip link add other type veth peer name nobody");
    net::run("ip link set other up");
}

fn pinned() -> Vec<String> {
    let names = Pins::left(root()).unwrap().into_iter().map(|left| left.name);
    names.filter(|name| name.starts_with("kv-")).collect()
}

#[test]
fn root_kernel_an_interface_that_is_named_twice() {
    if !ready("operator::root_kernel_an_interface_that_is_named_twice") {
        return;
    }
    let mut lab = Lab::with(|options| options.interfaces.push("server".to_owned()));
    kept(&mut lab);
    assert_eq!(pinned().len(), 1, "{:?}", pinned());
}

/// At the other end of most virtual cables, as of a container's, nobody has an XDP program: what a driver sends back is lost there.
#[test]
fn root_kernel_a_virtual_cable_with_no_program_at_its_other_end() {
    if !ready("operator::root_kernel_a_virtual_cable_with_no_program_at_its_other_end") {
        return;
    }
    let says = |lab: &mut Lab, begin: &str, word: &str| {
        let said = lab.cache.describe();
        assert!(said.iter().any(|line| line.starts_with(begin) && line.contains(word)), "{said:?}");
    };
    let mut lab = Lab::bare(Mode::Auto);
    says(&mut lab, "on server, generic: this is a virtual cable", "--native");
    kept(&mut lab);
    let hits = lab.cache.count("get-hit");
    for _ in 0..100 {
        assert_eq!(lab.udp("get v\r\n"), A);
        assert_eq!(lab.udp6("get v\r\n"), A);
    }
    assert!(lab.cache.count("get-hit") >= hits + 100, "{:?}", lab.cache.counts());
    // Who asks for the driver's way is told what that needs; who takes it over without a word goes on with it, and is told so too.
    let mut lab = lab.detach().attach_with(|options| options.mode = Mode::Native);
    says(&mut lab, "on server, native: this is a virtual cable", "has an XDP program too");
    let mut lab = lab.leave().attach_with(|options| options.mode = Mode::Auto);
    says(&mut lab, "on server, native: this is a virtual cable", "has an XDP program too");
}

#[test]
fn root_kernel_who_is_refused_leaves_what_was_there() {
    if !ready("operator::root_kernel_who_is_refused_leaves_what_was_there") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    let before = lab.cache.slot(b"v").0;
    let left = lab.leave();
    // More would have more unanswered writes than one slot counts.
    let said = left.refused(|options| options.connections = 131_072);
    assert!(said.starts_with("--connections 131072: there is room for 1 to 130559"), "{said}");
    let mut second = std::process::Command::new("memcached")
        .args("-u root -p 11300 -U 11300 -l 127.0.0.1".split(' '))
        .spawn()
        .unwrap();
    while std::net::TcpStream::connect("127.0.0.1:11300").is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = left.refused(|options| {
        options.port = 11300;
        options.memcached.set_port(11300);
    });
    second.kill().unwrap();
    second.wait().unwrap();
    assert!(said.contains("stands in front of port 11211: detach it first"), "{said}");
    let said = left.refused(|options| options.memory *= 4);
    assert!(said.contains("--memory 16: --memory 3 fits"), "{said}");
    let said = left.refused(|options| options.connections = 100);
    assert!(said.contains("--connections 16384 fits"), "{said}");
    // One that fails when it has taken over one interface already.
    other_cable();
    let theirs = passing_on("other", None);
    let said = left.refused(|options| options.interfaces.push("other".to_owned()));
    assert!(said.contains("another XDP program is on other"), "{said}");
    drop(theirs);
    // All is as it was: the connection is followed, the value kept.
    let mut lab = left.attach_again();
    assert_eq!((lab.cache.blind(), lab.cache.slot(b"v").0), (0, before));
    lab.until_hit("v", A);
    assert_eq!(lab.cache.daemon().admitted, 0);
}

#[test]
fn root_kernel_programs_of_a_process_before_where_nobody_wants_them() {
    if !ready("operator::root_kernel_programs_of_a_process_before_where_nobody_wants_them") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    other_cable();
    let both = |options: &mut tidemill_kv::kernel::Options| options.interfaces.push("other".to_owned());
    let lab = lab.leave().attach_with(both);
    assert_eq!(pinned().len(), 2, "{:?}", pinned());
    let mut lab = lab.leave().attach_again();
    assert_eq!(pinned().len(), 1, "{:?}", pinned());
    let notes = lab.cache.take_notes();
    assert!(notes.iter().any(|note| note.contains("had its programs on other too")), "{notes:?}");
    // What passes there is not seen any more, of connections that are known either.
    assert_eq!(lab.cache.blind(), 1);
    lab.reconnect();
    lab.wait("the old connection's end", |lab| lab.cache.blind() == 0);
    kept(&mut lab);
    // An interface that was made anew has another number.
    let left = lab.leave().attach_with(both).leave();
    net::run("ip link del other");
    other_cable();
    let lab = left.attach_with(both);
    assert_eq!(pinned().len(), 2, "{:?}", pinned());
    drop(lab);
    assert!(pinned().is_empty(), "{:?}", pinned());
}

#[test]
fn root_kernel_what_is_no_cache_is_not_detached() {
    if !ready("operator::root_kernel_what_is_no_cache_is_not_detached") {
        return;
    }
    net::run("mount -t bpf bpf /sys/fs/bpf");
    other_cable();
    let pins = Pins::new(root(), "edge", 1).unwrap();
    let (object, attachment) = passing_on("other", Some(&pins));
    let said = detach(root(), "edge").map_err(|error| error.to_string());
    assert!(said.as_ref().is_err_and(|error| error.contains("\"edge\" is no cache")), "{said:?}");
    attachment.leave();
    pins.leave();
    drop(object);
    assert!(detach(root(), "edge").is_err());
    assert!(Pins::left(root()).unwrap().iter().any(|left| left.name == "edge" && left.attached.is_some()));
}

#[test]
fn root_kernel_whom_it_answers_and_where() {
    if !ready("operator::root_kernel_whom_it_answers_and_where") {
        return;
    }
    let mut lab = Lab::new(&["server", "lo"]);
    other_cable();
    kept(&mut lab);
    let get =
        |lab: &Lab, by: &str, from: &str, to: &str| came(lab, by, &frame(from, to, 11211, "get v\r\n")).0;
    let answered = |lab: &Lab| {
        [
            ("server", "10.9.0.2", "10.9.0.1"),
            ("server", "fd00:9::2", "fd00:9::1"),
            ("lo", "127.0.0.1", "127.0.0.1"),
            ("lo", "::1", "::1"),
            ("lo", "10.9.0.1", "10.9.0.1"),
            // A neighbour asks by an address that is this machine's alone.
            ("server", "10.9.0.2", "127.0.0.1"),
            ("server", "127.0.0.1", "127.0.0.1"),
            ("server", "127.0.0.1", "10.9.0.1"),
            ("server", "fd00:9::2", "::1"),
            // What one interface's subnet is for.
            ("lo", "10.9.0.2", "10.9.0.1"),
            ("other", "10.9.0.2", "10.9.0.1"),
            ("server", "192.0.2.1", "10.9.0.1"),
            ("server", "fd00:8::2", "fd00:9::1"),
        ]
        .map(|(by, from, to)| get(lab, by, from, to) == TX)
    };
    let wanted: [bool; 13] = std::array::from_fn(|at| at < 5);
    assert_eq!(answered(&lab), wanted);
    let said = lab.cache.describe();
    assert!(
        said.iter().any(|line| line.starts_with("10.9.0.0/24, fd00:9::/64") && line.ends_with("on server")),
        "{said:?}"
    );
    // A route to everywhere, without a gateway, is no subnet; one that is added later is.
    net::run("ip route add default dev server");
    net::run("ip route add 198.51.100.1/32 dev server");
    net::run("ip addr add 192.0.2.7/24 dev server");
    let mut later = wanted;
    later[11] = true;
    lab.wait("an address that is new", |lab| answered(lab) != wanted);
    assert_eq!(answered(&lab), later);
    assert_eq!(get(&lab, "server", "198.51.100.1", "10.9.0.1"), PASS);
    // Everybody of one family.
    let left = lab.detach();
    let mut lab = left.attach_with(|options| options.allow = vec![("::".parse().unwrap(), 0)]);
    lab.reconnect();
    lab.wait("connections that were there before", |lab| lab.cache.blind() == 0);
    lab.tcp("set v 0 0 1\r\na\r\n", "STORED\r\n");
    lab.wait("a hit", |lab| get(lab, "server", "2001:db8::1", "fd00:9::1") == TX);
    assert_eq!(get(&lab, "server", "10.9.0.2", "10.9.0.1"), PASS);
    assert!(
        lab.cache.describe().contains(&"::/0 are answered on server".to_owned()),
        "{:?}",
        lab.cache.describe()
    );
    // Of IPv4 and not of loopback addresses, which no wire brings.
    let mut lab = lab.detach().attach_with(|options| {
        options.allow = vec![("0.0.0.0".parse().unwrap(), 0)];
        options.interfaces = vec!["server".to_owned(), "other".to_owned()];
    });
    lab.reconnect();
    lab.wait("connections that were there before", |lab| lab.cache.blind() == 0);
    lab.wait("a hit", |lab| get(lab, "other", "192.0.2.9", "10.9.0.1") == TX);
    assert_eq!(get(&lab, "server", "127.0.0.1", "10.9.0.1"), PASS);
    assert_eq!(get(&lab, "server", "2001:db8::1", "fd00:9::1"), PASS);
    let lab = lab.detach().attach_with(|options| options.interfaces = vec!["other".to_owned()]);
    let mut lab = lab;
    let said = lab.cache.describe();
    assert!(said.iter().any(|line| line.starts_with("nobody is answered on other")), "{said:?}");
}

#[test]
fn root_kernel_limits_of_answers() {
    if !ready("operator::root_kernel_limits_of_answers") {
        return;
    }
    let mut lab = Lab::with(|options| {
        options.rate = 5;
        options.allow = vec![("0.0.0.0".parse().unwrap(), 0), ("::".parse().unwrap(), 0)];
    });
    kept(&mut lab);
    let answered = |lab: &Lab, sources: &dyn Fn(usize) -> String, to: &str| {
        let get = |at| came(lab, "server", &frame(&sources(at), to, 11211, "get v\r\n")).0 == TX;
        (0..60).filter(|at| get(*at)).count()
    };
    // All of it within a second, or a second begins in between. The first of each is one of them.
    let one = answered(&lab, &|_| "10.1.1.1".to_owned(), "10.9.0.1");
    assert!((5..=10).contains(&one), "{one} of one source");
    let each = answered(&lab, &|at| format!("10.2.0.{at}"), "10.9.0.1");
    assert_eq!(each, 60, "of 60 sources one each");
    // Whoever has one address of IPv6 has its neighbours too.
    let near = answered(&lab, &|at| format!("2001:db8:0:1::{at:x}"), "fd00:9::1");
    assert!((5..=10).contains(&near), "{near} of one /64");
    let far = answered(&lab, &|at| format!("2001:db8:0:{at:x}::1"), "fd00:9::1");
    assert!(far >= 59, "{far} of 60 networks");
    // All together.
    let mut lab = lab.leave().attach_with(|options| {
        options.rate_total = 5;
        options.allow = vec![("0.0.0.0".parse().unwrap(), 0)];
    });
    lab.until_hit("v", A);
    lab.rounds(Duration::from_millis(1050));
    let before = lab.cache.count("get-limited-total");
    let all = answered(&lab, &|at| format!("10.3.0.{at}"), "10.9.0.1");
    assert!((5..=10).contains(&all), "{all} of 60 sources");
    assert_eq!(lab.cache.count("get-limited-total"), before + 60 - all as u64);
}

#[test]
fn root_kernel_what_is_counted_and_why_nothing_is_served() {
    if !ready("operator::root_kernel_what_is_counted_and_why_nothing_is_served") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    let look = Look::open(root(), "kv").unwrap();
    kept(&mut lab);
    lab.tcp(
        "append v 0 0 1\r\n!\r\nget v\r\ngat 0 v\r\nset w 0 0 1 noreply\r\nw\r\nmn\r\n",
        "STORED\r\nVALUE v 0 2\r\na!\r\nEND\r\nVALUE v 0 2\r\na!\r\nEND\r\nMN\r\n",
    );
    assert_eq!(lab.udp("incr w 1\r\n"), "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
    let seen = look.commands().unwrap();
    let of = |name: &str, transport: &str| {
        let found: Vec<&Command> =
            seen.iter().filter(|one| (one.name, one.transport) == (name, transport)).collect();
        assert!(found.len() < 2, "{found:?}");
        found.first().map_or((0, 0), |one| (one.hits, one.passes))
    };
    for (name, times) in [("set", 2), ("append", 1), ("get", 1), ("gat", 1), ("mn", 1), ("incr", 0)] {
        assert_eq!(of(name, "tcp"), (0, times), "{name}: {seen:?}");
    }
    assert_eq!(of("incr", "udp"), (0, 1));
    let gets = of("get", "udp");
    assert!(gets.0 == lab.cache.count("get-hit") && gets.1 > 0, "{gets:?}");
    lab.rounds(Duration::from_millis(10));
    let state: Vec<(&str, u64)> = look.state().into_iter().map(|(name, value, _)| (name, value)).collect();
    assert!(
        state.contains(&("serving", 1)) && state.contains(&("admitted", lab.cache.daemon().admitted)),
        "{state:?}"
    );
    assert_eq!(look.why(), Vec::<String>::new());
    // What changes no value is followed. (Words of an administrator.)
    lab.tcp(
        "cache_memlimit 64\r\nslabs automove 0\r\nlru mode flat\r\nlru_crawler disable\r\n",
        "OK\r\nOK\r\nOK\r\nOK\r\n",
    );
    lab.tcp("shutdown\r\n", "ERROR: shutdown not enabled\r\n");
    lab.tcp("set v 0 0 1\r\na\r\n", "STORED\r\n");
    assert_eq!((lab.cache.blind(), lab.cache.slot(b"v").1), (0, 0));
    lab.until_hit("v", A);
    // What prints, or goes on for ever, is not.
    for (request, word) in [
        ("lru_crawler metadump all\r\n", "metadump"),
        ("watch fetchers\r\n", "watch"),
        ("cache_memlimit 64 noreply\r\n", "noreply"),
    ] {
        lab.tcp_begins(request);
        lab.wait("a connection that cannot be followed", |lab| lab.cache.blind() == 1);
        let blind = look.blind().unwrap();
        let [Blind { client, server, why, word: said }] = &blind[..] else { panic!("{blind:?}") };
        assert_eq!((client, server.to_string().as_str()), (&lab.tcp_address(), "10.9.0.1"));
        assert!(why.contains("not understood") && said.as_deref() == Some(word), "{blind:?}");
        assert!(look.why().contains(&"connections cannot be followed".to_owned()), "{:?}", look.why());
        lab.reconnect();
        lab.wait("its end", |lab| lab.cache.blind() == 0);
    }
    // Nobody works.
    let left = lab.leave();
    std::thread::sleep(Duration::from_millis(1100));
    assert!(look.why()[0].starts_with("no daemon"), "{:?}", look.why());
    drop(left);
}

#[test]
fn root_kernel_an_interface_that_goes_and_comes_back() {
    if !ready("operator::root_kernel_an_interface_that_goes_and_comes_back") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    other_cable();
    let mut lab = lab.leave().attach_with(|options| options.interfaces.push("other".to_owned()));
    lab.reconnect();
    lab.wait("connections from before", |lab| lab.cache.blind() == 0);
    kept(&mut lab);
    net::run("ip link del other");
    let mut notes = Vec::new();
    lab.wait("that it is seen", |lab| {
        notes.extend(lab.cache.take_notes());
        notes.iter().any(|note: &String| note.contains("the programs on other are gone"))
    });
    // The others go on.
    kept(&mut lab);
    lab.tcp("set v 0 0 1\r\nb\r\n", "STORED\r\n");
    assert_eq!(lab.udp("get v\r\n"), "VALUE v 0 1\r\nb\r\nEND\r\n");
    // It comes back with another's program: nothing is served before ours is on it.
    other_cable();
    let theirs = passing_on("other", None);
    lab.rounds(Duration::from_millis(1300));
    let look = Look::open(root(), "kv").unwrap();
    assert_eq!(look.why(), ["an interface is without its programs"]);
    drop(theirs);
    lab.wait("that it is there again", |lab| {
        notes.extend(lab.cache.take_notes());
        notes.iter().any(|note| note.starts_with("on other again"))
    });
    assert!(lab.cache.blind() > 0, "connections from before are not followed, without a byte of theirs");
    lab.reconnect();
    lab.wait("connections from before", |lab| lab.cache.blind() == 0);
    kept(&mut lab);
    assert_eq!(pinned().len(), 2, "{:?}", pinned());
}

#[test]
fn root_kernel_thousands_of_addresses() {
    if !ready("operator::root_kernel_thousands_of_addresses") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    let lines: String =
        (0..1500).map(|at| format!("addr add 10.20.{}.{}/32 dev server\n", at / 250, at % 250 + 1)).collect();
    let file = std::env::temp_dir().join(format!("tidemill-kv-addresses-{}", std::process::id()));
    std::fs::write(&file, lines).unwrap();
    net::run(&format!("ip -batch {}", file.display()));
    std::fs::remove_file(&file).unwrap();
    let answered = |lab: &Lab| {
        ["10.20.0.1", "10.20.3.7", "10.20.5.250", "10.20.6.1"]
            .map(|to| came(lab, "server", &frame("10.9.0.2", to, 11211, "get v\r\n")).0)
    };
    lab.wait("addresses that are new", |lab| answered(lab)[..3] == [TX; 3]);
    assert_eq!(answered(&lab), [TX, TX, TX, PASS]);
}

#[test]
fn root_kernel_pieces_of_packets() {
    if !ready("operator::root_kernel_pieces_of_packets") {
        return;
    }
    let lab = Lab::new(&["server"]);
    let voids = |frame: &[u8]| {
        let before = lab.cache.count("void");
        assert_eq!(came(&lab, "server", frame), (PASS, frame.to_vec()));
        lab.cache.count("void") - before
    };
    let v4 = |port, offset: u16, more: bool| {
        let mut frame = frame("10.9.0.2", "10.9.0.1", port, "set k 0 0 3\r\nnew\r\n");
        let field = offset | if more { 0x2000 } else { 0 };
        frame[20..22].copy_from_slice(&field.to_be_bytes());
        frame
    };
    let v6 = |port, offset: u16, more: bool| {
        let udp = &frame("fd00:9::2", "fd00:9::1", port, "set k 0 0 3\r\nnew\r\n")[54..];
        let [a, b] = (offset << 3 | u16::from(more)).to_be_bytes();
        packet("fd00:9::2", "fd00:9::1", 44, &[&[17, 0, a, b, 0, 0, 0, 9], udp].concat())
    };
    let options = |port, chain: &[u8]| {
        let udp = &frame("fd00:9::2", "ff02::1", port, "set k 0 0 3\r\nnew\r\n")[54..];
        packet("fd00:9::2", "ff02::1", chain[0], &[&chain[1..], udp].concat())
    };
    // Those of others: a later one may be anybody's, and is nobody's here while none has begun.
    let others = [v4(53, 0, true), v4(53, 4, true), v4(53, 8, false), v6(53, 0, true), v6(53, 4, false)];
    assert_eq!(others.map(|frame| voids(&frame)), [0; 5]);
    let destination = [60, 17, 0, 1, 4, 0, 0, 0, 0];
    let two = [0, 60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0];
    // More of them than are read.
    let many = [&[60][..], &[60, 0, 1, 4, 0, 0, 0, 0].repeat(7), &[17, 0, 1, 4, 0, 0, 0, 0]].concat();
    let icmp = [60, 58, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(
        [options(53, &destination), options(53, &two), options(11211, &icmp)].map(|frame| voids(&frame)),
        [0; 3]
    );
    assert_eq!(
        [options(11211, &destination), options(11211, &two), options(53, &many)].map(|frame| voids(&frame)),
        [1; 3]
    );
    assert_eq!(voids(&v4(53, 8, false)), 0, "they were whole");
    // One for memcached has begun: the last to come, whichever it is, has it executed.
    assert_eq!(voids(&v4(11211, 0, true)), 1);
    assert_eq!([v4(53, 4, true), v4(53, 8, false), v6(53, 4, false)].map(|frame| voids(&frame)), [1; 3]);
    assert_eq!(voids(&v4(53, 0, true)), 0);
    assert_eq!(voids(&v6(11211, 0, true)), 1);
}

#[test]
fn root_kernel_answers_of_every_length() {
    if !ready("operator::root_kernel_answers_of_every_length") {
        return;
    }
    let lengths = |lab: &mut Lab, lengths: &[usize], longest: usize| {
        for &length in lengths {
            let (key, value) = (format!("k{length}"), "v".repeat(length));
            lab.tcp(&format!("set {key} 7 0 {length}\r\n{value}\r\n"), "STORED\r\n");
            let request = format!("get {key}\r\n");
            let get = frame("10.9.0.2", "10.9.0.1", 11211, &request);
            let asked = lab.cache.daemon().asked;
            if length > longest {
                // It is asked for, again and again, and never kept.
                lab.wait("a question", |lab| {
                    assert_eq!(came(lab, "server", &get).0, PASS);
                    lab.cache.daemon().asked > asked + 3
                });
                continue;
            }
            lab.wait("a hit", |lab| came(lab, "server", &get).0 == TX);
            let answer = answer_to(lab, &request);
            let text = format!("VALUE {key} 7 {length}\r\n{value}\r\nEND\r\n");
            assert_eq!(String::from_utf8_lossy(&answer[50..]), text);
        }
    };
    let mut lab = Lab::new(&["server"]);
    lengths(&mut lab, &[0, 65, 66, 127, 500, 1023, 1024, 1025], 1024);
    let mut lab = lab.detach().attach_with(|options| options.value_max = 100);
    lab.reconnect();
    lab.wait("connections from before", |lab| lab.cache.blind() == 0);
    lengths(&mut lab, &[99, 100, 101], 100);
}

#[test]
fn root_kernel_what_was_hot_ages() {
    if !ready("operator::root_kernel_what_was_hot_ages") {
        return;
    }
    let mut lab = Lab::with(|options| {
        options.refresh = 1000;
        options.refresh_every = Duration::from_millis(1);
    });
    kept(&mut lab);
    let get = frame("10.9.0.2", "10.9.0.1", 11211, "get v\r\n");
    (0..1000).for_each(|_| drop(came(&lab, "server", &get)));
    let hits = |lab: &Lab| lab.cache.hot(1)[0].hits;
    let before = hits(&lab);
    assert!(before >= 1000, "{before}");
    // As in a minute: all entries have had their turn once.
    lab.cache.age(1);
    assert_eq!(hits(&lab), before / 2);
}
