//! What becomes of one packet: the state machine of [`State`] on bytes. Time is handed in, and nothing else is looked at.
//!
//! | packet | becomes |
//! |---|---|
//! | from inside, leaving | source: what it is mapped to |
//! | from outside, to the pool | destination: what is mapped there |
//! | from inside, to the pool (hairpin: RFC 4787 REQ-9) | both |
//! | an ICMP error about one of these | the packet quoted as its sender knows it, and the outer addresses (RFC 5508 REQ-4 to REQ-7) |
//! | a later fragment | the addresses that its first one got |
//! | without ports, of a host that has a whole address | that address |

mod ahead;

use crate::header::{Fragment, Header};
use crate::nat::counters::{Counter, Counters};
use crate::nat::fragments::{Fragments, Known, Token, Whole};
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::packet::{Quote, Side, Upper, header, quote, rewrite, seal, upper};
use crate::nat::settings::{Plan, Times, Whose, is_near};
use crate::nat::state::{Piece, Refused, Saved, Share, State};
use tidemill_burst::DropReason;
use tidemill_flow::table::SizeError;

/// How a packet comes here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From inside, to an address of the pool.
    Hairpin,
    /// From outside, to an address of the pool.
    ToPool,
    /// From inside, to outside.
    Leaving,
    /// One of our own packets, to outside.
    Own,
    /// From us, to an address of the pool: one of our own packets, or a hairpin that another worker has done the first half of.
    FromUs,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was translated.
    Translated,
    /// It was a first fragment, and was translated; those with one of these tokens need not wait any longer.
    First(Token, Option<Token>),
    /// It goes on as it is.
    Passed,
    /// It waits for its first fragment.
    Waits(Token),
    /// It belongs to another worker, where it comes this way.
    Elsewhere(Handover),
    /// It is dropped.
    Drop(DropReason),
    /// It is dropped, and its sender is to be told.
    Tell(DropReason),
}

/// Where a packet goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover {
    /// The worker's number.
    pub worker: usize,
    /// How it comes there.
    pub way: Way,
    /// Fragments with this token need not wait any longer.
    pub first: Option<Token>,
}

/// What a packet is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    /// Milliseconds since the epoch.
    pub ms: u64,
    /// How long things are known.
    pub times: &'a Times,
    /// Whose the pool's addresses are besides, in order.
    pub owners: &'a [Whose],
    /// Who cannot come from outside besides them: see [`Rules`](crate::nat::Rules).
    pub near: &'a [(u128, bool)],
}

/// One worker's NAT of one family.
pub struct Nat<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize> {
    state: State<A, E, S, T>,
    fragments: Fragments<A>,
    /// With several workers: whose the fragments are that come to this one.
    arrivals: Fragments<A>,
    share: Share,
    counters: Counters,
    /// What [`settled`](Self::settled) says.
    settled: [Option<Token>; 2],
}

