//! A figure of a paper, made anew: the points as JSON lines, as tables for people, and drawn; with the paper's own numbers beside
//! ours where it states them. Numbers that one would have to read off a drawing are not stated.

use super::report::print_grid;
use crate::json::{self, significant};
use crate::plot::{Bar, Curve, Curves, Plot, stack, text};
use crate::usage;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// A figure.
pub(crate) struct Drawing {
    /// As in `--figure`: `zec-3.13`.
    pub(crate) figure: &'static str,
    pub(crate) title: String,
    /// What was measured, and what it stands for; nothing where the figure needs no table.
    pub(crate) table: Option<String>,
    pub(crate) panels: Vec<Panel>,
    /// What else there is to say, a sentence or two each.
    pub(crate) notes: Vec<String>,
}

/// One pair of axes.
pub(crate) struct Panel {
    /// The horizontal axis: quantity and unit.
    pub(crate) x: String,
    /// The vertical axis: quantity and unit.
    pub(crate) y: String,
    pub(crate) series: Vec<Series>,
    /// What the table for people says where a series has no point.
    pub(crate) missing: &'static str,
}

/// The points of one subject.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// One point.
pub(crate) struct Point {
    pub(crate) x: X,
    pub(crate) y: f64,
    /// What the paper states there.
    pub(crate) paper: Option<f64>,
}

/// Where a point is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum X {
    Number(f64),
    Name(String),
}

impl std::fmt::Display for X {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            X::Number(number) => number.fmt(f),
            X::Name(name) => name.fmt(f),
        }
    }
}

/// A point as it is printed.
#[derive(Serialize)]
struct Line<'a> {
    v: u8,
    figure: &'a str,
    series: &'a str,
    x: &'a X,
    y: f64,
    paper: Option<f64>,
    unit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<&'a str>,
}

impl Panel {
    pub(crate) fn new(x: impl Into<String>, y: impl Into<String>, series: Vec<Series>) -> Self {
        Panel { x: x.into(), y: y.into(), series, missing: "" }
    }

    /// The places of all series: numbers by size, names as they come.
    fn places(&self) -> Vec<&X> {
        let mut places: Vec<&X> = Vec::new();
        for point in self.series.iter().flat_map(|series| &series.points) {
            if !places.contains(&&point.x) {
                places.push(&point.x);
            }
        }
        places.sort_by(|a, b| match (a, b) {
            (X::Number(a), X::Number(b)) => a.total_cmp(b),
            _ => std::cmp::Ordering::Equal,
        });
        places
    }

    fn print(&self) {
        let places = self.places();
        println!("\n{} by {}", self.y, self.x);
        let mut rows =
            vec![std::iter::once(String::new()).chain(places.iter().map(|x| x.to_string())).collect()];
        for Series { name, points } in &self.series {
            let at = |place: &&X| points.iter().find(|point| point.x == **place);
            let ours = |place| at(place).map_or(self.missing.to_owned(), |point| shown(point.y));
            let paper = |place| at(place).and_then(|point| point.paper).map_or(String::new(), shown);
            rows.push(std::iter::once(name.clone()).chain(places.iter().map(ours)).collect());
            if points.iter().any(|point| point.paper.is_some()) {
                rows.push(
                    std::iter::once("  the paper".to_owned()).chain(places.iter().map(paper)).collect(),
                );
            }
        }
        print_grid(&rows);
    }

    /// The drawing with its width and height.
    fn svg(&self, title: &str) -> (f64, f64, String) {
        let numbers =
            self.places().iter().map(|x| if let X::Number(x) = x { Some(*x) } else { None }).collect();
        match numbers {
            Some(numbers) => self.curves(title, numbers).sized_svg(),
            None => self.bars(title).sized_svg(),
        }
    }

    fn curves(&self, title: &str, ticks: Vec<f64>) -> Curves {
        let curve = |Series { name, points }: &Series| {
            let at = |of: &dyn Fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
                let number = |point: &Point| match point.x {
                    X::Number(x) => Some((x, of(point)?)),
                    X::Name(_) => None,
                };
                points.iter().filter_map(number).collect()
            };
            Curve { name: name.clone(), points: at(&|point| Some(point.y)), marks: at(&|point| point.paper) }
        };
        Curves {
            title: title.to_owned(),
            x: self.x.clone(),
            y: self.y.clone(),
            curves: self.series.iter().map(curve).collect(),
            ticks,
        }
    }

    fn bars(&self, title: &str) -> Plot {
        let bar = |series: String, x: &X, value| Bar {
            group: x.to_string(),
            series,
            value,
            min: value,
            max: value,
        };
        let of = |Series { name, points }: &Series| {
            let ours = points.iter().map(|point| bar(name.clone(), &point.x, point.y));
            let paper = points.iter().filter_map(|p| Some(bar(format!("{name}, the paper"), &p.x, p.paper?)));
            ours.chain(paper).collect::<Vec<_>>()
        };
        Plot {
            title: title.to_owned(),
            axis: self.y.clone(),
            bars: self.series.iter().flat_map(of).collect(),
        }
    }
}

impl Series {
    /// Points at numbers.
    pub(crate) fn new(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64, Option<f64>)>,
    ) -> Self {
        let point = |(x, y, paper)| Point { x: X::Number(x), y, paper };
        Series { name: name.into(), points: points.into_iter().map(point).collect() }
    }
}

