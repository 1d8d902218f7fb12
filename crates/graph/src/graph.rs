//! The graph's description: which nodes there are, and where each output leads. Checked once, instantiated per worker.

use crate::node::Node;
use std::collections::HashMap;
use std::fmt::Write as _;

/// The most nodes that a graph may have (the worker keeps one bit for each).
pub const MAX_NODES: usize = 128;

/// Where packets go next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A node, by number.
    Node(usize),
    /// Out by a port, by number.
    Port(usize),
}

type Factory = Box<dyn Fn(usize) -> Box<dyn Node> + Send + Sync>;

struct Spec {
    name: String,
    factory: Factory,
    outputs: Vec<(String, Option<Target>)>,
}

/// What is wrong with a graph's description.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GraphError {
    /// Two nodes of one name.
    #[error("graph: there are two nodes named {0:?}")]
    Twice(String),
    /// More than [`MAX_NODES`].
    #[error("graph: {0} nodes are more than the {MAX_NODES} that a graph may have")]
    TooMany(usize),
    /// An edge from or to something that does not exist.
    #[error("graph: {from} -> {to}: there is no {missing}; there are {known}")]
    Unknown {
        /// Where the edge begins.
        from: String,
        /// Where it should lead.
        to: String,
        /// What is missing.
        missing: String,
        /// What could have been meant.
        known: String,
    },
    /// An output that leads nowhere.
    #[error("graph: output {1:?} of node {0:?} leads nowhere: connect it")]
    Dangling(String, String),
    /// A node that no packet can reach.
    #[error("graph: no packet can reach node {0:?}: connect an output or a port's input to it")]
    Unreachable(String),
}

/// Collects nodes and edges by name; [`build`](Self::build) checks them.
pub struct GraphBuilder {
    ports: Vec<String>,
    nodes: Vec<Spec>,
    inputs: Vec<(String, String)>,
    edges: Vec<(String, String, String)>,
}

/// A checked graph: every output leads somewhere, every node can be reached.
pub struct Graph {
    /// Names of the nodes; their numbers are used everywhere else.
    pub node_names: Vec<String>,
    /// Names of the ports.
    pub port_names: Vec<String>,
    pub(crate) factories: Vec<Factory>,
    /// For each node, its outputs: name and target.
    pub outputs: Vec<Vec<(String, Target)>>,
    /// For each port, where its received packets go; `None` for a port that only sends.
    pub inputs: Vec<Option<Target>>,
}

impl GraphBuilder {
    /// A graph between these ports.
    pub fn new<S: Into<String>>(ports: impl IntoIterator<Item = S>) -> Self {
        GraphBuilder {
            ports: ports.into_iter().map(Into::into).collect(),
            nodes: Vec::new(),
            inputs: Vec::new(),
            edges: Vec::new(),
        }
    }

    /// Adds a node with its outputs, in the order of their numbers. `factory` makes one instance per worker, whose
    /// number it is given. Nodes run in the order in which they were added, so add them in the packet's order.
    pub fn node<S: Into<String>>(
        &mut self,
        name: &str,
        outputs: impl IntoIterator<Item = S>,
        factory: impl Fn(usize) -> Box<dyn Node> + Send + Sync + 'static,
    ) -> &mut Self {
        let outputs = outputs.into_iter().map(|o| (o.into(), None)).collect();
        self.nodes.push(Spec { name: name.into(), factory: Box::new(factory), outputs });
        self
    }

    /// Leads a port's received packets to a node.
    pub fn input(&mut self, port: &str, node: &str) -> &mut Self {
        self.inputs.push((port.into(), node.into()));
        self
    }

    /// Leads an output to a node, or out by a port (`port:NAME`).
    pub fn edge(&mut self, node: &str, output: &str, to: &str) -> &mut Self {
        self.edges.push((node.into(), output.into(), to.into()));
        self
    }

    /// Where an output leads so far.
    pub fn leads(&self, node: &str, output: &str) -> Option<&str> {
        let edge = self.edges.iter().rev().find(|(from, by, _)| from == node && by == output);
        edge.map(|(_, _, to)| to.as_str())
    }

    /// Puts the node `between` into an edge that is there: the output of `node` leads to it, and its `output_of_it` to where that led before.
    pub fn insert(&mut self, node: &str, output: &str, between: &str, output_of_it: &str) -> &mut Self {
        let before = self.leads(node, output).map(str::to_owned);
        if let Some(to) = before {
            self.edge(between, output_of_it, &to);
        }
        self.edge(node, output, between)
    }

