//! Operating systems by their [signatures](crate::assets::signature): a list in a text file, the first line that fits.
//!
//! The list that comes with us (`fingerprints.txt`, where its format is, too) was made from observation and from systems' own sources, and says of each line from which. Another
//! can be given instead. What no line fits is unknown, and is shown with its signature.

use crate::assets::signature::{Layout, Signature};

/// The list that comes with us.
const SHIPPED: &str = include_str!("fingerprints.txt");
/// Lines that a list may have.
const MOST: usize = 10_000;

/// Which windows fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    Any,
    Exactly(u16),
    /// So many times the MSS, or what a segment carries; `None`: as often as fits.
    Times(Option<u16>, Unit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Mss,
    Data,
}

/// Which scales fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Any,
    Is(Option<u8>),
}

#[derive(Debug, Clone)]
struct Fingerprint {
    answer: bool,
    ttl: u8,
    dont_fragment: Option<bool>,
    window: Window,
    scale: Scale,
    options: Layout,
    system: String,
}

impl Fingerprint {
    fn fits(&self, of: &Signature) -> bool {
        let window = match self.window {
            Window::Any => true,
            Window::Exactly(window) => of.window == window,
            Window::Times(times, unit) => {
                let unit = match unit {
                    Unit::Mss => of.mss.filter(|mss| *mss > 0),
                    Unit::Data => of.carried(),
                };
                unit.is_some_and(|unit| {
                    let times = times.unwrap_or(u16::MAX / unit);
                    u32::from(times) * u32::from(unit) == u32::from(of.window)
                })
            }
        };
        let scale = match self.scale {
            Scale::Any => true,
            Scale::Is(scale) => of.scale == scale,
        };
        window
            && scale
            && self.answer == of.answer
            && self.ttl == of.first_ttl()
            && (of.v6 || self.dont_fragment.is_none_or(|df| df == of.dont_fragment))
            && self.options == of.options
    }
}

/// A list of fingerprints.
#[derive(Debug, Clone)]
pub struct Fingerprints(Vec<Fingerprint>);

/// What is wrong in a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FingerprintError {
    /// From 1.
    pub line: usize,
    /// What, and what to do.
    pub what: String,
}

impl Fingerprints {
    /// The list that comes with us.
    ///
    /// # Errors
    /// A mistake in it, which a test would have found.
    pub fn shipped() -> Result<Self, FingerprintError> {
        Self::parse(SHIPPED)
    }

    /// Reads a list.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub fn parse(text: &str) -> Result<Self, FingerprintError> {
        let mut list = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let mistake = |what| FingerprintError { line, what };
            if list.len() == MOST {
                return Err(mistake(format!("more than {MOST} fingerprints")));
            }
            list.push(fingerprint(text).map_err(mistake)?);
        }
        Ok(Fingerprints(list))
    }

    /// Whose signature this is, if a line fits.
    pub fn system(&self, signature: &Signature) -> Option<&str> {
        let fits = self.0.iter().find(|fingerprint| fingerprint.fits(signature));
        fits.map(|fingerprint| fingerprint.system.as_str())
    }

    /// Lines.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn fingerprint(line: &str) -> Result<Fingerprint, String> {
    let mut parts = line.splitn(3, '|').map(str::trim);
    let (Some(fields), Some(system), Some(provenance)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("give KIND TTL DF WINDOW SCALE OPTIONS | SYSTEM | PROVENANCE".into());
    };
    if system.is_empty() || provenance.is_empty() {
        return Err("a system and where it was seen: neither may be empty".into());
    }
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let [kind, ttl, df, window, scale, options] = fields[..] else {
        return Err(format!(
            "{} fields before the first |: give KIND TTL DF WINDOW SCALE OPTIONS",
            fields.len()
        ));
    };
    Ok(Fingerprint {
        answer: match kind {
            "syn" => false,
            "syn-ack" => true,
            _ => return Err(format!("{kind:?}: give syn or syn-ack")),
        },
        ttl: ttl
            .parse()
            .ok()
            .filter(|ttl| matches!(ttl, 32 | 64 | 128 | 255))
            .ok_or_else(|| format!("TTL {ttl:?}: give 32, 64, 128 or 255"))?,
        dont_fragment: match df {
            "df" => Some(true),
            "-" => Some(false),
            "any" => None,
            _ => return Err(format!("DF {df:?}: give df, - or any")),
        },
        window: read_window(window).ok_or_else(|| {
            format!("window {window:?}: give a number, N*mss, N*data, most*mss, most*data or any")
        })?,
        scale: match scale {
            "any" => Scale::Any,
            "none" => Scale::Is(None),
            _ => Scale::Is(Some(
                scale.parse().map_err(|_| format!("scale {scale:?}: give a number, none or any"))?,
            )),
        },
        options: Layout::parse(options)?,
        system: system.into(),
    })
}

