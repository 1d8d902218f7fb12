//! The cache that this suite is about: the role, on the cable.

use crate::Bridge;
use crate::contract::lab::Lab;
use crate::net::Netns;

pub(crate) fn cached() -> Lab {
    let middle = Netns::new("middle");
    let mut lab = Lab::behind(&middle);
    // The tests ask memcached's statistics by a connection of their own each time.
    lab.bridge = Some(Box::new(Bridge::start(&middle, "misses = 1\nconnections = 8192")));
    lab.middle = Some(middle);
    lab
}
