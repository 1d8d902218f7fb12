//! `--plot`: grouped bars with whiskers, and curves, as SVG files without any dependency.

use crate::json::significant;
use std::fmt::Write;

/// One bar.
#[derive(Clone)]
pub(crate) struct Bar {
    /// Bars of a group stand together.
    pub(crate) group: String,
    /// Bars of a series have one colour.
    pub(crate) series: String,
    pub(crate) value: f64,
    /// The whisker's ends.
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// A bar chart.
pub(crate) struct Plot {
    pub(crate) title: String,
    /// The vertical axis: quantity and unit.
    pub(crate) axis: String,
    pub(crate) bars: Vec<Bar>,
}

const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const BAR: f64 = 22.0;
const GAP: f64 = 26.0;
const LEGEND: f64 = 18.0;
const TICKS: u32 = 5;
/// Distinguishable without colour vision (Okabe and Ito 2008).
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000"];

impl Plot {
    /// The chart as SVG text.
    pub(crate) fn svg(&self) -> String {
        self.sized_svg().2
    }

    /// Its width, height and SVG text.
    pub(crate) fn sized_svg(&self) -> (f64, f64, String) {
        let groups = in_order(self.bars.iter().map(|bar| bar.group.as_str()));
        let series = in_order(self.bars.iter().map(|bar| bar.series.as_str()));
        let group_width = series.len() as f64 * BAR + GAP;
        let plot_width = (groups.len() as f64 * group_width).max(360.0);
        let (width, bottom) = (LEFT + plot_width + 20.0, TOP + HEIGHT);
        let height = bottom + 34.0 + series.len() as f64 * LEGEND;
        let top_value = nice(self.bars.iter().map(|bar| bar.max).fold(0.0, f64::max));
        let y = |value: f64| bottom - HEIGHT * value / top_value;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"{:.1}\">{}</text>\n<text x=\"{LEFT}\" y=\"38\">{}</text>\n",
            title_size(&self.title, width),
            escape(&self.title),
            escape(&self.axis)
        );
        let mut put = |line: std::fmt::Arguments| {
            // Writing to a string does not fail.
            let _ = svg.write_fmt(line);
            svg.push('\n');
        };
        for tick in 0..=TICKS {
            let value = top_value * f64::from(tick) / f64::from(TICKS);
            let (at, right) = (y(value), LEFT + plot_width);
            put(format_args!("<path d=\"M{LEFT} {at:.1}H{right:.1}\" stroke=\"#ddd\"/>"));
            put(format_args!(
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                LEFT - 6.0,
                at + 4.0
            ));
        }
        for bar in &self.bars {
            let (group, of) = (position(&groups, &bar.group), position(&series, &bar.series));
            let x = LEFT + GAP / 2.0 + group as f64 * group_width + of as f64 * BAR;
            let (top, colour) = (y(bar.value), COLOURS[of % COLOURS.len()]);
            put(format_args!(
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"><title>{} {}: {}</title></rect>",
                BAR - 3.0,
                bottom - top,
                escape(&bar.series),
                escape(&bar.group),
                bar.value
            ));
            let middle = x + (BAR - 3.0) / 2.0;
            put(format_args!(
                "<path d=\"M{middle:.1} {:.1}V{:.1}\" stroke=\"#333\"/>",
                y(bar.min),
                y(bar.max)
            ));
        }
        for (i, group) in groups.iter().enumerate() {
            let x = LEFT + (i as f64 + 0.5) * group_width;
            let at = bottom + 16.0;
            put(format_args!(
                "<text x=\"{x:.1}\" y=\"{at:.1}\" text-anchor=\"middle\">{}</text>",
                escape(group)
            ));
        }
        for (i, name) in series.iter().enumerate() {
            let (at, colour) = (bottom + 30.0 + i as f64 * LEGEND, COLOURS[i % COLOURS.len()]);
            put(format_args!(
                "<rect x=\"{LEFT}\" y=\"{at:.1}\" width=\"11\" height=\"11\" fill=\"{colour}\"/>"
            ));
            put(format_args!(
                "<text x=\"{:.0}\" y=\"{:.1}\">{}</text>",
                LEFT + 17.0,
                at + 10.0,
                escape(name)
            ));
        }
        svg.push_str("</svg>\n");
        (width, height, svg)
    }
}

/// One line through its points.
#[derive(Clone)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Points beside the line, hollow: what somebody else has found.
    pub(crate) marks: Vec<(f64, f64)>,
}

/// Curves over one horizontal axis. The vertical one begins at 0.
pub(crate) struct Curves {
    pub(crate) title: String,
    /// The horizontal axis: quantity and unit.
    pub(crate) x: String,
    /// The vertical axis: quantity and unit.
    pub(crate) y: String,
    pub(crate) curves: Vec<Curve>,
    /// Where the horizontal axis is labelled, ascending; it goes from the first to the last. With fewer than two it begins at 0.
    pub(crate) ticks: Vec<f64>,
}