fn read_window(text: &str) -> Option<Window> {
    if text == "any" {
        return Some(Window::Any);
    }
    let Some((times, unit)) = text.split_once('*') else { return text.parse().ok().map(Window::Exactly) };
    let unit = match unit {
        "mss" => Unit::Mss,
        "data" => Unit::Data,
        _ => return None,
    };
    let times = if times == "most" { None } else { Some(times.parse().ok().filter(|times| *times > 0)?) };
    Some(Window::Times(times, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(text: &str) -> Signature {
        // `syn 64 df 64240 1460 7 mss,sack,ts,nop,scale`
        let words: Vec<&str> = text.split(' ').collect();
        Signature {
            answer: words[0] == "syn-ack",
            v6: words[2] == "v6",
            ttl: words[1].parse().unwrap(),
            dont_fragment: words[2] == "df",
            window: words[3].parse().unwrap(),
            mss: words[4].parse().ok(),
            scale: words[5].parse().ok(),
            options: Layout::parse(words[6]).unwrap(),
        }
    }

    /// Signatures as they were sent by who they are said to be from, or would be by BSD's sources, some from behind a few routers.
    #[test]
    fn the_shipped_list_knows_what_was_seen() {
        let list = Fingerprints::shipped().unwrap();
        assert!(list.len() >= 18);
        for (seen, system) in [
            ("syn 64 df 65495 65495 10 mss,sack,ts,nop,scale", Some("Linux 5 or 6")),
            ("syn-ack 64 df 65483 65495 10 mss,sack,ts,nop,scale", Some("Linux 5 or 6")),
            ("syn 64 v6 65476 65476 10 mss,sack,ts,nop,scale", Some("Linux 5 or 6")),
            ("syn-ack 64 v6 65464 65476 10 mss,sack,ts,nop,scale", Some("Linux 5 or 6")),
            ("syn 57 df 64240 1460 7 mss,sack,ts,nop,scale", Some("Linux 5 or 6")),
            ("syn-ack 61 df 64704 1360 10 mss,sack,ts,nop,scale", Some("Linux 5 or 6")),
            ("syn 64 df 14600 1460 4 mss,sack,ts,nop,scale", Some("Linux 3")),
            ("syn-ack 50 df 28960 1460 7 mss,sack,ts,nop,scale", Some("Linux 3 or 4")),
            ("syn 64 df 32767 16396 2 mss,sack,ts,nop,scale", Some("Linux")),
            ("syn 64 df 65535 1460 6 mss,nop,scale,nop,nop,ts,sack,end", Some("macOS")),
            ("syn 128 df 8192 1460 2 mss,nop,scale,nop,nop,sack", Some("Windows 7")),
            ("syn 128 df 64240 1460 8 mss,nop,scale,nop,nop,sack", Some("Windows 10 or newer")),
            ("syn 120 df 65535 1460 8 mss,nop,scale,nop,nop,sack", Some("Windows 10 or newer")),
            ("syn 120 df 65535 1460 2 mss,nop,scale,nop,nop,sack", Some("Windows")),
            ("syn 57 df 65535 1460 6 mss,nop,scale,sack,ts", Some("FreeBSD")),
            ("syn-ack 64 v6 65535 1440 6 mss,nop,scale,sack,ts", Some("FreeBSD")),
            ("syn 64 df 16384 1460 3 mss,nop,nop,sack,nop,scale,nop,nop,ts", Some("OpenBSD")),
            ("syn 64 df 32768 1460 3 mss,nop,scale,sack,nop,nop,nop,nop,ts", Some("NetBSD")),
            ("syn 128 df 16384 1460 - mss,nop,nop,sack", Some("Windows XP or 2003")),
            ("syn 7 - 5440 1360 2 mss,sack,ts,nop,scale", Some("traceroute over TCP")),
            // What is sent by a generator of traffic, and what is only nearly right.
            ("syn 128 df 32768 1460 0 mss,nop,scale,sack,ts", None),
            ("syn 64 - 64240 1460 7 mss,sack,ts,nop,scale", None),
            ("syn 128 df 64240 1460 7 mss,sack,ts,nop,scale", None),
            ("syn 64 df 65535 1460 6 mss,nop,scale,sack", None),
            ("syn 64 df 32768 1460 3 mss,nop,nop,sack,nop,scale,nop,nop,ts", None),
            ("syn 64 df 8192 - - none", None),
        ] {
            assert_eq!(list.system(&signature(seen)), system, "{seen}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let wrong = |text: &str| Fingerprints::parse(text).unwrap_err().to_string();
        assert_eq!(wrong("# one\n\nack 64 df any any none | x | y"), "line 3: \"ack\": give syn or syn-ack");
        for (text, part) in [
            ("syn 64 df any any none | x", "PROVENANCE"),
            ("syn 64 df any any none | x | ", "empty"),
            ("syn 64 df any none | x | y", "5 fields"),
            ("syn 60 df any any none | x | y", "TTL \"60\""),
            ("syn 64 yes any any none | x | y", "DF \"yes\""),
            ("syn 64 df 0*mss any none | x | y", "window \"0*mss\""),
            ("syn 64 df 4*bytes any none | x | y", "window \"4*bytes\""),
            ("syn 64 df 70000 any none | x | y", "window \"70000\""),
            ("syn 64 df any 300 none | x | y", "scale \"300\""),
            ("syn 64 df any any mss,mms | x | y", "\"mms\""),
        ] {
            assert!(wrong(text).contains(part), "{}", wrong(text));
        }
    }
}
