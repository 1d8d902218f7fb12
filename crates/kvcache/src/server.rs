//! Whether memcached is still the process that the values came from: it is asked for `stats` now and then, which begin with its number and its age.
//! A memcached that was started again is empty, and nothing that the bridge sees on its way need say so.

/// What memcached has said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// When it was asked.
    pub(crate) asked_ns: u64,
    /// It is not the process that it was.
    pub(crate) is_other: bool,
}

/// Questions that may be on their way.
const QUESTIONS: usize = 8;

/// The questions and what is known.
#[derive(Debug)]
pub(crate) struct Server {
    every_ns: u64,
    next_ns: u64,
    /// The last questions: number and time.
    asked: [Option<(u16, u64)>; QUESTIONS],
    number: u16,
    /// Process number, age in seconds, when it was asked for that.
    known: Option<(u64, u64, u64)>,
}

impl Server {
    /// Asks four times in each lease.
    pub(crate) fn new(lease_ns: u64) -> Self {
        Server { every_ns: lease_ns / 4, next_ns: 0, asked: [None; QUESTIONS], number: 0, known: None }
    }

    /// Whether it is time to ask.
    #[inline]
    pub(crate) fn wants(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// A question is made: the number of its request.
    pub(crate) fn ask(&mut self, now_ns: u64) -> u16 {
        self.next_ns = now_ns.saturating_add(self.every_ns);
        self.number = self.number.wrapping_add(1);
        self.asked[usize::from(self.number) % QUESTIONS] = Some((self.number, now_ns));
        self.number
    }

    /// An answer to the question of this number, if that was one of the last.
    pub(crate) fn heard(&mut self, number: u16, text: &[u8]) -> Option<Heard> {
        let place = &mut self.asked[usize::from(number) % QUESTIONS];
        let (_, asked_ns) = place.take_if(|(asked, _)| *asked == number)?;
        let stat = |name: &str| {
            let text =
                text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
            std::str::from_utf8(text).ok()?.trim().parse::<u64>().ok()
        };
        let (pid, age_s) = (stat("STAT pid ")?, stat("STAT uptime ")?);
        if self.known.is_some_and(|(.., at_ns)| asked_ns < at_ns) {
            // A later one was answered before.
            return None;
        }
        let is_other = self.known.is_some_and(|(known, age, at_ns)| {
            // Containers give the same number again and again. Its clock counts seconds, and may be late by two.
            let passed_s = asked_ns.saturating_sub(at_ns) / 1_000_000_000;
            known != pid || age_s < age || age_s + 3 < age + passed_s
        });
        self.known = Some((pid, age_s, asked_ns));
        Some(Heard { asked_ns, is_other })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn another_process_is_known() {
        let mut server = Server::new(S);
        let mut told = |now_ns: u64, pid: u64, age_s: u64| {
            assert!(server.wants(now_ns));
            let number = server.ask(now_ns);
            assert!(!server.wants(now_ns + S / 8) && server.wants(now_ns + S / 4));
            let text = format!("STAT pid {pid}\r\nSTAT uptime {age_s}\r\nSTAT time 5\r\n");
            assert_eq!(server.heard(number.wrapping_add(1), text.as_bytes()), None);
            let heard = server.heard(number, text.as_bytes()).unwrap();
            assert_eq!(heard.asked_ns, now_ns);
            assert_eq!(server.heard(number, text.as_bytes()), None, "twice");
            heard.is_other
        };
        assert!(!told(0, 7, 100) && !told(10 * S, 7, 109) && !told(11 * S, 7, 111));
        assert!(told(12 * S, 8, 0) && !told(13 * S, 8, 1));
        assert!(told(14 * S, 8, 0), "younger");
        assert!(!told(15 * S, 8, 1) && told(65 * S, 8, 40), "too young");
        let number = server.ask(70 * S);
        assert_eq!(server.heard(number, b"STAT pid x\r\n"), None);
    }
}
