//! Who is connected over TCP and has shown no token yet. Strangers are kept from crowding out everybody else: a source has few places among them, and where
//! there is no place at all, one of those is taken away that has waited longest. Who shows a token is a stranger no more.
//!
//! ```text
//! full     198.51.100.7: #1 #4 #9 ... #40     2001:db8::/64: #12
//! #41 comes, from whomever: #1 has to go, the oldest of the source that has most
//! ```
//! So who comes last always gets in, and somebody with a token needs only the time of one request there, however many are silent.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Strangers of one source at the same time.
pub(crate) const OF_A_SOURCE: usize = 16;

/// All of them, in the order in which they came.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<Vec<Stranger>>);

struct Stranger {
    source: IpAddr,
    leave: Arc<Notify>,
}

/// A connection's place among them; given back when it is dropped.
pub(crate) struct Seat {
    strangers: Arc<Strangers>,
    leave: Arc<Notify>,
}

/// What counts as one: an IPv4 address, or an IPv6 network of 64 bits, of which every host has as many addresses as it likes.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

impl Strangers {
    fn list(&self) -> MutexGuard<'_, Vec<Stranger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new one. If its source has too many, the oldest of them has to leave; says whether one had to.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> (Arc<Seat>, bool) {
        let (source, leave) = (source(address), Arc::new(Notify::new()));
        let mut list = self.list();
        let crowded = list.iter().filter(|other| other.source == source).count() >= OF_A_SOURCE;
        if crowded && let Some(oldest) = list.iter().position(|other| other.source == source) {
            list.remove(oldest).leave.notify_one();
        }
        list.push(Stranger { source, leave: leave.clone() });
        (Arc::new(Seat { strangers: self.clone(), leave }), crowded)
    }

    /// Has one leave that is not `but`, for who has no place: the oldest of the source that has most. None does if all have shown a token.
    pub(crate) fn make_room(&self, but: &Seat) {
        let mut list = self.list();
        let of_source = |source| list.iter().filter(|other| other.source == source).count();
        let others = list.iter().enumerate().filter(|(_, other)| !Arc::ptr_eq(&other.leave, &but.leave));
        // The first of those with most: the list is in the order of arrival.
        let most = others.max_by_key(|(at, other)| (of_source(other.source), usize::MAX - at));
        if let Some((at, _)) = most {
            list.remove(at).leave.notify_one();
        }
    }
}

impl Seat {
    /// It has shown a token: nobody asks it to leave any more.
    pub(crate) fn is_known(&self) {
        self.strangers.list().retain(|other| !Arc::ptr_eq(&other.leave, &self.leave));
    }

    /// Returns when it has to leave.
    pub(crate) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.is_known();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(strangers: &Strangers, address: &str) -> usize {
        let source = source(address.parse().unwrap());
        strangers.list().iter().filter(|other| other.source == source).count()
    }

    #[test]
    fn a_source_is_an_address_or_a_network_of_64_bits() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    /// The oldest go first, of the source that has most; who has shown a token stays.
    #[test]
    fn the_newest_get_in_and_the_known_stay() {
        let strangers = Arc::new(Strangers::default());
        let enter = |address: &str| strangers.enter(address.parse().unwrap());
        let mut many: Vec<Arc<Seat>> = (0..OF_A_SOURCE).map(|_| enter("192.0.2.1").0).collect();
        assert!(!enter("192.0.2.2").1, "its place is given back at once");
        assert_eq!((len(&strangers, "192.0.2.1"), len(&strangers, "192.0.2.2")), (OF_A_SOURCE, 0));
        many[0].is_known();
        let (last, crowded) = enter("192.0.2.1");
        assert!(!crowded);
        many.push(last);
        let (last, crowded) = enter("192.0.2.1");
        assert!(crowded && len(&strangers, "192.0.2.1") == OF_A_SOURCE);
        // The second had to leave: the first was known.
        let left = |seat: &Seat| !strangers.list().iter().any(|other| Arc::ptr_eq(&other.leave, &seat.leave));
        assert!(left(&many[0]) && left(&many[1]) && !left(&many[2]));
        let (other, _) = enter("2001:db8::1");
        strangers.make_room(&other);
        assert!(left(&many[2]) && !left(&other), "of the source that has most");
        drop((many, last));
        strangers.make_room(&other);
        assert!(!left(&other), "not itself");
        let (second, _) = enter("2001:db8:1::1");
        strangers.make_room(&second);
        assert!(left(&other) && !left(&second), "the oldest");
    }
}
