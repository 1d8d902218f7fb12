//! The cache that this suite is about: the role, on the cable.

use crate::Bridge;
use crate::contract::lab::{Lab, MIDDLE, passing};
use crate::net::Netns;
use tidemill_bpf::{Attachment, Object};

/// What is on the cable.
pub(crate) struct Tiers {
    pub(crate) bridge: Bridge,
    _passing: Option<(Object, Attachment)>,
}

pub(crate) fn cached() -> Lab {
    with("", false)
}

/// With tiers as the section says; and the kernel's behind them, or not.
pub(crate) fn with(section: &str, kernels: bool) -> Lab {
    over("kind = \"af_packet\"", section, kernels)
}

/// The same over ports of any kind.
pub(crate) fn over(port: &str, section: &str, kernels: bool) -> Lab {
    let middle = Netns::new("middle");
    let mut lab = Lab::behind(&middle);
    // Or what the programs send back does not arrive there.
    let passes = kernels.then(|| passing(&middle, MIDDLE[1]));
    if kernels {
        lab.attach();
    }
    // The tests ask memcached's statistics by a connection of their own each time.
    let bridge = Bridge::over(port, &middle, &format!("misses = 1\nconnections = 8192\n{section}"));
    lab.bridge = Some(Box::new(Tiers { bridge, _passing: passes }));
    lab.middle = Some(middle);
    lab
}

/// What is on the cable of such a lab.
pub(crate) fn bridge(lab: &Lab) -> &Bridge {
    let tiers = lab.bridge.as_ref().and_then(|any| any.downcast_ref::<Tiers>());
    &tiers.expect("a lab of `with`").bridge
}
