//! The figures as text, without the rest of the program: `cargo run --release -p tidemill-sim --example figures -- 9 20`; the second number is the largest
//! table, as a power of two, a third one the lookups. `calibrate 20`: this machine beside the model of a Zen 4.

use tidemill_sim::machine::Config;
use tidemill_sim::study::{self, Options, Place};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "10".into());
    let most = args.next().map_or(Ok(20), |text| text.parse())?;
    let lookups = args.next().map_or(Ok(20_000), |text| text.parse())?;
    let options = Options { most, lookups, warm: lookups / 2, jobs: 2, ..Options::default() };
    let progress = |done: usize, all: usize| eprint!("\r{done}/{all} ");
    if name == "calibrate" {
        let (options, start) = (Options { config: Config::zen_4(), ..options }, std::time::Instant::now());
        for row in study::calibrate::rows(&options, &|| start.elapsed().as_secs_f64())? {
            println!(
                "{:28} {:12} {:8.2} ns, simulated {:8.2} ns",
                row.what, row.bytes, row.measured_ns, row.simulated_ns
            );
        }
        return Ok(());
    }
    let figure = study::FIGURES.iter().find(|figure| figure.name.ends_with(&format!("-{name}")));
    let points = (figure.ok_or("no such figure: 8b, 9, 10, 11, 12, 13, table4, hybrid, cores")?.make)(
        &options, &progress,
    )?;
    for point in points {
        let x = match point.x {
            Place::Number(x) => x.to_string(),
            Place::Name(name) => name,
        };
        println!("{:32} {:24} {x:28} {:8.3} {:?}", point.panel, point.series, point.y, point.paper);
    }
    Ok(())
}
