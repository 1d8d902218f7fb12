//! Loads: a flood of one frame after the other by the kernel, and clients that wait for their answers.

use super::super::cable::{Law, flood_by};
use super::super::zipf::Zipf;
use super::lab::{CLIENT, Lab, PORT, SERVER, Udp};
use anyhow::{Context as _, Result, bail};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tidemill_port::rng::Rng;
use tidemill_wire::checksum::checksum;

/// The flood's port: no socket of the client's.
const FLOOD_PORT: u16 = 40_000;
/// Entries of the flood's table of numbers.
const DRAWS: u32 = 1 << 20;

/// Digits of a key's number.
const DIGITS: usize = 7;

pub(super) fn key(number: u64) -> String {
    format!("key:{number:0DIGITS$}")
}

/// Sets so many keys over TCP.
pub(super) fn fill(lab: &Lab, keys: u64, value: usize, expiry: u32) -> Result<()> {
    let mut tcp = lab.tcp()?;
    let data = "v".repeat(value);
    let mut first = 0;
    while first < keys {
        let last = keys.min(first + 500);
        let lines: String =
            (first..last).map(|n| format!("set {} 0 {expiry} {value}\r\n{data}\r\n", key(n))).collect();
        tcp.write_all(lines.as_bytes())?;
        let mut said = vec![0; "STORED\r\n".len() * (last - first) as usize];
        tcp.read_exact(&mut said)?;
        if said != "STORED\r\n".repeat((last - first) as usize).as_bytes() {
            bail!("memcached refuses a value: {}", String::from_utf8_lossy(&said[..20]));
        }
        first = last;
    }
    Ok(())
}

/// A `get` over UDP.
fn datagram(request: u16, key: &str) -> Vec<u8> {
    let mut bytes = request.to_be_bytes().to_vec();
    bytes.extend([0, 0, 0, 1, 0, 0]);
    bytes.extend(format!("get {key}\r\n").bytes());
    bytes
}

