//! What the kernel says of the sockets of this machine, by `sock_diag` (netlink): all of a port, or one TCP connection; which it is, what its program has not read or
//! sent yet, and how many bytes have come and have been acknowledged. [`sockets`](super::sockets) lists them, and has another way where the kernel has no such socket.

use super::layout::{SCOPE, Tuple};
use super::netlink::{self, ALL, ONE, attribute, half, long, word};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::OwnedFd;

/// A transport, by its number in the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp = 6,
    Udp = 17,
}

/// The number of TCP's state (`tcp_states.h`).
pub(super) const ESTABLISHED: u8 = 1;
pub(super) const SYN_RECV: u8 = 3;
pub(super) const CLOSE_WAIT: u8 = 8;
pub(super) const LISTEN: u8 = 10;
/// What the kernel calls one of which it has only the SYN; it is told as [`SYN_RECV`].
const NEW_SYN_RECV: u8 = 12;
/// The states that somebody here wants to know of.
const WANTED: u32 = 1 << ESTABLISHED | 1 << SYN_RECV | 1 << CLOSE_WAIT | 1 << LISTEN | 1 << NEW_SYN_RECV;
/// Sockets that wait for connections are in a small table of their own: the kernel looks through nothing else for these.
const WAITING: u32 = 1 << LISTEN;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `struct inet_diag_req_v2`, and `struct inet_diag_msg`.
const QUESTION: usize = 56;
const ANSWER: usize = 72;
/// `INET_DIAG_INFO`, an attribute, and a bit of what is wanted.
const INFO: u16 = 2;
/// In `struct tcp_info` (Linux 4.1).
const ACKNOWLEDGED: usize = 120;
const RECEIVED: usize = 128;

/// A socket of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Address, IPv4 mapped into IPv6, and port.
    pub(super) local: ([u32; 4], u16),
    pub(super) remote: ([u32; 4], u16),
    pub(super) state: u8,
    /// 0: nobody has accepted it yet.
    pub(super) inode: u64,
    /// What it is bound to, 0: nothing. `None`: that is not known.
    pub(super) interface: Option<u32>,
    /// Bytes that have come and that its program has not read; of one that waits for connections, how many have come that nobody has accepted.
    pub(super) unread: u32,
}

/// A connection's socket, at one moment or, where that is said, at several one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) state: u8,
    /// No other socket has the same.
    pub(super) cookie: u64,
    pub(super) inode: u32,
    /// Bytes that have come in order and that its program has not read. Of these two numbers the kernel takes what has come first, and what was read
    /// after it: 0 says that everything is read that had come by the first.
    pub(super) unread: u32,
    /// Bytes that its program has written and that are not acknowledged; those that were written are taken first.
    pub(super) unsent: u32,
    /// Bytes that were acknowledged, and bytes that have come in order, since it was opened: taken after the two above.
    pub(super) acknowledged: u64,
    pub(super) received: u64,
}

/// A place to ask.
#[derive(Debug)]
pub(super) struct Diag {
    netlink: OwnedFd,
    number: u32,
}

impl Diag {
    /// In the network namespace of the thread.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Diag { netlink: netlink::socket(Some(rustix::net::netlink::SOCK_DIAG))?, number: 0 })
    }

    /// The sockets of a port over TCP (those that wait, are being opened, or can still be read from), or over UDP.
    ///
    /// # Errors
    /// The kernel does not list this transport, or not whole.
    pub(super) fn of_port(&self, transport: Transport, port: u16) -> io::Result<Vec<Line>> {
        self.in_states(transport, port, if transport == Transport::Tcp { WANTED } else { u32::MAX })
    }

    /// The sockets of a port that wait for connections.
    ///
    /// # Errors
    /// As [`Diag::of_port`].
    pub(super) fn waiting(&self, port: u16) -> io::Result<Vec<Line>> {
        self.in_states(Transport::Tcp, port, WAITING)
    }

    fn in_states(&self, transport: Transport, port: u16, states: u32) -> io::Result<Vec<Line>> {
        let mut lines = Vec::new();
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            let mut asked = question(transport, family, states);
            asked[8..10].copy_from_slice(&port.to_be_bytes());
            let asked = netlink::question(SOCK_DIAG_BY_FAMILY, ALL, 0, &asked);
            lines.extend(netlink::list(&self.netlink, &asked, SOCK_DIAG_BY_FAMILY, line)?);
        }
        Ok(lines)
    }

    /// The connection's socket at the server's port, by what that is bound to (0: nothing); `None`: there is none here, or it cannot be said.
    pub(super) fn ask(&mut self, tuple: &Tuple, port: u16, interface: u32) -> io::Result<Option<Socket>> {
        self.number = self.number.wrapping_add(1);
        let asked = netlink::question(SOCK_DIAG_BY_FAMILY, ONE, self.number, &of(tuple, port, interface));
        send(&self.netlink, &asked, SendFlags::empty())?;
        let mut room = [0; 2048];
        // The answer is there when the question is sent. What was not taken of an earlier one goes.
        loop {
            let (length, _) = match recv(&self.netlink, &mut room[..], RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return Ok(None),
                other => other?,
            };
            let answer = room.get(..length).unwrap_or_default();
            if word(answer, 8) == Some(self.number) {
                return Ok(read(answer));
            }
        }
    }
}

/// A question, of any port: the family, the transport, and the states that are wanted.
fn question(transport: Transport, family: AddressFamily, states: u32) -> [u8; QUESTION] {
    let mut bytes = [0; QUESTION];
    bytes[0] = family.as_raw() as u8;
    bytes[1] = transport as u8;
    bytes[4..8].copy_from_slice(&states.to_ne_bytes());
    bytes
}

