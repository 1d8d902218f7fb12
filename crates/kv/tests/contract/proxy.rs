//! A cache that fails, to see that the tests see it: it stands before memcached's UDP side, keeps replies to `get`, and voids them
//! only by what comes to itself by `set` in ASCII. So it misses what the known in-kernel cache misses: everything over TCP, other
//! commands and protocols, and time.

use super::wire;
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Between `front` and memcached behind `back`, which is connected.
    pub(crate) fn start(front: UdpSocket, back: UdpSocket) -> Self {
        let address = front.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ends = stop.clone();
        front.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        back.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let thread = std::thread::spawn(move || serve(&front, &back, &ends));
        Proxy { address, stop, thread: Some(thread) }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn serve(front: &UdpSocket, back: &UdpSocket, stop: &AtomicBool) {
    let mut kept: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let (mut bytes, mut answer) = (vec![0; 65_536], vec![0; 65_536]);
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = front.recv_from(&mut bytes) else { continue };
        if length < 8 {
            continue;
        }
        let (request, text) = (u16::from_be_bytes([bytes[0], bytes[1]]), bytes[8..length].to_vec());
        let words: Vec<&[u8]> = text.split(|byte| *byte == b' ' || *byte == b'\r').collect();
        if let (b"get", Some(reply)) = (words[0], kept.get(&text)) {
            drop(front.send_to(&wire::datagram(request, reply), from));
            continue;
        }
        if words[0] == b"set" {
            kept.remove(&[b"get ", words[1], b"\r\n"].concat());
        }
        drop(back.send(&bytes[..length]));
        // Replies to commands before may come late: this one's number is looked for.
        while let Ok(length) = back.recv(&mut answer) {
            let Some((number, at, total)) = wire::header(&answer[..length]) else { break };
            if number != request {
                continue;
            }
            if words[0] == b"get" && total == 1 && answer[8..length].starts_with(b"VALUE") {
                kept.insert(text.clone(), answer[8..length].to_vec());
            }
            drop(front.send_to(&answer[..length], from));
            if at + 1 == total {
                break;
            }
        }
    }
}
