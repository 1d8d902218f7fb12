//! By what a card spreads packets over its queues: asked, where it matters, and said what to do.

use super::sys;
use crate::SpreadBy;

/// What is asked about, by `ethtool`'s names, and the kernel's numbers of that (TCP_V4_FLOW and so on in linux/ethtool.h).
const KINDS: [(&str, u32); 4] = [("tcp4", 1), ("udp4", 2), ("tcp6", 5), ("udp6", 6)];

/// What to do about an interface whose queues are to be chosen by addresses alone, where it does otherwise or does not say.
pub(crate) fn remark(name: &str, interface: &str, queues: usize, by: SpreadBy) -> Option<String> {
    if queues < 2 || by != SpreadBy::Addresses {
        return None;
    }
    advice(name, interface, KINDS.map(|(kind, number)| (kind, sys::hashes_ports(interface, number))))
}

/// The same of what it has said: whether it looks at ports.
fn advice(name: &str, interface: &str, kinds: [(&str, Option<bool>); 4]) -> Option<String> {
    let by_ports = kinds.iter().filter(|(_, ports)| *ports == Some(true));
    let commands: Vec<_> =
        by_ports.map(|(kind, _)| format!("ethtool -N {interface} rx-flow-hash {kind} sd")).collect();
    if !commands.is_empty() {
        return Some(format!(
            "port {name}: warning: {interface} spreads packets over its queues by their ports, too, and what one address sends to another may come \
             to every worker: {}",
            commands.join("; ")
        ));
    }
    kinds.iter().any(|(_, ports)| ports.is_none()).then(|| {
        format!(
            "port {name}: warning: {interface} does not say by what it spreads packets over its queues; if by ports, too, what one address sends to \
             another may come to every worker: ethtool -L {interface} combined 1, and queues = 1"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_looks_at_ports_is_told_of_with_the_commands() {
        let [tcp4, udp4, tcp6, udp6] = KINDS.map(|(kind, _)| kind);
        let said = |told: [Option<bool>; 4]| {
            advice("wan", "eth0", [(tcp4, told[0]), (udp4, told[1]), (tcp6, told[2]), (udp6, told[3])])
        };
        assert_eq!(said([Some(false); 4]), None);
        let text = said([Some(true), Some(false), Some(true), None]).unwrap();
        let commands =
            "every worker: ethtool -N eth0 rx-flow-hash tcp4 sd; ethtool -N eth0 rx-flow-hash tcp6 sd";
        assert!(text.starts_with("port wan: warning: eth0 ") && text.ends_with(commands), "{text}");
        // Where it says nothing, it is not taken for good.
        for told in [[None; 4], [Some(false), Some(false), None, Some(false)]] {
            let text = said(told).unwrap();
            assert!(text.ends_with(": ethtool -L eth0 combined 1, and queues = 1"), "{text}");
        }
        assert_eq!(remark("wan", "no such device", 1, SpreadBy::Addresses), None);
        assert_eq!(remark("wan", "no such device", 2, SpreadBy::Flows), None);
    }
}