/// NAT of IPv4.
pub type Nat4 = Nat<u32, 1, 2, 4>;
/// NAT of IPv6.
pub type Nat6 = Nat<u128, 3, 5, 5>;

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Nat<A, E, S, T> {
    /// For one worker; see [`State::new`].
    ///
    /// # Errors
    /// Tables that are too large.
    pub fn new(plan: Plan<A>, share: Share, secret: u128) -> Result<Self, SizeError> {
        let fragments = Fragments::new(plan.fragments, (secret >> 32) as u64);
        let arrivals = Fragments::new(plan.fragments, (secret >> 48) as u64);
        let state = State::new(plan, share, secret)?;
        Ok(Nat { state, fragments, arrivals, share, counters: Counters::default(), settled: [None; 2] })
    }

    /// Mappings and sessions.
    pub fn state(&self) -> &State<A, E, S, T> {
        &self.state
    }

    #[cfg(test)]
    pub(crate) fn state_mut(&mut self) -> &mut State<A, E, S, T> {
        &mut self.state
    }

    /// What it has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// After a fragment that was refused: tokens of those that have waited for it, and now need not any longer.
    pub fn settled(&self) -> impl Iterator<Item = Token> + use<A, E, S, T> {
        self.settled.into_iter().flatten()
    }

    /// What a fragment's source is counted by, of IPv6 its /64; and whether an inside host has sent it.
    pub(crate) fn source(way: Way, ip: &[u8]) -> (u128, bool) {
        let source: u128 = A::read(ip.get(A::SOURCE..).unwrap_or_default()).into();
        (if A::V6 { source >> 64 } else { source }, matches!(way, Way::Leaving | Way::Hairpin))
    }

    /// What nobody outside knows, for tables of whoever holds packets for it.
    pub(crate) fn salt(&self) -> u64 {
        self.fragments.salt()
    }

    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Ends sessions whose time is over, among those of the next `buckets` buckets.
    pub fn reclaim(&mut self, now_ms: u64, buckets: usize) {
        let gone = self.state.reclaim(now_ms, buckets);
        let (evicted, unnoted) = self.state.take_counts();
        self.counters.add(Counter::SessionsEnded, gone as u64);
        self.counters.add(Counter::SessionsEvicted, evicted);
        self.counters.add(Counter::Unnoted, unnoted);
    }

    /// Goes on with a session of another process ([`State::restore`]): before packets flow.
    ///
    /// # Errors
    /// It does not fit, or belongs to another worker.
    pub fn restore(&mut self, now: &Now<'_>, saved: &Saved<A>) -> Result<(), DropReason> {
        self.state.restore(now.ms, now.times, saved)
    }

    /// Translates `ip`, a packet from its IP header on that has come to this worker, in place. Where it is not translated its bytes are as
    /// they were.
    pub fn translate(&mut self, now: &Now<'_>, way: Way, ip: &mut [u8]) -> Fate {
        self.settled = [None; 2];
        let Some(header) = header::<A>(ip) else { return Fate::Drop(DropReason::NatMalformed) };
        if self.share.workers < 2 {
            return self.own(now, way, ip, &header);
        }
        match self.dispatch(now, way, ip, &header) {
            Err(fate) => fate,
            Ok(arrival) => match self.own(now, way, ip, &header) {
                Fate::First(token, _) => Fate::First(token, arrival),
                fate => {
                    self.settled[1] = self.settled[1].or(arrival);
                    fate
                }
            },
        }
    }

    /// The same of a packet that another worker has handed over to this one.
    pub fn adopt(&mut self, now: &Now<'_>, way: Way, ip: &mut [u8]) -> Fate {
        self.settled = [None; 2];
        match header::<A>(ip) {
            Some(header) => self.own(now, way, ip, &header),
            None => Fate::Drop(DropReason::NatMalformed),
        }
    }

    /// Whether a packet is ours: `Err` what becomes of it if not, or if nobody knows yet; of a first fragment the token of those that wait to know.
    fn dispatch(
        &mut self,
        now: &Now<'_>,
        way: Way,
        ip: &[u8],
        header: &Header<A>,
    ) -> Result<Option<Token>, Fate> {
        let mine = self.share.worker;
        let Some(piece) = header.fragment else {
            return match self.owner(way, ip, header).unwrap_or(mine) {
                worker if worker == mine => Ok(None),
                worker => Err(Fate::Elsewhere(Handover { worker, way, first: None })),
            };
        };
        let refused = Fate::Drop(DropReason::NatFragmentRefused);
        let (whole, bytes) = fragment(way, header, piece).map_err(Fate::Drop)?;
        let (token, known) = self.arrivals.meet(now.ms, now.times.fragment_ms, whole, bytes, piece.more);
        let token = token.of_arrivals();
        let (worker, first) = match known {
            Known::Refused | Known::Addresses(..) => {
                if self.arrivals.take_waiting(token) {
                    self.settled[1] = Some(token);
                }
                return Err(refused);
            }
            Known::Worker(worker) => (usize::from(worker), None),
            Known::Nothing if piece.offset > 0 => return Err(Fate::Waits(token)),
            Known::Nothing => {
                let worker = self.owner(way, ip, header).unwrap_or(mine);
                self.arrivals.learn(token, Known::Worker(worker as u16));
                // Those that have waited here go to the same one, also if that is us.
                (worker, Some(token))
            }
        };
        if worker != mine {
            return Err(Fate::Elsewhere(Handover { worker, way, first }));
        }
        Ok(first)
    }

    /// Whose a packet with ports is; `None`: anybody's.
    fn owner(&self, way: Way, ip: &[u8], header: &Header<A>) -> Option<usize> {
        Some(match (way, upper::<A, E, S, T>(ip, header).ok()?) {
            (Way::Leaving | Way::Hairpin, Upper::Piece(..)) => self.state.worker_of_host(header.source),
            (Way::ToPool | Way::FromUs, Upper::Piece(piece, _, port)) => {
                self.state.worker_of(piece.proto(), Endpoint { address: header.destination, port })
            }
            (Way::Leaving | Way::Hairpin | Way::Own, Upper::Error) => {
                self.state.worker_of_host(quote::<A, E, S, T>(ip, header).ok()?.destination.address)
            }
            (Way::ToPool | Way::FromUs, Upper::Error) => {
                let quote = quote::<A, E, S, T>(ip, header).ok()?;
                self.state.worker_of(quote.proto, quote.source)
            }
            (Way::Own, _) | (_, Upper::Other) => return None,
        })
    }

    /// A packet that is ours.
    fn own(&mut self, now: &Now<'_>, way: Way, ip: &mut [u8], header: &Header<A>) -> Fate {
        let Some(piece) = header.fragment else { return self.whole(now, way, ip, header) };
        let (whole, bytes) = match fragment(way, header, piece) {
            Ok(fragment) => fragment,
            Err(reason) => return Fate::Drop(reason),
        };
        let (token, known) = self.fragments.meet(now.ms, now.times.fragment_ms, whole, bytes, piece.more);
        match known {
            Known::Refused | Known::Worker(_) => {
                self.settle(token);
                Fate::Drop(DropReason::NatFragmentRefused)
            }
            Known::Addresses(source, destination) => {
                self.place(ip, header, source, destination);
                Fate::Translated
            }
            Known::Nothing if piece.offset > 0 => Fate::Waits(token),
            Known::Nothing => {
                let fate = self.whole(now, way, ip, header);
                let address = |at: usize| A::read(ip.get(at..).unwrap_or_default());
                match fate {
                    Fate::Translated | Fate::Passed => {
                        let addresses = (address(A::SOURCE), address(A::SOURCE + A::BYTES));
                        self.fragments.learn(token, Known::Addresses(addresses.0, addresses.1));
                        Fate::First(token, None)
                    }
                    // Half of a hairpin: its other half, and so its fragments, are another worker's.
                    Fate::Elsewhere(handover) => {
                        self.fragments.learn(token, Known::Worker(handover.worker as u16));
                        self.settle(token);
                        Fate::Drop(DropReason::NatFragmentRefused)
                    }
                    refused => {
                        self.fragments.learn(token, Known::Refused);
                        self.settle(token);
                        refused
                    }
                }
            }
        }
    }

    /// Those that wait for this need not any longer.
    fn settle(&mut self, token: Token) {
        if self.fragments.take_waiting(token) {
            self.settled[0] = Some(token);
        }
    }

    /// A fragment that has waited: what becomes of it now that its first one may have come.
    pub fn resume(&mut self, now: &Now<'_>, way: Way, token: Token, ip: &mut [u8]) -> Fate {
        self.settled = [None; 2];
        let Some(header) = header::<A>(ip) else { return Fate::Drop(DropReason::NatMalformed) };
        let table = if token.is_of_arrivals() { &self.arrivals } else { &self.fragments };
        match table.look(now.ms, token) {
            None => Fate::Drop(DropReason::NatFragmentTimeout),
            Some(Known::Nothing) => Fate::Waits(token),
            Some(Known::Worker(worker)) if usize::from(worker) == self.share.worker => {
                self.own(now, way, ip, &header)
            }
            Some(Known::Worker(worker)) => {
                Fate::Elsewhere(Handover { worker: worker.into(), way, first: None })
            }
            Some(Known::Refused) => Fate::Drop(DropReason::NatFragmentRefused),
            Some(Known::Addresses(source, destination)) => {
                self.place(ip, &header, source, destination);
                Fate::Translated
            }
        }
    }

    /// A later fragment: its addresses only. The first one's checksum covers it all.
    fn place(&mut self, ip: &mut [u8], header: &Header<A>, source: A, destination: A) {
        self.counters.one(Counter::Fragments);
        for (side, old, new) in
            [(Side::Source, header.source, source), (Side::Destination, header.destination, destination)]
        {
            if old != new {
                rewrite::<A, E, S, T>(ip, header.upper, None, side, Endpoint { address: new, port: 0 });
            }
        }
    }

    fn whole(&mut self, now: &Now<'_>, way: Way, ip: &mut [u8], header: &Header<A>) -> Fate {
        // No session of who is outside is with an address of the pool: hairpins have keys of their own.
        let from_outside = way == Way::ToPool;
        if from_outside && self.state.is_pool(header.source) {
            return Fate::Drop(DropReason::MartianSource);
        }
        let upper = match upper::<A, E, S, T>(ip, header) {
            Ok(upper) => upper,
            // What is not ours to translate may be for who has the address.
            Err(reason) if way == Way::Own || self.is_shared(now, way, header) => {
                return self.pass(reason, way);
            }
            Err(reason) => return Fate::Drop(reason),
        };
        if from_outside
            && is_near(now.near, header.source.into())
            && !self.may_come_from_near(now, header, upper)
        {
            return Fate::Drop(DropReason::MartianSource);
        }
        match (way, upper) {
            (Way::Leaving, Upper::Piece(piece, from, to)) => self.out(now, ip, header, piece, from, to),
            (Way::ToPool | Way::FromUs, Upper::Piece(piece, from, to)) => {
                self.come_in(now, ip, header, piece, from, to)
            }
            (Way::Hairpin, Upper::Piece(piece, from, to)) => self.turn(now, ip, header, piece, from, to),
            (Way::Leaving, Upper::Error) => self.error_out(now, ip, header, true),
            (Way::Own, Upper::Error) => self.error_out(now, ip, header, false),
            (Way::ToPool | Way::FromUs, Upper::Error) => self.error_in(now, ip, header),
            (Way::Hairpin, Upper::Error) => self.error_turn(now, ip, header),
            (Way::Own, _) => Fate::Passed,
            (_, Upper::Other) => self.without_ports(now, way, ip, header),
        }
    }

    /// Whether a packet from outside comes from one who was asked, so that it may have an address which seems to be inside: a route has led there.
    fn may_come_from_near(&self, now: &Now<'_>, header: &Header<A>, upper: Upper) -> bool {
        match upper {
            Upper::Piece(piece, from, to) => {
                let outside = Endpoint { address: header.destination, port: to };
                let remote = Endpoint { address: header.source, port: remote_port(piece, from) };
                self.state.has_asked(now.ms, piece.proto(), outside, remote)
            }
            // Nobody's question, and routers on their way may have private addresses that are somebody's here, too.
            Upper::Error => true,
            Upper::Other => false,
        }
    }

    /// Whether the packet is to an address that somebody has besides us.
    fn is_shared(&self, now: &Now<'_>, way: Way, header: &Header<A>) -> bool {
        matches!(way, Way::ToPool | Way::FromUs | Way::Hairpin)
            && self.whose(now, header.destination) != Whose::Pool
    }

    fn whose(&self, now: &Now<'_>, address: A) -> Whose {
        let at = self.state.plan().pool.binary_search(&address).ok();
        at.and_then(|at| now.owners.get(at)).copied().unwrap_or_default()
    }

    fn pass(&mut self, reason: DropReason, way: Way) -> Fate {
        // Damaged packets are for nobody.
        if reason == DropReason::NatMalformed && way != Way::Own {
            return Fate::Drop(reason);
        }
        self.counters.one(Counter::Passed);
        Fate::Passed
    }

    fn out(
        &mut self,
        now: &Now<'_>,
        ip: &mut [u8],
        header: &Header<A>,
        piece: Piece,
        from: u16,
        to: u16,
    ) -> Fate {
        let inside = Endpoint { address: header.source, port: from };
        let remote = Endpoint { address: header.destination, port: remote_port(piece, to) };
        match self.state.leave(now.ms, now.times, inside, remote, piece) {
            Ok(outside) => {
                rewrite::<A, E, S, T>(ip, header.upper, Some(piece.proto()), Side::Source, outside);
                self.counters.one(Counter::Out);
                Fate::Translated
            }
            Err(reason) => refused(reason),
        }
    }

    fn come_in(
        &mut self,
        now: &Now<'_>,
        ip: &mut [u8],
        header: &Header<A>,
        piece: Piece,
        from: u16,
        to: u16,
    ) -> Fate {
        let outside = Endpoint { address: header.destination, port: to };
        let remote = Endpoint { address: header.source, port: remote_port(piece, from) };
        match self.state.enter(now.ms, now.times, outside, remote, piece) {
            Ok(inside) => {
                rewrite::<A, E, S, T>(ip, header.upper, Some(piece.proto()), Side::Destination, inside);
                self.counters.one(Counter::In);
                Fate::Translated
            }
            Err(Refused::Unmapped) => self.unmapped(now, header, piece),
            Err(Refused::Drop(reason)) => Fate::Drop(reason),
        }
    }

    /// Hairpin: the source is mapped as if it left, and comes in as what it looks like.
    fn turn(
        &mut self,
        now: &Now<'_>,
        ip: &mut [u8],
        header: &Header<A>,
        piece: Piece,
        from: u16,
        to: u16,
    ) -> Fate {
        let outside = Endpoint { address: header.destination, port: to };
        let inside = Endpoint { address: header.source, port: from };
        let proto = piece.proto();
        let is_whole = || self.state.statics().host_of(outside.address).is_some();
        // No mapping is made for who talks to nobody; with several workers only the other one may know.
        let alone = self.share.workers < 2;
        // An identifier may become another one, and with it another worker's.
        let would_know =
            alone || (proto != Proto::Icmp && self.state.worker_of(proto, outside) == self.share.worker);
        if would_know && self.state.find_outside(proto, outside).is_none() && !is_whole() {
            return self.unmapped(now, header, piece);
        }
        let remote = Endpoint { port: remote_port(piece, to), ..outside };
        let looks = match self.state.leave(now.ms, now.times, inside, remote, piece) {
            Ok(looks) => looks,
            Err(reason) => return refused(reason),
        };
        // An identifier is both ends': it comes in as what it has become.
        let outside = if proto == Proto::Icmp { Endpoint { port: looks.port, ..outside } } else { outside };
        let worker = self.state.worker_of(proto, outside);
        if worker != self.share.worker && !alone {
            // The other half of it: there it comes from what its source looks like.
            rewrite::<A, E, S, T>(ip, header.upper, Some(proto), Side::Source, looks);
            return Fate::Elsewhere(Handover { worker, way: Way::FromUs, first: None });
        }
        let remote = Endpoint { port: remote_port(piece, looks.port), ..looks };
        match self.state.enter(now.ms, now.times, outside, remote, piece) {
            Ok(to) => {
                rewrite::<A, E, S, T>(ip, header.upper, Some(proto), Side::Source, looks);
                rewrite::<A, E, S, T>(ip, header.upper, Some(proto), Side::Destination, to);
                self.counters.one(Counter::Hairpin);
                Fate::Translated
            }
            Err(Refused::Unmapped) => self.unmapped(now, header, piece),
            Err(Refused::Drop(reason)) => Fate::Drop(reason),
        }
    }

    fn unmapped(&mut self, now: &Now<'_>, header: &Header<A>, piece: Piece) -> Fate {
        match (self.whose(now, header.destination), piece) {
            // A silent no: an answer at once would break who opens from both sides (RFC 5382, REQ-4).
            (Whose::Pool, _) | (Whose::Ours, Piece::Tcp(_) | Piece::Udp | Piece::Reply) => {
                Fate::Drop(DropReason::NatUnmapped)
            }
            (Whose::Ours, Piece::Request) => {
                self.counters.one(Counter::Passed);
                Fate::Passed
            }
        }
    }

    /// An ICMP error from inside, about a packet that we let in; `outer`: whose source is to be hidden.
    fn error_out(&mut self, now: &Now<'_>, ip: &mut [u8], header: &Header<A>, outer: bool) -> Fate {
        let unmatched = if outer { Fate::Drop(DropReason::NatErrorUnmatched) } else { Fate::Passed };
        let quote = match quote::<A, E, S, T>(ip, header) {
            Ok(quote) => quote,
            Err(_) if !outer => return Fate::Passed,
            Err(reason) => return Fate::Drop(reason),
        };
        if !is_to_sender(header, &quote) {
            return unmatched;
        }
        if quote.is_plain {
            let way = if outer { Way::Leaving } else { Way::Own };
            return self.error_whole(now, way, ip, header, &quote);
        }
        let (inside, remote) = (receiver(&quote), error_remote(quote.proto, quote.source));
        let Some(outside) = self.state.reached_as(now.ms, quote.proto, inside, remote) else {
            // What we say ourselves shows nobody's inside address either.
            return if self.state.is_host(inside.address) {
                Fate::Drop(DropReason::NatErrorUnmatched)
            } else {
                unmatched
            };
        };
        quote.rewrite(ip, Side::Destination, outside);
        if outer {
            let address = Endpoint { port: 0, ..outside };
            rewrite::<A, E, S, T>(ip, header.upper, None, Side::Source, address);
        }
        seal::<A, E, S, T>(ip, header.upper, header.end);
        self.counters.one(Counter::ErrorsOut);
        Fate::Translated
    }

    /// An ICMP error from outside, about a packet that we let out.
    fn error_in(&mut self, now: &Now<'_>, ip: &mut [u8], header: &Header<A>) -> Fate {
        let quote = match quote::<A, E, S, T>(ip, header) {
            Ok(quote) => quote,
            Err(reason) => return self.error_unmatched(now, header, reason),
        };
        if !is_to_sender(header, &quote) {
            return self.error_unmatched(now, header, DropReason::NatErrorUnmatched);
        }
        if quote.is_plain {
            return self.error_whole(now, Way::ToPool, ip, header, &quote);
        }
        let remote = error_remote(quote.proto, quote.destination);
        let Some(inside) = self.state.sent_by(now.ms, quote.proto, quote.source, remote) else {
            // One of our own about a hairpin: that is quoted as it went to its receiver. Who says it stays.
            return self.error_back(now, ip, header, &quote, false);
        };
        quote.rewrite(ip, Side::Source, inside);
        let address = Endpoint { port: 0, ..inside };
        rewrite::<A, E, S, T>(ip, header.upper, None, Side::Destination, address);
        seal::<A, E, S, T>(ip, header.upper, header.end);
        self.counters.one(Counter::ErrorsIn);
        Fate::Translated
    }

    /// An ICMP error from inside about a packet that came from inside by the pool: the quote turns back at both ends (RFC 5508, REQ-6, REQ-7).
    fn error_turn(&mut self, now: &Now<'_>, ip: &mut [u8], header: &Header<A>) -> Fate {
        let quote = match quote::<A, E, S, T>(ip, header) {
            Ok(quote) => quote,
            Err(reason) => return self.error_unmatched(now, header, reason),
        };
        if !is_to_sender(header, &quote) {
            return self.error_unmatched(now, header, DropReason::NatErrorUnmatched);
        }
        if quote.is_plain {
            return self.error_whole(now, Way::Hairpin, ip, header, &quote);
        }
        let worker = self.state.worker_of(quote.proto, quote.source);
        if worker != self.share.worker && self.share.workers > 1 {
            return match self.error_out(now, ip, header, true) {
                Fate::Translated => Fate::Elsewhere(Handover { worker, way: Way::FromUs, first: None }),
                refused => refused,
            };
        }
        self.error_back(now, ip, header, &quote, true)
    }

    /// An ICMP error about a hairpin goes back to its sender; `outer`: whose source is to be hidden.
    fn error_back(
        &mut self,
        now: &Now<'_>,
        ip: &mut [u8],
        header: &Header<A>,
        quote: &Quote<A>,
        outer: bool,
    ) -> Fate {
        // As it came to its receiver: from what its sender looks like, to what the receiver is.
        let sender = self.state.inside_of(quote.proto, quote.source);
        let remote = error_remote(quote.proto, quote.source);
        let looks = self.state.reached_as(now.ms, quote.proto, receiver(quote), remote);
        let (Some(sender), Some(looks)) = (sender, looks) else {
            return self.error_unmatched(now, header, DropReason::NatErrorUnmatched);
        };
        // An identifier stands once: in the end it is its sender's.
        quote.rewrite(ip, Side::Destination, looks);
        quote.rewrite(ip, Side::Source, sender);
        let (from, to) = (Endpoint { port: 0, ..looks }, Endpoint { port: 0, ..sender });
        if outer {
            rewrite::<A, E, S, T>(ip, header.upper, None, Side::Source, from);
        }
        rewrite::<A, E, S, T>(ip, header.upper, None, Side::Destination, to);
        seal::<A, E, S, T>(ip, header.upper, header.end);
        self.counters.one(Counter::Hairpin);
        Fate::Translated
    }

    /// One that is about nothing of ours may be about a packet of whoever has the address.
    fn error_unmatched(&mut self, now: &Now<'_>, header: &Header<A>, reason: DropReason) -> Fate {
        if reason == DropReason::NatErrorUnmatched && self.whose(now, header.destination) != Whose::Pool {
            self.counters.one(Counter::Passed);
            return Fate::Passed;
        }
        Fate::Drop(reason)
    }

    /// An ICMP error about a packet without ports: of who has a whole address.
    fn error_whole(
        &mut self,
        now: &Now<'_>,
        way: Way,
        ip: &mut [u8],
        header: &Header<A>,
        quote: &Quote<A>,
    ) -> Fate {
        let looks = self.state.statics().address_of(quote.destination.address);
        let sender = self.state.statics().host_of(quote.source.address);
        let (inside, outside) = match (way, looks, sender) {
            (Way::Leaving | Way::Own, Some(looks), _) => (None, Some(looks)),
            (Way::ToPool, looks, Some(sender)) => (Some(sender), looks),
            (Way::Hairpin, Some(looks), Some(sender)) => (Some(sender), Some(looks)),
            (Way::Own, ..) if !self.state.is_host(quote.destination.address) => return Fate::Passed,
            (Way::Leaving | Way::Own, ..) => return Fate::Drop(DropReason::NatErrorUnmatched),
            _ => return self.error_unmatched(now, header, DropReason::NatErrorUnmatched),
        };
        let at = |address| Endpoint { address, port: 0 };
        if let Some(outside) = outside {
            quote.rewrite(ip, Side::Destination, at(outside));
            if matches!(way, Way::Leaving | Way::Hairpin) {
                rewrite::<A, E, S, T>(ip, header.upper, None, Side::Source, at(outside));
            }
        }
        if let Some(inside) = inside {
            quote.rewrite(ip, Side::Source, at(inside));
            rewrite::<A, E, S, T>(ip, header.upper, None, Side::Destination, at(inside));
        }
        seal::<A, E, S, T>(ip, header.upper, header.end);
        self.counters.one(Counter::Addresses);
        Fate::Translated
    }

    /// A protocol without ports: only a host that has a whole address can be told by it.
    fn without_ports(&mut self, now: &Now<'_>, way: Way, ip: &mut [u8], header: &Header<A>) -> Fate {
        // Those whose checksums cover the addresses: DCCP, AH, UDP-Lite, HIP; over IPv6 OSPF, PIM, VRRP and Mobility, too.
        let covered = matches!(header.protocol.0, 33 | 51 | 136 | 139)
            || (A::V6 && matches!(header.protocol.0, 89 | 103 | 112 | 135));
        let out = self.state.statics().address_of(header.source);
        let into = self.state.statics().host_of(header.destination);
        let (source, destination) = match way {
            Way::Leaving => (out, Some(header.destination)),
            Way::Hairpin => (out, into),
            Way::ToPool | Way::FromUs | Way::Own => (Some(header.source), into),
        };
        match (source, destination) {
            (Some(source), Some(destination)) if !covered => {
                for (side, old, new) in [
                    (Side::Source, header.source, source),
                    (Side::Destination, header.destination, destination),
                ] {
                    if old != new {
                        let end = Endpoint { address: new, port: 0 };
                        rewrite::<A, E, S, T>(ip, header.upper, None, side, end);
                    }
                }
                self.counters.one(Counter::Addresses);
                Fate::Translated
            }
            _ if self.is_shared(now, way, header) => self.pass(DropReason::NatProtocol, way),
            _ => Fate::Drop(DropReason::NatProtocol),
        }
    }
}

