//! Figure 8b: flows that registers of different sizes count, by how many there are.

use super::{Options, Place, Point};
use crate::halo::register::FlowRegister;
use tidemill_cachesim::random::{Random, mix};

const BITS: [u64; 5] = [8, 16, 32, 64, 128];
const FLOWS: [u64; 9] = [4, 8, 16, 32, 64, 96, 128, 192, 256];
/// Windows that are averaged over.
const WINDOWS: u64 = 400;

/// The figure: the mean of what is counted (a full register counts as one bit short of full would), and in how many windows it was full.
pub fn figure(options: &Options) -> Vec<Point> {
    let mut points = Vec::new();
    let mut random = Random::new(options.seed);
    for bits in BITS {
        for flows in FLOWS {
            let (mut sum, mut full) = (0.0, 0.0);
            for _ in 0..WINDOWS {
                let mut register = FlowRegister::new(bits);
                let base = random.bits();
                // Every flow once and more: as often as flows come in a window, at random.
                (0..flows).for_each(|flow| register.set(mix(base ^ flow)));
                (0..flows).for_each(|_| register.set(mix(base ^ random.below(flows))));
                let most = bits as f64 * (bits as f64).ln();
                let counted = register.window();
                sum += counted.unwrap_or(most);
                full += f64::from(u8::from(counted.is_none()));
            }
            let x = Place::Number(flows as f64);
            let series = format!("{bits} bits");
            points.push(Point {
                panel: "flows counted",
                series: series.clone(),
                x: x.clone(),
                y: sum / WINDOWS as f64,
                // "Accurately around twice as many flows as bits": no number at a point.
                paper: None,
            });
            points.push(Point {
                panel: "windows in which all bits were set, percent",
                series,
                x,
                y: 100.0 * full / WINDOWS as f64,
                paper: None,
            });
        }
    }
    points
}
