//! Whether memcached is still the process that the values came from: it is asked for `stats` now and then, which begin with its number and its age.
//! A memcached that was started again is empty, and nothing that the bridge sees on its way need say so. And what flush for later waits in it, when that is not
//! known (`stats settings`): in seconds of its own clock, which `stats` shows. And whether connections wait to be accepted: its kernel takes what they bring, and
//! it executes that when it has accepted them, even those that were reset meanwhile, which nothing on the way shows.

/// What memcached has said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// When it was asked.
    pub(crate) asked_ns: u64,
    /// It is not the process that it was.
    pub(crate) is_other: bool,
    /// For so long it has answered nothing that it was asked.
    pub(crate) silent_ns: u64,
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Process,
    /// The gate's doubt.
    Flush(u64),
}

/// memcached's clock began so many seconds before its uptime does.
const CLOCK_AHEAD_S: u64 = 60;
/// A flush that is in doubt is asked for no more often.
const FLUSH_EVERY_NS: u64 = 100_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Its clock counts seconds, and jumps by two now and then; its answer may come later than it was asked.
const LATE_S: u64 = 4;
/// Questions that may be on their way.
const QUESTIONS: usize = 8;

/// What it has said last.
#[derive(Debug, Clone, Copy)]
struct Known {
    pid: u64,
    /// The second that it began in, by its own clock: of one process always the same.
    began_s: u64,
    age_s: u64,
    /// When it was asked.
    at_ns: u64,
}

/// The questions and what is known.
#[derive(Debug)]
pub(crate) struct Server {
    every_ns: u64,
    next_ns: u64,
    flush_next_ns: u64,
    /// The last questions: number, time, what for.
    asked: [Option<(u16, u64, About)>; QUESTIONS],
    number: u16,
    known: Option<Known>,
    /// Since when it is asked, and has answered nothing.
    silent_since_ns: Option<u64>,
    /// By its last word it accepts no connections.
    is_full: bool,
    /// How often it has stopped to accept some.
    stops: Option<u64>,
}

impl Server {
    /// Asks four times in each lease.
    pub(crate) fn new(lease_ns: u64) -> Self {
        Server {
            every_ns: lease_ns / 4,
            next_ns: 0,
            flush_next_ns: 0,
            asked: [None; QUESTIONS],
            number: 0,
            known: None,
            silent_since_ns: None,
            is_full: false,
            stops: None,
        }
    }

    /// Between two questions, where there are gets.
    pub(crate) fn every_ns(&self) -> u64 {
        self.every_ns
    }

