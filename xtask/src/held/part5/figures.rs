//! Every figure: that it is there and drawn; who wins in it; and, where no clock has a part, that it is as recorded.

use super::super::{Machine, Outcome, verdict};
use crate::figures::{COUNTED, FIGURES, LONG_COUNTED, arguments, beside, broken, different, recorded};
use anyhow::{Context, Result, ensure};

/// The figures whose name begins so.
pub(super) fn line(machine: &Machine, of: &str) -> Result<Outcome> {
    let (mut good, mut text) = (true, Vec::new());
    let folder = machine.data()?.join("rib");
    let recorded = recorded()?;
    let plot = std::env::temp_dir().join(format!("tidemill-held-{}.svg", std::process::id()));
    let plot = plot.to_string_lossy().into_owned();
    for name in FIGURES.into_iter().filter(|name| name.starts_with(of)) {
        let mut arguments = arguments(name, &folder);
        if machine.quick {
            arguments.extend(["--seconds", "0.02", "--runs", "3"].map(String::from));
        }
        arguments.extend(["--plot".into(), plot.clone()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let drawn = machine.tidemill(&arguments).and_then(|objects| {
            drawing(&plot)?;
            Ok(objects)
        });
        let objects = match drawn {
            Ok(objects) => objects,
            Err(error) => {
                good = false;
                text.push(format!("{name}: {error:#}"));
                continue;
            }
        };
        let points = objects.iter().filter(|object| object["figure"] == name).count();
        // Rates of a few milliseconds say nothing of who is quicker.
        let counts = COUNTED.contains(&name) || LONG_COUNTED.contains(&name);
        let papers =
            objects.iter().filter(|object| object["figure"] == name && object["paper"].is_number()).count();
        let claims = if machine.quick && !counts { Vec::new() } else { broken(name, &objects) };
        let moved = COUNTED.contains(&name).then(|| different(name, &objects, &recorded)).flatten();
        let beside = beside(name, papers);
        good &= points > 0 && claims.is_empty() && moved.is_none() && beside.is_none();
        text.push(format!("{name} {points} ({papers} of the paper's)"));
        text.extend(beside.map(|beside| format!("{name}: {beside}")));
        text.extend(claims.into_iter().map(|claim| format!("{name}: NOT SO: {claim}")));
        text.extend(moved.map(|moved| format!("{name}: NOT AS RECORDED: {moved}")));
    }
    Ok(verdict(good, text.join(", ")))
}

/// The file is a whole drawing, without a place that is no number; it is taken away.
fn drawing(file: &str) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
    std::fs::remove_file(file).with_context(|| file.to_owned())?;
    let whole = text.starts_with("<svg ") && text.trim_end().ends_with("</svg>");
    ensure!(whole && !text.contains("NaN") && !text.contains("\"inf"), "no drawing, or not a whole one");
    Ok(())
}