/// Of one connection.
fn of(tuple: &Tuple, port: u16, interface: u32) -> [u8; QUESTION] {
    let (client, server) = (&tuple[..4], &tuple[4..SCOPE - 1]);
    // An IPv4 address is a mapped one here.
    let is_v4 = |words: &[u32]| words[..3] == [0, 0, 0xffff_u32.to_be()];
    let is_v4 = is_v4(client) && is_v4(server);
    let family = if is_v4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = question(Transport::Tcp, family, u32::MAX);
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(2, &[1 << (INFO - 1)]);
    // Ports, own and other; addresses the same.
    put(8, &port.to_be_bytes());
    put(10, &tuple[8].to_ne_bytes()[..2]);
    for (at, words) in [(12, server), (28, client)] {
        let words = if is_v4 { &words[3..] } else { words };
        for (four, word) in words.iter().enumerate() {
            put(at + 4 * four, &word.to_ne_bytes());
        }
    }
    put(44, &interface.to_ne_bytes());
    // No cookie.
    put(48, &[0xff; 8]);
    bytes
}

fn line(message: &[u8]) -> Option<Line> {
    let message = message.get(..ANSWER)?;
    let port = |at: usize| half(message, at).map(u16::from_be);
    let address = |at: usize| -> Option<[u32; 4]> {
        let word = |place: usize| word(message, at + 4 * place);
        Some(match AddressFamily::from_raw(message[0].into()) {
            AddressFamily::INET => [0, 0, 0xffff_u32.to_be(), word(0)?],
            _ => [word(0)?, word(1)?, word(2)?, word(3)?],
        })
    };
    Some(Line {
        local: (address(8)?, port(4)?),
        remote: (address(24)?, port(6)?),
        state: message[1],
        inode: word(message, 68)?.into(),
        interface: word(message, 40),
        unread: word(message, 56)?,
    })
}

/// What answers a question about one; an error is no socket.
fn read(answer: &[u8]) -> Option<Socket> {
    let mut socket = None;
    let mut take = |message: netlink::Message<'_>| {
        if message.kind == SOCK_DIAG_BY_FAMILY {
            socket = of_message(message.body);
        }
        Ok(())
    };
    netlink::messages(answer, &mut take).ok()?;
    socket
}

fn of_message(message: &[u8]) -> Option<Socket> {
    let info = attribute(message.get(ANSWER..)?, INFO)?;
    Some(Socket {
        state: message[1],
        cookie: long(message, 44)?,
        inode: word(message, 68)?,
        unread: word(message, 56)?,
        unsent: word(message, 60)?,
        acknowledged: long(info, ACKNOWLEDGED)?,
        received: long(info, RECEIVED)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine;
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    fn ends(stream: &TcpStream) -> (Tuple, u16) {
        let (server, client) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let address = |at: SocketAddr| (machine::words(at.ip()), at.port());
        (machine::tuple(address(client), machine::words(server.ip()), 0), server.port())
    }

    #[test]
    fn what_is_not_read_and_what_is_not_acknowledged() {
        let mut diag = match Diag::open() {
            Ok(diag) => diag,
            Err(error) => {
                return println!("skipped: what_is_not_read_and_what_is_not_acknowledged ({error})");
            }
        };
        for at in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(at) else {
                println!("skipped: what_is_not_read_and_what_is_not_acknowledged (nothing binds {at})");
                continue;
            };
            let mut to = listener.local_addr().unwrap();
            // A socket for both families that a client of IPv4 comes to.
            if to.ip().is_unspecified() {
                to = SocketAddr::from(([127, 0, 0, 1], to.port()));
            }
            let mut client = TcpStream::connect(to).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let (tuple, port) = ends(&server);
            let Some(fresh) = diag.ask(&tuple, port, 0).unwrap() else {
                return println!("skipped: what_is_not_read_and_what_is_not_acknowledged (no tcp_diag)");
            };
            assert_eq!((fresh.state, fresh.received, fresh.unread, fresh.unsent), (1, 0, 0, 0), "{at}");
            client.write_all(&[7; 1000]).unwrap();
            let until = |diag: &mut Diag, done: &dyn Fn(&Socket) -> bool| {
                (0..10_000).find_map(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    diag.ask(&tuple, port, 0).unwrap().filter(|socket| done(socket))
                })
            };
            let come = until(&mut diag, &|socket| socket.received == 1000).unwrap();
            assert_eq!((come.unread, come.cookie, come.inode), (1000, fresh.cookie, fresh.inode), "{at}");
            server.read_exact(&mut [0; 400]).unwrap();
            assert_eq!(diag.ask(&tuple, port, 0).unwrap().unwrap().unread, 600, "{at}");
            server.write_all(&[8; 300]).unwrap();
            let sent = until(&mut diag, &|socket| socket.unsent == 0).unwrap();
            assert_eq!(sent.acknowledged, come.acknowledged + 300, "{at}");
            // Another port has none.
            assert_eq!(diag.ask(&tuple, port ^ 1, 0).unwrap(), None, "{at}");
        }
    }

    #[test]
    fn answers_that_are_cut_off_are_none() {
        let mut body = vec![0; ANSWER + 4 + 136];
        body[ANSWER..ANSWER + 2].copy_from_slice(&140_u16.to_ne_bytes());
        body[ANSWER + 2..ANSWER + 4].copy_from_slice(&INFO.to_ne_bytes());
        body[40] = 3;
        let answer = netlink::question(SOCK_DIAG_BY_FAMILY, 0, 1, &body);
        assert!(read(&answer).is_some());
        assert_eq!(line(&body).and_then(|line| line.interface), Some(3));
        for end in 0..answer.len() {
            assert_eq!(read(&answer[..end]), None, "{end}");
        }
        for end in 0..ANSWER {
            assert_eq!(line(&body[..end]), None, "{end}");
        }
    }
}