    /// Whether it is time to ask.
    #[inline]
    pub(crate) fn wants(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// A question is made: the number of its request.
    pub(crate) fn ask(&mut self, now_ns: u64) -> u16 {
        self.next_ns = now_ns.saturating_add(self.every_ns);
        self.silent_since_ns = self.silent_since_ns.or(Some(now_ns));
        self.note(now_ns, About::Process)
    }

    fn note(&mut self, now_ns: u64, about: About) -> u16 {
        self.number = self.number.wrapping_add(1);
        self.asked[usize::from(self.number) % QUESTIONS] = Some((self.number, now_ns, about));
        self.number
    }

    /// Whether it may be asked for flushes: its clock is known, and it was not asked just now.
    #[inline]
    pub(crate) fn may_tell(&self, now_ns: u64) -> bool {
        self.known.is_some() && now_ns >= self.flush_next_ns
    }

    /// A question for flushes is made, in this doubt: the number of its request.
    pub(crate) fn ask_flush(&mut self, doubt: u64, now_ns: u64) -> u16 {
        self.flush_next_ns = now_ns.saturating_add(self.every_ns.min(FLUSH_EVERY_NS));
        self.note(now_ns, About::Flush(doubt))
    }

    /// An answer to that, its first datagram: the doubt, and when a flush takes effect, by our clock. One that does not tell is no answer.
    pub(crate) fn flush(&mut self, number: u16, text: &[u8]) -> Option<(u64, Option<u64>)> {
        let oldest_s = stat(text, "STAT oldest ")?;
        let Known { age_s, at_ns, .. } = self.known?;
        let place = &mut self.asked[usize::from(number) % QUESTIONS];
        let (.., about) = place.take_if(|(asked, _, about)| *asked == number && *about != About::Process)?;
        let About::Flush(doubt) = about else { return None };
        // Its clock has shown age and 60 at `at_ns`: one before that second is over. At once: the second before its own.
        let ahead_s = oldest_s.checked_sub(age_s.saturating_add(CLOCK_AHEAD_S));
        let flush_ns = ahead_s.map(|ahead_s| at_ns.saturating_add(ahead_s.saturating_mul(SECOND_NS)));
        Some((doubt, flush_ns))
    }

    /// An answer to the question of this number that comes now, if that was one of the last.
    pub(crate) fn heard(&mut self, number: u16, text: &[u8], now_ns: u64) -> Option<Heard> {
        let place = &mut self.asked[usize::from(number) % QUESTIONS];
        let (_, asked_ns, _) =
            place.take_if(|(asked, _, about)| *asked == number && *about == About::Process)?;
        let [pid, age_s, time_s] =
            [stat(text, "STAT pid ")?, stat(text, "STAT uptime ")?, stat(text, "STAT time ")?];
        let began_s = time_s.wrapping_sub(age_s);
        if self.known.is_some_and(|known| asked_ns < known.at_ns) {
            // A later one was answered before.
            return None;
        }
        let is_other = self.known.is_some_and(|known| {
            // Containers give the same number again and again. And one of the two clocks may have stood, of a machine that was suspended: then what was kept
            // may have ended, and flushes come at another time.
            let expected_s = known.age_s.saturating_add(asked_ns.saturating_sub(known.at_ns) / SECOND_NS);
            (known.pid, known.began_s) != (pid, began_s) || age_s.abs_diff(expected_s) > LATE_S
        });
        self.known = Some(Known { pid, began_s, age_s, at_ns: asked_ns });
        let silent_ns = self.silent_since_ns.take().map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        Some(Heard { asked_ns, is_other, silent_ns })
    }

    /// Whether connections wait to be accepted, or have waited until just now, by a datagram of an answer: it may be any of them that tells.
    pub(crate) fn is_behind(&mut self, text: &[u8]) -> bool {
        let mut is_behind = false;
        if let Some(accepts) = stat(text, "STAT accepting_conns ") {
            // Once more when it accepts again: then it has them, and has not executed what they bring.
            is_behind |= accepts == 0 || self.is_full;
            self.is_full = accepts == 0;
        }
        if let Some(stops) = stat(text, "STAT listen_disabled_num ") {
            is_behind |= self.stops.replace(stops).is_some_and(|before| before != stops);
        }
        is_behind
    }
}

fn stat(text: &[u8], name: &str) -> Option<u64> {
    let text = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
    std::str::from_utf8(text).ok()?.trim().parse::<u64>().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn another_process_is_known() {
        let mut server = Server::new(S);
        let mut told = |now_ns: u64, pid: u64, age_s: u64, began_s: u64| {
            assert!(server.wants(now_ns));
            let number = server.ask(now_ns);
            assert!(!server.wants(now_ns + S / 8) && server.wants(now_ns + S / 4));
            let text = format!("STAT pid {pid}\r\nSTAT uptime {age_s}\r\nSTAT time {}\r\n", began_s + age_s);
            assert_eq!(server.heard(number.wrapping_add(1), text.as_bytes(), now_ns), None);
            let heard = server.heard(number, text.as_bytes(), now_ns + 7).unwrap();
            assert_eq!((heard.asked_ns, heard.silent_ns), (now_ns, 7));
            assert_eq!(server.heard(number, text.as_bytes(), now_ns), None, "twice");
            heard.is_other
        };
        assert!(!told(0, 7, 100, 900) && !told(10 * S, 7, 109, 900) && !told(11 * S, 7, 111, 900));
        assert!(told(12 * S, 8, 0, 1012) && !told(13 * S, 8, 1, 1012));
        assert!(told(14 * S, 8, 1, 1013), "it began a second later");
        assert!(!told(15 * S, 8, 2, 1013) && told(65 * S, 8, 40, 1013), "its clock has stood");
        assert!(!told(66 * S, 8, 43, 1013) && told(67 * S, 8, 3644, 1013), "ours has");
        let number = server.ask(70 * S);
        assert_eq!(server.heard(number, b"STAT pid x\r\n", 70 * S), None);
    }

    #[test]
    fn silence_counts_from_the_first_question_without_an_answer() {
        let mut server = Server::new(S);
        let text = b"STAT pid 7\r\nSTAT uptime 1000\r\nSTAT time 5000\r\n";
        let mut silent = |asks: &[u64], now_ns: u64| {
            let number = asks.iter().fold(0, |_, &at_ns| server.ask(at_ns));
            server.heard(number, text, now_ns).unwrap().silent_ns
        };
        assert_eq!(silent(&[10 * S, 11 * S, 12 * S], 12 * S + 5), 2 * S + 5);
        assert_eq!(silent(&[13 * S], 13 * S + 5), 5, "nobody asked in between");
    }

    #[test]
    fn the_flush_that_waits_is_known_by_its_clock() {
        let mut server = Server::new(S);
        assert!(!server.may_tell(0), "its clock is not known");
        let number = server.ask(10 * S);
        let process = b"STAT pid 7\r\nSTAT uptime 1000\r\nSTAT time 5000\r\n";
        assert!(server.heard(number, process, 10 * S).is_some());
        let mut told = |text: &str| {
            assert!(server.may_tell(12 * S));
            let number = server.ask_flush(5, 11 * S);
            assert!(!server.may_tell(11 * S + S / 20));
            assert_eq!(server.heard(number, process, 11 * S), None, "no answer to that");
            assert_eq!(server.flush(number.wrapping_add(1), text.as_bytes()), None);
            let told = server.flush(number, text.as_bytes());
            assert_eq!(server.flush(number, text.as_bytes()), None, "twice");
            told
        };
        assert_eq!(told("STAT maxbytes 5\r\nSTAT oldest 0\r\n"), Some((5, None)));
        assert_eq!(told("STAT oldest 1160\r\n"), Some((5, Some(110 * S))));
        assert_eq!(told("STAT oldest 1060\r\n"), Some((5, Some(10 * S))));
        assert_eq!(told("STAT oldest 1059\r\n"), Some((5, None)), "it is over");
        assert_eq!(told("STAT maxbytes 5\r\n"), None, "it does not tell");
    }

    #[test]
    fn it_says_when_connections_wait() {
        let mut server = Server::new(S);
        let text = |accepts: u8, stops: u8| {
            format!("STAT pid 7\r\nSTAT accepting_conns {accepts}\r\nSTAT listen_disabled_num {stops}\r\n")
        };
        let mut told = |text: &str| server.is_behind(text.as_bytes());
        assert!(!told("STAT pid 7\r\n") && !told(&text(1, 3)) && !told(&text(1, 3)));
        assert!(told(&text(0, 4)) && told(&text(0, 4)));
        assert!(!told("STAT pid 7\r\n"), "the other datagram tells");
        assert!(told(&text(1, 4)) && !told(&text(1, 4)));
        assert!(told(&text(1, 6)) && !told(&text(1, 6)), "between two questions");
        // The end of the datagram is anywhere.
        assert!(
            told("STAT accepting_conns 0\r\nSTAT listen_dis") && !told("abled_num 7\r\nSTAT threads 4\r\n")
        );
        assert!(told("STAT accepting_conns 1\r\nSTAT listen_dis") && !told("STAT accepting_conns "));
    }
}