fn frame(lab: &Lab, key: &str) -> Vec<u8> {
    let payload = datagram(7, key);
    let [own, server] = lab.macs;
    let mut frame = [&server[..], &own, &[8, 0]].concat();
    let total = (28 + payload.len()) as u16;
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend(CLIENT.octets());
    frame.extend(SERVER.octets());
    let check = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame.extend(FLOOD_PORT.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend((total - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    if lab.checksum {
        let pseudo = [&[0, 17], &(total - 20).to_be_bytes()[..]].concat();
        let check = checksum(&[&frame[26..34], &pseudo, &frame[34..]].concat());
        frame[40..42].copy_from_slice(&(if check == 0 { 0xffff } else { check }).to_be_bytes());
    }
    frame
}

/// The longest value that the cache answers with on this cable: a frame from a socket has room for so many more bytes.
pub(super) fn longest() -> usize {
    const ROOM: usize = 192;
    let answer = |length: usize| format!("VALUE {} 0 {length}\r\n\r\nEND\r\n", key(0)).len() + length;
    let request = format!("get {}\r\n", key(0)).len();
    (0..1024).take_while(|length| answer(*length) <= request + ROOM).last().unwrap_or(0)
}

/// As many gets as go onto the cable for so long; answers that came back per second, and the share of them that the cache gave. Answers are counted at the client's end by a
/// program that drops them.
pub(super) fn flood(lab: &Lab, draw: &Draw, seed: u64, time: Duration) -> Result<(f64, f64)> {
    let (keys, ranks) = match draw {
        Draw::Uniform(keys) => (*keys, None),
        Draw::Zipf(zipf) => (1, Some(zipf.quantiles(DRAWS))),
        Draw::Absent(_) => bail!("the flood asks for keys that are there"),
    };
    let frames: Vec<Vec<u8>> = (0..keys).map(|number| frame(lab, &key(number))).collect();
    // The digits are the key's end, which "\r\n" follows.
    let law = ranks.map(|ranks| Law { ranks, place: frames[0].len() - DIGITS - 2, seed });
    lab.client_first(true)?;
    let end = (&lab.client, "client");
    let [rate, hits] = flood_by(end, end, &frames, law.as_ref(), time, &|| lab.hits())?;
    lab.client_first(false)?;
    Ok((rate, (hits / rate.max(1.0)).min(1.0)))
}

/// Which key is asked for next.
pub(super) enum Draw {
    Uniform(u64),
    /// Keys that are not there.
    Absent(u64),
    Zipf(Zipf),
}

impl Draw {
    fn next(&self, rng: &mut Rng) -> String {
        match self {
            Draw::Uniform(keys) => key(rng.below(*keys)),
            Draw::Absent(keys) => format!("no:{:08}", rng.below(*keys)),
            Draw::Zipf(zipf) => key(zipf.next(rng)),
        }
    }
}

/// One client with a window of requests over UDP; answers per second. A lost one is waited for a while.
pub(super) fn window(lab: &Lab, draw: &Draw, window: usize, seed: u64, time: Duration) -> Result<f64> {
    let (udp, mut rng) = (lab.udp()?, Rng::new(seed));
    let socket = &udp.socket;
    let (mut answers, mut out, mut request) = (0_u64, 0_usize, 0_u16);
    let started = Instant::now();
    let mut bytes = [0; 2048];
    while started.elapsed() < time {
        while out < window {
            request = request.wrapping_add(1);
            socket.send(&datagram(request, &draw.next(&mut rng)))?;
            out += 1;
        }
        match socket.recv(&mut bytes) {
            // The end of an answer: a miss over UDP begins with an empty one.
            Ok(length) if length > 8 => {
                answers += 1;
                out -= 1;
            }
            Ok(_) => {}
            Err(_) => out = 0,
        }
    }
    Ok(answers as f64 / started.elapsed().as_secs_f64())
}

/// What `pipelined` asks by, and how often at once on each.
pub(super) const CONNECTIONS: usize = 8;
pub(super) const DEPTH: usize = 16;

/// Eight connections that ask 16 times at once; answers per second.
pub(super) fn pipelined(lab: &Lab, keys: u64, value: usize, seed: u64, time: Duration) -> Result<f64> {
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| lab.tcp()).collect::<Result<_>>()?;
    let mut rng = Rng::new(seed);
    let one = format!("VALUE {} 0 {value}\r\n", key(0)).len() + value + "\r\nEND\r\n".len();
    let mut said = vec![0; one * DEPTH];
    let (mut answers, started) = (0, Instant::now());
    while started.elapsed() < time {
        for stream in &mut streams {
            let lines: String = (0..DEPTH).map(|_| format!("get {}\r\n", key(rng.below(keys)))).collect();
            stream.write_all(lines.as_bytes())?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut said)?;
            answers += DEPTH;
        }
    }
    Ok(answers as f64 / started.elapsed().as_secs_f64())
}

/// How a client that asks one thing at a time is connected.
pub(super) enum Line {
    Udp(Udp),
    Tcp(TcpStream),
}

/// Round trips, nanoseconds, ascending, at a low rate.
pub(super) fn round_trips(line: &mut Line, keys: u64, per_second: u32, time: Duration) -> Result<Vec<u32>> {
    let mut rng = Rng::new(3);
    let (mut times, mut bytes, mut lost, mut request) = (Vec::new(), [0; 4096], 0, 0_u16);
    let (started, gap) = (Instant::now(), Duration::from_secs(1) / per_second);
    let mut due = Instant::now();
    while started.elapsed() < time {
        // Awake, so that the clock of waking up is not measured.
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        due += gap;
        let name = key(rng.below(keys));
        let sent = Instant::now();
        match line {
            Line::Udp(Udp { socket, .. }) => {
                request = request.wrapping_add(1);
                socket.send(&datagram(request, &name))?;
                // Not one to a request that was given up.
                let mut is_answered = false;
                while !is_answered && let Ok(length) = socket.recv(&mut bytes) {
                    is_answered = bytes[..length].starts_with(&request.to_be_bytes());
                }
                // On a machine with other work some are late; where many are, something is wrong.
                if !is_answered {
                    lost += 1;
                    if lost > 10 + times.len() / 100 {
                        bail!("{lost} answers over UDP did not come, {} did", times.len());
                    }
                    due = Instant::now();
                    continue;
                }
            }
            Line::Tcp(stream) => {
                stream.write_all(format!("get {name}\r\n").as_bytes())?;
                let mut length = 0;
                while !bytes[..length].ends_with(b"END\r\n") {
                    length += stream.read(&mut bytes[length..]).context("no answer over TCP")?;
                }
            }
        }
        times.push(u32::try_from(sent.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
    times.sort_unstable();
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_has_room_for_so_long_values() {
        // "VALUE key:0000000 0 177", two ends of lines, "END" and its end are 32 bytes more than the value; a request has 17.
        assert_eq!(longest(), 177);
    }
}
