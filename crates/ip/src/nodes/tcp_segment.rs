//! `tcp-segment`: long packets of [`tcp-coalesce`](super::tcp_coalesce) become the segments that they were.
//!
//! It stands wherever packets leave what handles long ones: one in front of each port, and one in front of each node that is
//! to see segments (fragmentation, ICMP errors, local delivery), so that these do what they would do without coalescing.
//!
//! The first segment is cut out of the long packet where it lies, the others are made. Without frames for all of them, all
//! are lost, as one `no-frames`; the segments that were merged freed as many frames just before. A long packet that is no
//! TCP any more: `offload-invalid`.
//!
//! Order is kept: from the first long packet of a burst on, packets leave behind each other, the long ones in parts.
//!
//! Output: `out`.

use crate::coalesce::MAX_SEGMENTS;
use tidemill_burst::{DropReason, Merged, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_wire::segment::Segments;

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 1] = ["out"];

/// The node.
pub struct TcpSegment {
    made: Vec<Packet>,
    /// A long packet has been met since packets were last let go.
    met: bool,
}

impl Default for TcpSegment {
    fn default() -> Self {
        TcpSegment { made: Vec::with_capacity(MAX_SEGMENTS), met: false }
    }
}

impl Node for TcpSegment {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        // Made packets leave behind the others of their burst, unless those are kept and let go one by one. Several bursts
        // may come before the first is.
        for (packet, verdict) in burst.iter().zip(verdicts) {
            self.met |= packet.merged().is_some();
            if self.met {
                *verdict = Verdict::Keep;
            }
        }
    }

    fn keep(&mut self, cx: &mut Context<'_>, mut packet: Packet) {
        self.met = false;
        let Some(merged) = packet.merged() else { return cx.release(0, packet) };
        match cut(cx.pool, &mut packet, merged, &mut self.made) {
            Ok(()) => {
                cx.release(0, packet);
                self.made.drain(..).for_each(|segment| cx.emit(0, segment));
            }
            Err(reason) => {
                self.made.drain(..).for_each(|segment| cx.pool.free(segment));
                cx.discard(reason, packet);
            }
        }
    }
}

/// Makes `packet` its first segment, and puts the others into `made`.
pub(crate) fn cut(
    pool: &mut Pool,
    packet: &mut Packet,
    merged: Merged,
    made: &mut Vec<Packet>,
) -> Result<(), DropReason> {
    let invalid = DropReason::OffloadInvalid;
    let (l3, size) = (usize::from(packet.l3), usize::from(merged.size));
    let segments = Segments::of_tcp(packet.data(), l3, size, merged.fixed_ident).ok_or(invalid)?;
    if segments.count() > MAX_SEGMENTS {
        return Err(invalid);
    }
    for index in 1..segments.count() {
        let mut segment = pool.take().ok_or(DropReason::NoFrames)?;
        segment.copy_notes(packet);
        let fits = segments.len(index) <= segment.tailroom();
        segment.set_len(if fits { segments.len(index) } else { 0 });
        let written = fits && segments.write(packet.data(), index, segment.data_mut());
        made.push(segment);
        if !written {
            return Err(invalid);
        }
    }
    packet.set_len(segments.len(0));
    packet.clear_merged();
    if segments.finish(packet.data_mut(), 0) { Ok(()) } else { Err(invalid) }
}
