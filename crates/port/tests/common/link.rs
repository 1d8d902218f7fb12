//! A cable from this namespace to a host, and what the host says over it.

use crate::frames::PATIENCE;
use crate::net::{Host, run};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

/// `near` (10.0.0.1, fd00::1) is in this namespace, with a port of ours on it; `far` (10.0.0.2, fd00::2) is a host.
pub(crate) struct Link {
    pub(crate) far: Host,
}

impl Link {
    pub(crate) fn new() -> Self {
        run("sysctl -qw net.ipv6.conf.default.accept_dad=0");
        run("ip link add name near type veth peer name far");
        run("ip link set lo up");
        run("ip link set near up");
        run("ip addr add 10.0.0.1/24 dev near");
        run("ip addr add fd00::1/64 dev near nodad");
        Link { far: Host::new("far", &["10.0.0.2/24", "fd00::2/64"]) }
    }

    /// `far` sends a datagram and does not wait.
    pub(crate) fn datagram(&self, from: u16, to: &str) {
        let to: SocketAddr = to.parse().unwrap();
        let local: IpAddr = if to.is_ipv6() { "::".parse().unwrap() } else { "0.0.0.0".parse().unwrap() };
        self.far
            .spawn(move || drop(UdpSocket::bind((local, from)).unwrap().send_to(b"datagram", to)))
            .join()
            .unwrap();
    }

    /// `far` talks to a server of this namespace's kernel, for some kilobytes each way.
    pub(crate) fn talks(&self, to: &str) {
        let address: SocketAddr = to.parse().unwrap();
        let listener = TcpListener::bind(address).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = vec![0; 50_000];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let client = self.far.spawn(move || {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let sent: Vec<u8> = (0..50_000u32).map(|i| i as u8).collect();
            stream.write_all(&sent).unwrap();
            let mut came = vec![0; sent.len()];
            stream.read_exact(&mut came).unwrap();
            assert!(came == sent);
        });
        client.join().unwrap();
        server.join().unwrap();
    }

    /// Whether `far` can open a connection, within a second.
    pub(crate) fn connects(&self, to: &str) -> bool {
        let address: SocketAddr = to.parse().unwrap();
        let _listener = TcpListener::bind(address).unwrap();
        self.far
            .spawn(move || TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
            .join()
            .unwrap()
    }

    /// Whether `far` gets an answer to an echo request.
    pub(crate) fn pings(&self, to: &str) -> bool {
        let to = to.to_owned();
        let ping =
            move || Command::new("ping").args(["-c", "1", "-W", "1", &to]).output().unwrap().status.success();
        self.far.spawn(ping).join().unwrap()
    }

    /// `far` begins connections by IPv4 and IPv6 that nobody answers.
    pub(crate) fn connects_nowhere(&self) {
        let tries = ["192.0.2.1:80", "[2001:db8::1]:80"].map(|to| {
            let to: SocketAddr = to.parse().unwrap();
            self.far.spawn(move || drop(TcpStream::connect_timeout(&to, Duration::from_millis(200))))
        });
        tries.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
