//! A peer that says what no peer should, beside BIRD, whose routes stand.

use super::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::net::{AddressFamily, SocketType};
use std::io::Write as _;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use tidemill_bgp::message::{self, Capabilities, Open};
use tidemill_bgp::{AsPath, Attributes, Nlri, Reading, update};

const ROGUE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Prefixes of each family that it tells, all of which BIRD has told too.
const ITS: u32 = 50;

/// A connection to us from its address.
fn connect(ns: &Namespace) -> TcpStream {
    ns.within(|| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrV4::new(ROGUE, 0)).unwrap();
        rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 200), 1790)).unwrap();
        TcpStream::from(socket)
    })
}

fn hello() -> Vec<u8> {
    let capabilities =
        Capabilities { families: [true; 2], wide_as: Some(64_497), refresh: true, ..Capabilities::default() };
    let mut bytes = Vec::new();
    Open { asn: 64_497, hold_s: 90, id: ROGUE, capabilities }.put(&mut bytes);
    message::put(&mut bytes, message::KEEPALIVE, &[]);
    bytes
}

/// An UPDATE for each prefix, by a longer path than BIRD's.
fn routes() -> Vec<u8> {
    let reading = Reading { wide: true, families: [true; 2], ..Reading::default() };
    let hops = [IpAddr::from(ROGUE), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 2])];
    let mut bytes = Vec::new();
    for n in 0..ITS {
        for (prefix, hop) in [four(n), six(n)].into_iter().zip(hops) {
            let (nlri, path) = (Nlri { prefix, path: 0 }, AsPath::sequence(&[64_497, 64_499]));
            let attributes = Attributes::new(hop, path);
            update::put_announcement(&mut bytes, &attributes, &[nlri], nlri.family(), &reading);
        }
    }
    bytes
}

#[test]
fn root_malformed_updates_cost_nobody_else_anything() {
    if !may_run("hostile::root_malformed_updates_cost_nobody_else_anything") {
        return;
    }
    let ns = Namespace::new();
    let rogue = PeerConfig::new("rogue", IpAddr::from(ROGUE), 64_497);
    let mut ours = Ours::open(&ns, vec![peer(), rogue]);
    let _bird = Daemon::bird(&ns, &bird(MANY, "", ""));
    let expected = all(1);
    ours.until("BIRD's routes", |ours| ours.told == expected);

    // In good order; then with an ORIGIN that there is not, which costs its routes and not its session.
    let good = routes();
    let mut socket = connect(&ns);
    socket.write_all(&[hello(), good.clone()].concat()).unwrap();
    ours.until("its routes", |ours| ours.peer("rogue").paths == [ITS as usize; 2]);
    assert!(ours.told == expected, "BIRD's are better");
    let mut wrong = good.clone();
    let is_origin = |at: &usize| wrong[*at..at + 4] == [0x40_u8, 1, 1, 0];
    let origins: Vec<usize> = (0..wrong.len() - 3).filter(is_origin).collect();
    assert_eq!(origins.len(), 2 * ITS as usize);
    origins.iter().for_each(|at| wrong[at + 3] = 9);
    socket.write_all(&wrong).unwrap();
    ours.until("none of its routes", |ours| ours.peer("rogue").paths == [0; 2]);
    let shown = ours.peer("rogue");
    assert_eq!((shown.state, shown.established), (Some(State::Established), 1));
    assert_eq!(shown.stats.treated_as_withdraw, 2 * u64::from(ITS));
    assert!(ours.told == expected);
    socket.shutdown(Shutdown::Write).unwrap();
    ours.until("its end", |ours| ours.peer("rogue").state.is_none());

    // Some bytes of it are others, anywhere.
    let mut rng = StdRng::seed_from_u64(6);
    for round in 2..=201 {
        let mut bytes = good.clone();
        for _ in 0..rng.random_range(1..9) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        let mut socket = connect(&ns);
        socket.write_all(&[hello(), bytes].concat()).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        ours.until("the end of it", |ours| {
            let rogue = ours.peer("rogue");
            rogue.established == round && rogue.state.is_none()
        });
    }
    ours.until("BIRD's routes alone", |ours| ours.told == expected);
    assert_eq!((ours.peer("rogue").paths, ours.peer("bird").established), ([0; 2], 1));
    ours.check();
}