impl Drawing {
    /// Prints it, for programs or for people, and draws it on request.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn show(&self, as_json: bool, plot: Option<&Path>) -> Result<()> {
        if as_json {
            self.json()?;
        } else {
            self.print();
        }
        self.plot(plot)
    }

    /// Draws it on request, and prints nothing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn plot(&self, file: Option<&Path>) -> Result<()> {
        let Some(file) = file else { return Ok(()) };
        crate::files::write(file, self.svg().as_bytes()).with_context(|| file.display().to_string())
    }

    /// The title and what the table is, then the panels, then the notes.
    fn svg(&self) -> String {
        let panels: Vec<_> = self.panels.iter().map(|panel| panel.svg("")).collect();
        let width = panels.iter().map(|panel| panel.0).fold(0.0, f64::max);
        let title = format!("{}: {}", self.figure, self.title);
        let mut charts = vec![text(&title, &self.table.as_deref().into_iter().collect::<Vec<_>>(), width)];
        charts.extend(panels);
        if !self.notes.is_empty() {
            charts.push(text("", &self.notes.iter().map(String::as_str).collect::<Vec<_>>(), width));
        }
        stack(&charts)
    }

    fn json(&self) -> Result<()> {
        for panel in &self.panels {
            for Series { name, points } in &panel.series {
                for Point { x, y, paper } in points {
                    json::print(&Line {
                        v: json::VERSION,
                        figure: self.figure,
                        series: name,
                        x,
                        // Counts and bytes are exact.
                        y: if y.fract() == 0.0 { *y } else { significant(*y) },
                        paper: *paper,
                        unit: &panel.y,
                        table: self.table.as_deref(),
                    })?;
                }
            }
        }
        Ok(())
    }

    fn print(&self) {
        println!("{}: {}", self.figure, self.title);
        self.table.iter().for_each(|table| println!("{table}"));
        self.panels.iter().for_each(Panel::print);
        for (i, note) in self.notes.iter().enumerate() {
            println!("{}{note}", if i == 0 { "\n" } else { "" });
        }
    }
}

/// Whether a plot can be written there: what is wrong with a name is to be found before minutes of measuring.
///
/// # Errors
/// Bad usage: the name is not that of an SVG file; the file cannot be written.
pub(crate) fn check_plot(file: Option<&Path>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    if !file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg")) {
        let file = file.display();
        return Err(usage(format!("--plot {file}: plots are SVG: give a name that ends in .svg")));
    }
    // Who opens a pipe waits for its reader, and a device may take what is written at once: such things are opened when there is something to write.
    if std::fs::metadata(file).is_ok_and(|is| !is.is_file() && !is.is_dir()) {
        return Ok(());
    }
    let new = !file.exists();
    match std::fs::OpenOptions::new().append(true).create(true).open(file) {
        // Nothing is left behind if it comes to no plot.
        Ok(_) if new => std::fs::remove_file(file).with_context(|| file.display().to_string()),
        Ok(_) => Ok(()),
        Err(error) => {
            let file = file.display();
            Err(usage(format!("--plot {file}: {error}: give a file that can be written")))
        }
    }
}

/// Whole numbers as they are, others to four digits or so.
fn shown(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 || value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_says_what_it_was_made_of() {
        let drawing = Drawing {
            figure: "x-1",
            title: "Rates".to_owned(),
            table: Some("t.txt (3 prefixes, 2 labels); instead of LINX".to_owned()),
            panels: vec![Panel::new("x", "y", vec![Series::new("s", [(1.0, 2.0, None), (2.0, 3.0, None)])])],
            notes: vec!["keys: 3 < 4".to_owned()],
        };
        let svg = drawing.svg();
        for text in ["x-1: Rates", "t.txt (3 prefixes, 2 labels); instead of LINX", "keys: 3 &lt; 4"] {
            assert_eq!(svg.matches(&format!(">{text}<")).count(), 1, "{text}");
        }
        assert!(svg.starts_with("<svg ") && svg.matches("</svg>").count() == 4);
    }

    #[test]
    fn plots_are_svg() {
        for wrong in ["x.png", "x", "x.svg.gz", "svg"] {
            assert!(check_plot(Some(Path::new(wrong))).unwrap_err().to_string().contains(".svg"), "{wrong}");
            assert!(!Path::new(wrong).exists());
        }
        let file = std::env::temp_dir().join(format!("tidemill-plot-{}.svg", std::process::id()));
        assert!(check_plot(Some(&file)).is_ok() && !file.exists() && check_plot(None).is_ok());
    }

    /// Nobody reads the pipe: who opened it would wait for ever.
    #[test]
    #[cfg(unix)]
    fn a_plot_may_be_a_pipe_which_is_not_opened_before_there_is_a_plot() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.svg");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(check_plot(Some(&pipe)).is_ok()));
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(10)), Ok(true));
        let wrong = folder.path().join("folder.svg");
        std::fs::create_dir(&wrong).unwrap();
        let said = check_plot(Some(&wrong)).unwrap_err().to_string();
        assert!(said.contains("give a file that can be written"), "{said}");
    }

    #[test]
    fn places_are_in_order_and_figures_readable() {
        let series = |points: &[f64]| Series::new("s", points.iter().map(|&x| (x, 1.0, None)));
        let panel = Panel::new("x", "y", vec![series(&[2.0, 3.0]), series(&[1.0, 3.0])]);
        let places: Vec<String> = panel.places().iter().map(|x| x.to_string()).collect();
        assert_eq!(places, ["1", "2", "3"]);
        for (value, text) in
            [(0.0, "0"), (0.09375, "0.0938"), (71.413, "71.41"), (255.44, "255.4"), (1071452.0, "1071452")]
        {
            assert_eq!(shown(value), text);
        }
    }
}