    /// Puts a node in front of all others: what ports have received goes to it, and on by its outputs to where it went before, one output for each of
    /// those. `factory` makes an instance per worker, and is told by which output each port's packets go on, by the port's number. A graph without
    /// inputs stays as it is.
    pub fn front(
        &mut self,
        name: &str,
        factory: impl Fn(usize, &[u8]) -> Box<dyn Node> + Send + Sync + 'static,
    ) -> &mut Self {
        let led =
            |port: &String| self.inputs.iter().rev().find(|(from, _)| from == port).map(|(_, to)| to.clone());
        let led: Vec<Option<String>> = self.ports.iter().map(led).collect();
        let mut targets: Vec<String> = led.iter().flatten().cloned().collect();
        targets.sort();
        targets.dedup();
        if targets.is_empty() {
            return self;
        }
        let way = |to: &Option<String>| {
            targets.iter().position(|target| Some(target) == to.as_ref()).unwrap_or(0) as u8
        };
        let ways: Vec<u8> = led.iter().map(way).collect();
        for (port, _) in self.ports.clone().iter().zip(&led).filter(|(_, to)| to.is_some()) {
            self.input(port, name);
        }
        targets.iter().for_each(|target| {
            self.edge(name, target, target);
        });
        let outputs = targets.into_iter().map(|target| (target, None)).collect();
        let factory = Box::new(move |worker| factory(worker, &ways));
        self.nodes.insert(0, Spec { name: name.into(), factory, outputs });
        self
    }

    /// Checks the description.
    pub fn build(mut self) -> Result<Graph, GraphError> {
        if self.nodes.len() > MAX_NODES {
            return Err(GraphError::TooMany(self.nodes.len()));
        }
        let mut index = HashMap::new();
        for (i, spec) in self.nodes.iter().enumerate() {
            if index.insert(spec.name.clone(), i).is_some() {
                return Err(GraphError::Twice(spec.name.clone()));
            }
        }
        let list = |names: &mut dyn Iterator<Item = &String>| {
            names.map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ")
        };
        let unknown = |from: &str, to: &str, missing: String, known: String| GraphError::Unknown {
            from: from.into(),
            to: to.into(),
            missing,
            known,
        };
        let target = |from: &str, to: &str| -> Result<Target, GraphError> {
            let found = match to.strip_prefix("port:") {
                Some(port) => self.ports.iter().position(|p| p == port).map(Target::Port),
                None => index.get(to).map(|&n| Target::Node(n)),
            };
            found.ok_or_else(|| {
                let known = list(&mut self.nodes.iter().map(|s| &s.name));
                unknown(
                    from,
                    to,
                    format!("{to:?}"),
                    format!("{known}; ports {}", list(&mut self.ports.iter())),
                )
            })
        };
        let mut inputs = vec![None; self.ports.len()];
        for (port, node) in &self.inputs {
            let at =
                self.ports.iter().position(|p| p == port).ok_or_else(|| {
                    unknown(port, node, format!("port {port:?}"), list(&mut self.ports.iter()))
                })?;
            inputs[at] = Some(target(port, node)?);
        }
        let mut resolved = Vec::new();
        for (node, output, to) in &self.edges {
            let known = index.get(node).copied();
            let at = known.and_then(|n| self.nodes[n].outputs.iter().position(|(o, _)| o == output));
            let (Some(n), Some(o)) = (known, at) else {
                let known = known.map_or_else(
                    || list(&mut self.nodes.iter().map(|s| &s.name)),
                    |n| list(&mut self.nodes[n].outputs.iter().map(|(o, _)| o)),
                );
                return Err(unknown(&format!("{node}.{output}"), to, format!("{node}.{output}"), known));
            };
            resolved.push((n, o, target(&format!("{node}.{output}"), to)?));
        }
        for (n, o, target) in resolved {
            self.nodes[n].outputs[o].1 = Some(target);
        }
        let mut outputs = Vec::new();
        for spec in &mut self.nodes {
            let mut list = Vec::new();
            for (output, to) in spec.outputs.drain(..) {
                let to = to.ok_or_else(|| GraphError::Dangling(spec.name.clone(), output.clone()))?;
                list.push((output, to));
            }
            outputs.push(list);
        }
        reachable(&inputs, &outputs).iter().zip(&self.nodes).try_for_each(|(&seen, spec)| {
            if seen { Ok(()) } else { Err(GraphError::Unreachable(spec.name.clone())) }
        })?;
        let (node_names, factories) = self.nodes.into_iter().map(|s| (s.name, s.factory)).unzip();
        Ok(Graph { node_names, port_names: self.ports, factories, outputs, inputs })
    }
}