const WIDTH: f64 = 520.0;

impl Curves {
    /// The chart's width, height and SVG text.
    pub(crate) fn sized_svg(&self) -> (f64, f64, String) {
        let most = |of: fn(&(f64, f64)) -> f64| {
            let points = self.curves.iter().flat_map(|curve| curve.points.iter().chain(&curve.marks));
            nice(points.map(of).fold(0.0, f64::max))
        };
        let even = |from: f64, to: f64| -> Vec<f64> {
            (0..=TICKS).map(|tick| from + (to - from) * f64::from(tick) / f64::from(TICKS)).collect()
        };
        let across = if self.ticks.len() > 1 { self.ticks.clone() } else { even(0.0, most(|point| point.0)) };
        let (left, right) = (across[0], across[across.len() - 1]);
        let top = most(|point| point.1);
        let bottom = TOP + HEIGHT;
        let x = |value: f64| LEFT + WIDTH * (value - left) / (right - left);
        let y = |value: f64| bottom - HEIGHT * value / top;
        let (width, height) = (LEFT + WIDTH + 20.0, bottom + 50.0 + self.curves.len() as f64 * LEGEND);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"{:.1}\">{}</text>\n<text x=\"{LEFT}\" y=\"38\">{}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
            title_size(&self.title, width),
            escape(&self.title),
            escape(&self.y),
            LEFT + WIDTH / 2.0,
            bottom + 34.0,
            escape(&self.x)
        );
        let mut put = |line: std::fmt::Arguments| {
            // Writing to a string does not fail.
            let _ = svg.write_fmt(line);
            svg.push('\n');
        };
        for value in even(0.0, top) {
            let at = y(value);
            put(format_args!("<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>", LEFT + WIDTH));
            put(format_args!(
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                significant(value)
            ));
        }
        for value in across {
            put(format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x(value),
                bottom + 16.0,
                significant(value)
            ));
        }
        for (i, Curve { name, points, marks }) in self.curves.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let path: Vec<String> =
                points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
            put(format_args!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            ));
            for point in points {
                put(format_args!(
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{} at {}: {}</title></circle>",
                    x(point.0),
                    y(point.1),
                    escape(name),
                    point.0,
                    significant(point.1)
                ));
            }
            for mark in marks {
                put(format_args!(
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"><title>{} at {}, the paper: {}</title></circle>",
                    x(mark.0),
                    y(mark.1),
                    escape(name),
                    mark.0,
                    significant(mark.1)
                ));
            }
            let at = bottom + 46.0 + i as f64 * LEGEND;
            put(format_args!(
                "<rect x=\"{LEFT}\" y=\"{at:.1}\" width=\"11\" height=\"11\" fill=\"{colour}\"/>"
            ));
            put(format_args!(
                "<text x=\"{:.0}\" y=\"{:.1}\">{}</text>",
                LEFT + 17.0,
                at + 10.0,
                escape(name)
            ));
        }
        if self.curves.iter().any(|curve| !curve.marks.is_empty()) {
            let at = bottom + 34.0;
            put(format_args!("<text x=\"{LEFT}\" y=\"{at:.1}\">hollow: the paper</text>"));
        }
        svg.push_str("</svg>\n");
        (width, height, svg)
    }
}

/// Text of a drawing as wide as `width`, its first line as a title: each paragraph in as many lines as it takes.
pub(crate) fn text(title: &str, paragraphs: &[&str], width: f64) -> (f64, f64, String) {
    // Letters of 12 points are 6.6 wide in the mean.
    let room = ((width - LEFT - 20.0) / 6.6) as usize;
    let lines: Vec<String> = paragraphs.iter().flat_map(|text| wrapped(text, room)).collect();
    let first = if title.is_empty() { 12.0 } else { 38.0 };
    let height = first + lines.len() as f64 * LEGEND;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut put = |y: f64, size: f64, text: &str| {
        // Writing to a string does not fail.
        let _ =
            writeln!(svg, "<text x=\"{LEFT}\" y=\"{y:.1}\" font-size=\"{size:.1}\">{}</text>", escape(text));
    };
    if !title.is_empty() {
        put(20.0, title_size(title, width), title);
    }
    for (i, line) in lines.iter().enumerate() {
        put(first + i as f64 * LEGEND, 12.0, line);
    }
    svg.push_str("</svg>\n");
    (width, height, svg)
}

