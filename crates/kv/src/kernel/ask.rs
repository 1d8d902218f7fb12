//! Asks memcached for values and how long they will be true: `mg KEY v f t s`, many at a time, over TCP; or by `gets KEY` and `me KEY`, where `mg` could take
//! what the client of a stale item is to win.

use crate::codec::reply::{self, Item};
use crate::codec::verb::Verb;
use crate::codec::write;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// What memcached says of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) value: Vec<u8>,
    pub(super) flags: u32,
    /// Seconds; `None`: it does not expire.
    pub(super) remaining_s: Option<u64>,
}

/// How long an answer may take. Longer than this, and nothing is known of how memcached works meanwhile.
const PATIENCE: Duration = Duration::from_millis(400);
/// Whose connection it is memcached does not know either.
pub(super) const UNNAMED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// More of one answer is no answer.
const MAX_ANSWER: usize = 64 << 20;

/// A connection to memcached.
#[derive(Debug)]
pub(super) struct Asker {
    stream: TcpStream,
    input: Vec<u8>,
    at: usize,
}

/// memcached's connections, as it counts them, if it tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// That it has taken, since it was started.
    pub(super) taken: Option<u64>,
    /// That it has now.
    pub(super) open: Option<u64>,
}

impl Asker {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Asker { stream, input: Vec::new(), at: 0 })
    }

    /// Both ends of it.
    pub(super) fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.stream.local_addr()?, self.stream.peer_addr()?))
    }

    fn more(&mut self) -> io::Result<()> {
        self.input.drain(..self.at);
        self.at = 0;
        let (had, mut room) = (self.input.len(), [0; 16384]);
        let read = self.stream.read(&mut room)?;
        if read == 0 || had > MAX_ANSWER {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.input.extend_from_slice(&room[..read]);
        Ok(())
    }

    /// The next reply, by what is made of it.
    fn reply<T>(&mut self, read: impl Fn(&Item<'_>) -> io::Result<T>) -> io::Result<T> {
        loop {
            let item = reply::next(&self.input[self.at..]);
            let length = match &item {
                Item::Need(bytes) if *bytes > MAX_ANSWER => return Err(bad()),
                Item::Need(_) => {
                    self.more()?;
                    continue;
                }
                Item::Value(_, length) | Item::Meta(_, length) | Item::Line(_, length) => *length,
                Item::Bad => return Err(bad()),
            };
            let result = read(&item);
            self.at += length;
            return result;
        }
    }

    /// Its version, or what it says instead.
    pub(super) fn version(&mut self) -> io::Result<Result<String, String>> {
        self.stream.write_all(b"version\r\n")?;
        self.reply(|item| {
            let Item::Line(line, _) = item else { return Err(bad()) };
            let line = String::from_utf8_lossy(line);
            Ok(line.strip_prefix("VERSION ").map(str::to_owned).ok_or_else(|| line.into_owned()))
        })
    }

    /// Seconds until a `flush_all` for later takes effect, whoever asked for it; 0: none waits. memcached tells the second of its own clock,
    /// which began 60 before its uptime did; `None`: it does not tell it. And its connections.
    pub(super) fn flush_in(&mut self) -> io::Result<(Option<u64>, Counted)> {
        const CLOCK_AHEAD: u64 = 60;
        self.stream.write_all(b"stats settings\r\nstats\r\n")?;
        let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
        let [oldest] = self.stats(["STAT oldest "])?.map(number);
        let of_all = ["STAT uptime ", "STAT curr_connections ", "STAT total_connections "];
        let [uptime, open, taken] = self.stats(of_all)?.map(number);
        let seconds = |(at, uptime): (u64, u64)| {
            (at.saturating_add(1)).saturating_sub(uptime.saturating_add(CLOCK_AHEAD))
        };
        Ok((oldest.zip(uptime).map(seconds), Counted { taken, open }))
    }

    /// Which protocols it takes (`-B`), if it tells.
    pub(super) fn protocol(&mut self) -> io::Result<Option<String>> {
        self.stream.write_all(b"stats settings\r\n")?;
        let [protocol] = self.stats(["STAT binding_protocol "])?;
        Ok(protocol)
    }

    /// Clients that memcached has connections of over TCP, and whether it has carried out all that it has read of them: it waits for more of what the client
    /// sends (`conn_read`, `conn_nread`, `conn_swallow`) then. One that has had its turn and waits for the next, or for room for an answer, is in another state.
    pub(super) fn at_rest(&mut self) -> io::Result<HashMap<SocketAddr, bool>> {
        self.stream.write_all(b"stats conns\r\n")?;
        let (mut all, mut client) = (HashMap::new(), None);
        loop {
            let line = self.reply(|item| match item {
                Item::Line(line, _) => Ok(String::from_utf8_lossy(line).into_owned()),
                _ => Err(bad()),
            })?;
            if line.trim_end() == "END" {
                return Ok(all);
            }
            let Some((_, what)) = line.strip_prefix("STAT ").ok_or_else(bad)?.split_once(':') else {
                continue;
            };
            if let Some(address) = what.strip_prefix("addr ") {
                client = client_of(address);
            } else if let Some(state) = what.strip_prefix("state ")
                && let Some(client) = client.take()
            {
                let rests = ["conn_read", "conn_nread", "conn_swallow"].contains(&state.trim());
                // Another listener may have one with the same ends: then neither is known to rest before both do.
                all.entry(client).and_modify(|all| *all &= rests).or_insert(rests);
            }
        }
    }

    /// Values of the answer to `stats`, which is read to its end.
    fn stats<const N: usize>(&mut self, names: [&str; N]) -> io::Result<[Option<String>; N]> {
        let mut found = [const { None }; N];
        loop {
            let line = self.reply(|item| match item {
                Item::Line(line, _) => Ok(String::from_utf8_lossy(line).into_owned()),
                _ => Err(bad()),
            })?;
            let named = |name: &&str| line.starts_with(*name);
            if let Some(at) = names.iter().position(named) {
                found[at] = line.get(names[at].len()..).map(|value| value.trim().to_owned());
            } else if line.trim_end() == "END" {
                return Ok(found);
            } else if !line.starts_with("STAT ") {
                return Err(bad());
            }
        }
    }

    /// What is known of these keys, in order, asked so that nobody's win is taken. memcached 1.6.18 tells the seconds that are left by `me` as a negative
    /// number, and -1 of a value without an end as well: [`Answer::remaining_s`] is `None` then for either of these two.
    pub(super) fn ask_softly(&mut self, keys: &[&[u8]]) -> io::Result<Vec<Option<Answer>>> {
        let mut request = Vec::with_capacity(keys.len() * 96);
        for key in keys {
            for part in [b"gets ", *key, b"\r\nme ", *key, b"\r\n"] {
                request.extend_from_slice(part);
            }
        }
        self.stream.write_all(&request)?;
        let mut answers = Vec::with_capacity(keys.len());
        for _ in keys {
            let found = self.reply(|item| match item {
                Item::Value(value, _) => Ok(Some((value.value.to_vec(), value.flags, value.unique))),
                Item::Line(b"END", _) => Ok(None),
                _ => Err(bad()),
            })?;
            if found.is_some() {
                self.reply(|item| if let Item::Line(b"END", _) = item { Ok(()) } else { Err(bad()) })?;
            }
            // ME KEY exp=-30 la=0 cas=9 ..., or EN.
            let about = self.reply(|item| match item {
                Item::Line(line, _) if line.starts_with(b"ME ") => {
                    let number = |name: &[u8]| {
                        let mut tokens = line.split(|byte| *byte == b' ').skip(2);
                        let token = tokens.find_map(|token| token.strip_prefix(name))?;
                        std::str::from_utf8(token).ok()?.parse::<i128>().ok()
                    };
                    Ok(number(b"exp=").zip(number(b"cas=")))
                }
                Item::Meta(meta, _) if meta.code == *b"EN" => Ok(None),
                _ => Err(bad()),
            })?;
            // Both of the same item.
            answers.push(match (found, about) {
                (Some((value, flags, unique)), Some((left, cas))) if unique.map(i128::from) == Some(cas) => {
                    let remaining_s =
                        if left == -1 { None } else { Some(u64::try_from(left.abs()).map_err(|_| bad())?) };
                    Some(Answer { value, flags, remaining_s })
                }
                _ => None,
            });
        }
        Ok(answers)
    }

    /// What is known of these keys, in order.
    pub(super) fn ask(&mut self, keys: &[&[u8]]) -> io::Result<Vec<Option<Answer>>> {
        let mut request = Vec::with_capacity(keys.len() * 64);
        for key in keys {
            write::meta(Verb::Mg, key, "v f t s", b"", &mut request);
        }
        self.stream.write_all(&request)?;
        keys.iter().map(|_| self.reply(answer)).collect()
    }
}

/// `tcp:192.0.2.1:4000`, `tcp6:[2001:db8::1]:4000`; `?:<AF 0>` of a connection that was reset before memcached asked whose it is.
fn client_of(text: &str) -> Option<SocketAddr> {
    let (transport, address) = text.trim().split_once(':')?;
    if transport == "?" {
        return Some(UNNAMED);
    }
    let address: SocketAddr = address.parse().ok().filter(|_| ["tcp", "tcp6"].contains(&transport))?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

fn bad() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

fn answer(item: &Item<'_>) -> io::Result<Option<Answer>> {
    let Item::Meta(meta, _) = item else { return Ok(None) };
    let Some(value) = meta.value else { return Ok(None) };
    // W, X, Z: somebody is to make a new one. Anything else is not known to us.
    if meta.flags().any(|flag| !matches!(flag[0], b'f' | b't' | b's'))
        || meta.number(b's').is_some_and(|length| usize::try_from(length) != Ok(value.len()))
    {
        return Ok(None);
    }
    let (Some(flags), Some(remaining)) = (meta.number(b'f'), meta.number(b't')) else { return Ok(None) };
    let Ok(flags) = u32::try_from(flags) else { return Ok(None) };
    let remaining_s = match remaining {
        -1 => None,
        seconds => Some(u64::try_from(seconds).map_err(|_| bad())?),
    };
    Ok(Some(Answer { value: value.to_vec(), flags, remaining_s }))
}

#[cfg(test)]
mod tests {
    use super::{UNNAMED, client_of};

    #[test]
    fn whose_a_connection_is() {
        let of = |text: &str| client_of(text).map(|client| client.to_string());
        assert_eq!(of("tcp:192.0.2.1:4000").as_deref(), Some("192.0.2.1:4000"));
        assert_eq!(of("tcp6:[::ffff:192.0.2.1]:4000").as_deref(), Some("192.0.2.1:4000"));
        assert_eq!(of("tcp6:[2001:db8::1]:4000").as_deref(), Some("[2001:db8::1]:4000"));
        assert_eq!(of("udp:0.0.0.0:11211"), None);
        assert_eq!(of("unix:/run/memcached.sock"), None);
        // As 1.6.18 says it of one that was reset before it was accepted.
        assert_eq!(client_of("?:<AF 0>"), Some(UNNAMED));
    }
}
