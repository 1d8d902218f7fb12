//! What the kernel says of one TCP connection of this machine, by `sock_diag` (netlink): which socket it is, what its program has not read or sent yet, and how
//! many bytes have come and have been acknowledged.

use super::layout::Tuple;
use super::sockets::{ANSWER, HEADER, QUESTION, SOCK_DIAG_BY_FAMILY, Transport, question};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};
use std::io;
use std::os::fd::OwnedFd;

/// A connection's socket, at one moment or, where that is said, at several one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Socket {
    /// As TCP numbers it: 1 is established.
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

const REQUEST: u16 = 1;
/// `INET_DIAG_INFO`, an attribute, and a bit of what is wanted.
const INFO: u16 = 2;
/// In `struct tcp_info` (Linux 4.1).
const ACKNOWLEDGED: usize = 120;
const RECEIVED: usize = 128;

impl Diag {
    /// In the network namespace of the thread.
    pub(super) fn open() -> io::Result<Self> {
        let netlink = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::SOCK_DIAG))?;
        Ok(Diag { netlink, number: 0 })
    }

    /// The connection's socket at the server's port, in network order; `None`: there is none here, or it cannot be said.
    pub(super) fn ask(&mut self, tuple: &Tuple, port: u16) -> io::Result<Option<Socket>> {
        self.number = self.number.wrapping_add(1);
        send(&self.netlink, &request(tuple, port, self.number), SendFlags::empty())?;
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

/// Of one connection.
fn request(tuple: &Tuple, port: u16, number: u32) -> [u8; HEADER + QUESTION] {
    let (client, server) = (&tuple[..4], &tuple[4..8]);
    // An IPv4 address is a mapped one here.
    let is_v4 = |words: &[u32]| words[..3] == [0, 0, 0xffff_u32.to_be()];
    let is_v4 = is_v4(client) && is_v4(server);
    let family = if is_v4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = question(Transport::Tcp, family, u32::MAX, REQUEST);
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(8, &number.to_ne_bytes());
    put(HEADER + 2, &[1 << (INFO - 1)]);
    // Ports, own and other; addresses the same.
    put(HEADER + 8, &port.to_be_bytes());
    put(HEADER + 10, &tuple[8].to_ne_bytes()[..2]);
    for (at, words) in [(HEADER + 12, server), (HEADER + 28, client)] {
        let words = if is_v4 { &words[3..] } else { words };
        for (four, word) in words.iter().enumerate() {
            put(at + 4 * four, &word.to_ne_bytes());
        }
    }
    // By no interface, which link-local addresses would need; no cookie.
    put(HEADER + 48, &[0xff; 8]);
    bytes
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// `struct nlmsghdr`, `struct inet_diag_msg` and attributes; an error is no socket.
fn read(answer: &[u8]) -> Option<Socket> {
    if half(answer, 4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let answer = answer.get(..usize::try_from(word(answer, 0)?).ok()?)?;
    let message = answer.get(HEADER..HEADER + ANSWER)?;
    let mut at = HEADER + ANSWER;
    let info = loop {
        let (length, kind) = (usize::from(half(answer, at)?), half(answer, at + 2)?);
        let attribute = answer.get(at + 4..at + length)?;
        if kind == INFO {
            break attribute;
        }
        at += length.next_multiple_of(4);
    };
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
        (machine::tuple(address(client), machine::words(server.ip())), server.port())
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
            let Some(fresh) = diag.ask(&tuple, port).unwrap() else {
                return println!("skipped: what_is_not_read_and_what_is_not_acknowledged (no tcp_diag)");
            };
            assert_eq!((fresh.state, fresh.received, fresh.unread, fresh.unsent), (1, 0, 0, 0), "{at}");
            client.write_all(&[7; 1000]).unwrap();
            let until = |diag: &mut Diag, done: &dyn Fn(&Socket) -> bool| {
                (0..1000).find_map(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    diag.ask(&tuple, port).unwrap().filter(|socket| done(socket))
                })
            };
            let come = until(&mut diag, &|socket| socket.received == 1000).unwrap();
            assert_eq!((come.unread, come.cookie, come.inode), (1000, fresh.cookie, fresh.inode), "{at}");
            server.read_exact(&mut [0; 400]).unwrap();
            assert_eq!(diag.ask(&tuple, port).unwrap().unwrap().unread, 600, "{at}");
            server.write_all(&[8; 300]).unwrap();
            let sent = until(&mut diag, &|socket| socket.unsent == 0).unwrap();
            assert_eq!(sent.acknowledged, come.acknowledged + 300, "{at}");
            // Another port has none.
            assert_eq!(diag.ask(&tuple, port ^ 1).unwrap(), None, "{at}");
        }
    }

    #[test]
    fn answers_that_are_cut_off_are_none() {
        let mut answer = vec![0; HEADER + ANSWER + 4 + 136];
        let length = answer.len() as u32;
        answer[..4].copy_from_slice(&length.to_ne_bytes());
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        let at = HEADER + ANSWER;
        answer[at..at + 2].copy_from_slice(&140_u16.to_ne_bytes());
        answer[at + 2..at + 4].copy_from_slice(&INFO.to_ne_bytes());
        assert!(read(&answer).is_some());
        for end in 0..answer.len() {
            assert_eq!(read(&answer[..end]), None, "{end}");
        }
        // An attribute of no length is no way on.
        answer[at..at + 2].copy_from_slice(&0_u16.to_ne_bytes());
        assert_eq!(read(&answer), None);
        answer[at..at + 4].copy_from_slice(&[4, 0, 9, 0]);
        assert_eq!(read(&answer), None, "an empty one of another kind, and then none");
    }
}