/// Lines of at most so many characters, if no word is longer.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Charts with their widths and heights, one below the other.
pub(crate) fn stack(charts: &[(f64, f64, String)]) -> String {
    if let [(_, _, one)] = charts {
        return one.clone();
    }
    let width = charts.iter().map(|chart| chart.0).fold(0.0, f64::max);
    let height: f64 = charts.iter().map(|chart| chart.1).sum();
    let mut svg =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\">\n");
    let mut top = 0.0;
    for (_, height, chart) in charts {
        svg.push_str(&chart.replacen("<svg ", &format!("<svg y=\"{top:.0}\" "), 1));
        top += height;
    }
    svg.push_str("</svg>\n");
    svg
}

fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    names.for_each(|name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
    });
    seen
}

fn position(names: &[&str], name: &str) -> usize {
    names.iter().position(|other| *other == name).unwrap_or(0)
}

/// The least 1, 2 or 5 times a power of ten that is not below `value`.
fn nice(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|&step| step >= value).unwrap_or(10.0 * power)
}

/// So small that the title has room, if it is not tiny then.
fn title_size(title: &str, width: f64) -> f64 {
    let fits = (width - LEFT) / (0.55 * title.chars().count().max(1) as f64);
    fits.clamp(8.0, 14.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_ends_at_a_round_number() {
        for (value, top) in
            [(0.0, 1.0), (1.0, 1.0), (1.1, 2.0), (312.0, 500.0), (70.0, 100.0), (f64::NAN, 1.0)]
        {
            assert_eq!(nice(value), top, "{value}");
        }
    }

    #[test]
    fn text_is_wrapped_whole_and_escaped() {
        let long = "a table & what it stands for, <twice> ".repeat(20);
        let (width, height, svg) = text("the title", &[&long, "short"], 500.0);
        assert_eq!(width, 500.0);
        assert!(svg.contains(">the title<") && svg.contains(">short<") && svg.contains("&amp;"));
        let lines = wrapped(&long, 62);
        assert!(lines.len() > 10 && lines.iter().all(|line| line.chars().count() <= 62));
        assert_eq!(lines.join(" "), long.trim());
        // Each line has its place, and the last one is inside.
        let last = format!("y=\"{:.1}\"", 38.0 + LEGEND * lines.len() as f64);
        assert!(svg.contains(&last) && 38.0 + LEGEND * lines.len() as f64 <= height, "{svg}");
        assert_eq!(svg.matches("<text").count(), lines.len() + 2);
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn every_bar_is_drawn_and_names_are_escaped() {
        let bar = |group: &str, series: &str| Bar {
            group: group.into(),
            series: series.into(),
            value: 2.0,
            min: 1.0,
            max: 3.0,
        };
        let bars = vec![bar("rnd", "a<b"), bar("rnd", "c"), bar("seq", "a<b")];
        let svg = Plot { title: "t&u".into(), axis: "M/s".into(), bars }.svg();
        assert_eq!(svg.matches("<title>").count(), 3);
        assert!(svg.contains("t&amp;u") && svg.contains("a&lt;b") && !svg.contains("a<b"));
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn every_point_is_drawn_and_axes_have_their_names() {
        let curve = |name: &str, y| Curve {
            name: name.into(),
            points: vec![(0.1, y), (0.9, 2.0 * y)],
            marks: Vec::new(),
        };
        let curves = vec![curve("a&b", 3.0), curve("c", 20.0)];
        let mut all =
            Curves { title: "t".into(), x: "load".into(), y: "M/s".into(), curves, ticks: Vec::new() };
        let (width, height, svg) = all.sized_svg();
        assert_eq!((svg.matches("<title>").count(), svg.matches("<polyline").count()), (4, 2));
        assert!(svg.contains(">load<") && svg.contains(">M/s<") && svg.contains("a&amp;b"));
        // The axes end at 1 and 50: the highest point is at 4/5 of the height.
        assert!(svg.contains(&format!("cy=\"{:.1}\"", TOP + HEIGHT / 5.0)), "{svg}");
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
        // What somebody else found stands beside it; the axis goes from the first tick to the last.
        all.curves[0].marks.push((0.9, 10.0));
        all.ticks = vec![0.1, 0.5, 0.9];
        let marked = all.sized_svg().2;
        assert!(marked.contains("the paper: 10") && marked.contains("hollow"), "{marked}");
        assert!(
            marked.contains(&format!("cx=\"{LEFT:.1}\""))
                && marked.contains(&format!("cx=\"{:.1}\"", LEFT + WIDTH))
        );
        let both = stack(&[(width, height, svg.clone()), (width, height, marked)]);
        assert!(both.contains(&format!("y=\"{height:.0}\"")) && both.matches("</svg>").count() == 3);
        assert_eq!(stack(&[(width, height, svg.clone())]), svg);
    }
}
