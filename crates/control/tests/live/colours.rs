//! The looks of the drops chart's areas, for those who see colours as most do, and for those who do not.
//!
//! Source: Machado, Oliveira and Fernandes, "A Physiologically-Based Model for Simulation of Color Vision Deficiency" (2009), Table 1, severity 1; CIE 1976 L*a*b*.

use std::collections::HashSet;

const DROPS: &str = include_str!("../../src/page/drops.js");

type Colour = [f64; 3];

/// What a vision makes of red, green and blue, linear ones.
const VISIONS: [(&str, [Colour; 3]); 4] = [
    ("all colours", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "protanopia",
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    ),
    (
        "deuteranopia",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    (
        "tritanopia",
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ),
];

/// So far apart are any two of them, at least: some 2.3 is the least difference that is seen side by side.
const APART: f64 = 15.0;

/// Colour and lines of each, as the script has them.
fn looks() -> Vec<(&'static str, &'static str)> {
    let (_, rest) = DROPS.split_once("const LOOKS = [").unwrap();
    let (list, _) = rest.split_once("\n];").unwrap();
    let look = |one: &'static str| {
        let mut parts = one.split('"');
        (parts.next().unwrap(), parts.nth(1).unwrap())
    };
    list.split("[\"").skip(1).map(look).collect()
}

/// Of `#rrggbb`.
fn linear(text: &str) -> Colour {
    let digits = text.strip_prefix('#').unwrap();
    assert_eq!(digits.len(), 6, "{text}");
    [0, 2, 4].map(|at| {
        let part = f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0;
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    })
}

fn times(matrix: &[Colour; 3], colour: Colour) -> Colour {
    matrix.map(|row| row.iter().zip(colour).map(|(factor, part)| factor * part).sum::<f64>().clamp(0.0, 1.0))
}

fn lab([r, g, b]: Colour) -> Colour {
    let f = |part: f64| if part > 0.008_856 { part.cbrt() } else { 7.787 * part + 16.0 / 116.0 };
    let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
    let y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
    let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn distance(one: Colour, other: Colour) -> f64 {
    one.iter().zip(other).map(|(one, other)| (one - other).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn no_two_areas_look_the_same_whatever_colours_one_sees() {
    let looks = looks();
    assert_eq!(looks.len(), 7, "{looks:?}");
    // Without any colour: by their lines.
    let lines: HashSet<&str> = looks.iter().map(|(_, lines)| *lines).collect();
    assert_eq!(lines.len(), looks.len(), "{looks:?}");
    for (vision, matrix) in VISIONS {
        for (at, (one, _)) in looks.iter().enumerate() {
            for (other, _) in &looks[..at] {
                let seen = |colour: &str| lab(times(&matrix, linear(colour)));
                let apart = distance(seen(one), seen(other));
                assert!(apart >= APART, "{vision}: {one} and {other}: {apart:.1}");
            }
        }
    }
    // The simulation itself: red and green are much nearer to who sees no red or no green, and black and white are as far apart as they can be for everybody.
    let of = |vision: usize, one: &str, other: &str| {
        let seen = |colour: &str| lab(times(&VISIONS[vision].1, linear(colour)));
        distance(seen(one), seen(other))
    };
    for vision in [1, 2] {
        assert!(
            of(vision, "#cc0000", "#008000") < of(0, "#cc0000", "#008000") / 2.0,
            "{}",
            VISIONS[vision].0
        );
    }
    for (at, (vision, _)) in VISIONS.iter().enumerate() {
        let apart = of(at, "#000000", "#ffffff");
        assert!((99.0..101.0).contains(&apart), "{vision}: {apart}");
    }
}
