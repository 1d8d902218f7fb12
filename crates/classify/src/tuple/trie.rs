//! Which prefixes of an address or a port rules have: what tells that a table cannot match, by a few bits of it (Open vSwitch's prefix
//! tracking, of its ports, too: Pfaff et al., NSDI 2015, section 5.4).
//!
//! A binary trie, one bit a step: it is asked only when a megaflow is made. A node is 12 bytes; a rule has at most as many nodes of its own as its prefix has bits.

/// A node: children, and how many rules have just this prefix.
#[derive(Clone, Copy, Default)]
struct Node {
    children: [u32; 2],
    rules: u32,
}

/// The prefixes of one field. Addresses and ports are the upper bits of 128.
#[derive(Clone)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    free: Vec<u32>,
}

impl Default for Trie {
    fn default() -> Self {
        Trie { nodes: vec![Node::default()], free: Vec::new() }
    }
}

/// What a walk along an address has found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// Bit `length - 1` says that some rule has the address's first `length` bits as its prefix.
    lengths: u128,
    /// Bits after which no rule's prefix goes on along the address: with one more the walk is known to end.
    pub(super) depth: u32,
}

impl Path {
    /// Whether a rule has the address's prefix of this length. All have that of length 0.
    pub(super) fn has(&self, length: u32) -> bool {
        length == 0 || self.lengths >> (length - 1) & 1 != 0
    }
}

fn bit(address: u128, depth: u32) -> usize {
    (address >> (127 - depth) & 1) as usize
}

impl Trie {
    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    pub(super) fn insert(&mut self, address: u128, length: u32) {
        let mut node = 0_u32;
        for depth in 0..length {
            let side = bit(address, depth);
            let child = self.nodes[node as usize].children[side];
            node = if child != 0 { child } else { self.add(node, side) };
        }
        self.nodes[node as usize].rules += 1;
    }

    fn add(&mut self, parent: u32, side: usize) -> u32 {
        let child = match self.free.pop() {
            Some(child) => {
                self.nodes[child as usize] = Node::default();
                child
            }
            None => {
                self.nodes.push(Node::default());
                self.nodes.len() as u32 - 1
            }
        };
        self.nodes[parent as usize].children[side] = child;
        child
    }

    pub(super) fn remove(&mut self, address: u128, length: u32) {
        let (mut way, mut node) = ([0_u32; 129], 0_u32);
        for depth in 0..length {
            node = self.nodes[node as usize].children[bit(address, depth)];
            if node == 0 {
                return;
            }
            way[depth as usize + 1] = node;
        }
        self.nodes[node as usize].rules = self.nodes[node as usize].rules.saturating_sub(1);
        for depth in (0..length).rev() {
            let last = way[depth as usize + 1];
            let Node { children, rules } = self.nodes[last as usize];
            if rules > 0 || children != [0, 0] {
                break;
            }
            self.nodes[way[depth as usize] as usize].children[bit(address, depth)] = 0;
            self.free.push(last);
        }
    }

    /// Walks along an address of `bits` bits.
    pub(super) fn walk(&self, address: u128, bits: u32) -> Path {
        let (mut path, mut node) = (Path::default(), 0_u32);
        for depth in 0..bits {
            node = self.nodes[node as usize].children[bit(address, depth)];
            if node == 0 {
                break;
            }
            path.depth = depth + 1;
            path.lengths |= u128::from(self.nodes[node as usize].rules > 0) << depth;
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_finds_the_prefixes_on_its_way() {
        let mut trie = Trie::default();
        let address = 0xc0a8_0102_u128 << 96;
        let before = trie.walk(address, 32);
        for length in [0, 8, 24, 24, 32] {
            trie.insert(address & !(u128::MAX.checked_shr(length).unwrap_or(0)), length);
        }
        let path = trie.walk(address, 32);
        let found: Vec<u32> = (0..=32).filter(|&length| path.has(length)).collect();
        assert_eq!((found, path.depth), (vec![0, 8, 24, 32], 32));
        let near = trie.walk(address ^ 1 << 108, 32);
        assert_eq!((near.has(8), near.has(24), near.depth), (true, false, 19));
        trie.remove(address, 24);
        assert!(trie.walk(address, 32).has(24), "two had it");
        for length in [24, 32, 8, 0] {
            trie.remove(address, length);
        }
        trie.remove(address, 20);
        assert_eq!(trie.walk(address, 32), before);
        assert_eq!(trie.free.len(), 32, "every node but the root is free");
    }
}
