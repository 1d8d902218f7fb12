//! stub
use crate::interface::Settings;
use crate::neighbor::Link;
use std::sync::Arc;
use tidemill_burst::Packet;
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::publish::View;
/// Outputs.
pub const OUTPUTS: [&str; 0] = [];
/// The node.
pub struct ArpInput;
impl ArpInput {
    /// A node for one worker.
    pub fn new(_: View<Settings>, _: Arc<Link>) -> Self {
        ArpInput
    }
}
impl Node for ArpInput {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::Consume);
    }
}