fn reachable(inputs: &[Option<Target>], outputs: &[Vec<(String, Target)>]) -> Vec<bool> {
    let mut seen = vec![false; outputs.len()];
    let mut todo: Vec<Target> = inputs.iter().flatten().copied().collect();
    while let Some(target) = todo.pop() {
        if let Target::Node(n) = target
            && !std::mem::replace(&mut seen[n], true)
        {
            todo.extend(outputs[n].iter().map(|(_, t)| *t));
        }
    }
    seen
}

impl Graph {
    /// The name of a target, as in edges.
    pub fn target_name(&self, target: Target) -> String {
        match target {
            Target::Node(n) => self.node_names[n].clone(),
            Target::Port(p) => format!("port:{}", self.port_names[p]),
        }
    }

    /// The number of a node.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.node_names.iter().position(|n| n == name)
    }

    /// The graph in Graphviz's language.
    pub fn dot(&self) -> String {
        let mut text = String::from("digraph tidemill {\n  rankdir=LR; node [shape=box];\n");
        for (port, input) in self.port_names.iter().zip(&self.inputs) {
            if let Some(target) = input {
                let _ = writeln!(text, "  \"port:{port}\" -> \"{}\";", self.target_name(*target));
            }
        }
        for (node, outputs) in self.node_names.iter().zip(&self.outputs) {
            for (output, target) in outputs {
                let _ =
                    writeln!(text, "  \"{node}\" -> \"{}\" [label=\"{output}\"];", self.target_name(*target));
            }
        }
        text.push_str("}\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Context, Verdict};
    use tidemill_burst::Packet;

    struct Pass;
    impl Node for Pass {
        fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
    }

    fn two() -> GraphBuilder {
        let mut g = GraphBuilder::new(["lan", "wan"]);
        g.node("a", ["on"], |_| Box::new(Pass)).node("b", ["out"], |_| Box::new(Pass));
        g
    }

    #[test]
    fn a_node_is_put_into_an_edge() {
        let mut g = two();
        g.input("lan", "a").edge("a", "on", "port:wan").insert("a", "on", "b", "out");
        assert_eq!(
            (g.leads("a", "on"), g.leads("b", "out"), g.leads("b", "no")),
            (Some("b"), Some("port:wan"), None)
        );
        assert!(g.build().is_ok());
    }

    #[test]
    fn a_node_stands_in_front_of_all_ports() {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let to = seen.clone();
        let mut g = GraphBuilder::new(["lan", "wan", "out"]);
        g.node("a", ["on"], |_| Box::new(Pass)).node("b", ["on"], |_| Box::new(Pass));
        g.edge("a", "on", "port:wan").edge("b", "on", "port:out").input("lan", "b").input("wan", "a");
        g.front("tap", move |_, ways| {
            to.lock().unwrap().push(ways.to_vec());
            Box::new(Pass)
        });
        let graph = g.build().unwrap();
        assert_eq!(graph.node_names, ["tap", "a", "b"]);
        assert_eq!(graph.inputs, [Some(Target::Node(0)), Some(Target::Node(0)), None]);
        let to = |name: &str, node| (name.to_owned(), Target::Node(node));
        assert_eq!(graph.outputs[0], [to("a", 1), to("b", 2)]);
        (graph.factories[0])(0);
        // What never receives has no way; what does has its own.
        assert_eq!(seen.lock().unwrap()[0][..2], [1, 0]);
        let mut sink = GraphBuilder::new(["out"]);
        sink.front("tap", |_, _| Box::new(Pass));
        assert!(sink.build().unwrap().node_names.is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        let mut g = two();
        g.input("lan", "a").edge("a", "on", "b");
        assert_eq!(
            g.build().err().unwrap().to_string(),
            "graph: output \"out\" of node \"b\" leads nowhere: connect it"
        );
        let mut g = two();
        g.input("lan", "a").edge("a", "on", "port:wan").edge("b", "out", "port:wan");
        assert_eq!(g.build().err(), Some(GraphError::Unreachable("b".into())));
        let mut g = two();
        g.edge("a", "onn", "b");
        assert_eq!(
            g.build().err().unwrap().to_string(),
            "graph: a.onn -> b: there is no a.onn; there are \"on\""
        );
        let mut g = two();
        g.node("a", [""; 0], |_| Box::new(Pass));
        assert_eq!(g.build().err(), Some(GraphError::Twice("a".into())));
    }

    #[test]
    fn a_sound_graph_is_built_and_drawn() {
        let mut g = two();
        g.input("lan", "a").edge("a", "on", "b").edge("b", "out", "port:wan");
        let graph = g.build().unwrap();
        assert_eq!(graph.inputs, [Some(Target::Node(0)), None]);
        assert!(graph.dot().contains("\"b\" -> \"port:wan\" [label=\"out\"];"));
    }
}