/// What a fragment is one of, and its bytes.
fn fragment<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    way: Way,
    header: &Header<A>,
    piece: Fragment,
) -> Result<(Whole<A>, std::ops::Range<u32>), DropReason> {
    let length = header.end.saturating_sub(piece.at) as u32;
    // All but the last are in units of eight bytes.
    if piece.more && !length.is_multiple_of(8) {
        return Err(DropReason::NatFragmentRefused);
    }
    let whole = Whole {
        source: header.source,
        destination: header.destination,
        ident: piece.ident,
        // Behind IPv6's fragment header each may go on with another one; the identification is enough (RFC 8200, section 4.5).
        protocol: if A::V6 { 0 } else { header.protocol.0 },
        way: way as u16,
        from_inside: matches!(way, Way::Leaving | Way::Hairpin),
    };
    Ok((whole, piece.offset..piece.offset + length))
}

/// What stands for the remote port: queries have one identifier, which is ours.
fn remote_port(piece: Piece, port: u16) -> u16 {
    match piece {
        Piece::Tcp(_) | Piece::Udp => port,
        Piece::Request | Piece::Reply => 0,
    }
}

/// Whether an ICMP error goes to who has sent the packet that it is about: any other is nobody's answer.
fn is_to_sender<A: PartialEq>(header: &Header<A>, quote: &Quote<A>) -> bool {
    header.destination == quote.source.address
}

/// The endpoint that a quoted packet was to: an identifier is both ends'.
fn receiver<A: Copy>(quote: &Quote<A>) -> Endpoint<A> {
    match quote.proto {
        Proto::Icmp => Endpoint { port: quote.source.port, ..quote.destination },
        Proto::Tcp | Proto::Udp => quote.destination,
    }
}

fn error_remote<A>(proto: Proto, end: Endpoint<A>) -> Endpoint<A> {
    match proto {
        Proto::Icmp => Endpoint { port: 0, ..end },
        _ => end,
    }
}

/// Senders are told where no session could be made (RFC 5508, REQ-8).
fn refused(reason: DropReason) -> Fate {
    match reason {
        DropReason::NatPortsExhausted
        | DropReason::NatHostLimit
        | DropReason::NatHostSessions
        | DropReason::NatTableFull
        | DropReason::NatHostUnknown => Fate::Tell(reason),
        reason => Fate::Drop(reason),
    }
}
