//! The bytes that a decision brings to a flow program: the one place that knows their layouts, those of `bpf/flow/`.
//!
//! ```text
//! grantedv2, web:  primary KiB/s u32, secondary KiB/s u32, first renewal ms u32, step ms u32, direct u8, 3 zero bytes
//! tcp-services:    the same, zeros up to byte 40, then six ranges of ports, first and last u16 each; 0 is no port
//! ```
//! Little-endian.

use crate::config::Parameter;
use std::collections::BTreeMap;
use tidemill_decision::Cookie;

/// The programs that are known here, with the numbers that the public Gatekeeper gives them.
const PROGRAMS: [(&str, u8); 3] = [("grantedv2", 2), ("web", 3), ("tcp-services", 4)];

/// Ranges of ports that tcp-services has room for.
const RANGES: usize = 6;
/// Where they begin.
const RANGES_AT: usize = 40;

/// The number and the first bytes of a program, from what a script gives: `rate` and `secondary` in KiB/s, `renew` and `step` in ms,
/// `direct`, and for tcp-services `ports`, a list of numbers and of texts such as `"8000-8080"`. `index` gives another number.
///
/// # Errors
/// What is wrong, in one line.
pub fn build(name: &str, of: &BTreeMap<String, Parameter>) -> Result<(u8, Cookie), String> {
    let Some((_, usual)) = PROGRAMS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
        return Err(format!("program_of: no program {name:?}: give {}", known.join(", ")));
    };
    let services = name == "tcp-services";
    for key in of.keys() {
        let ports = services && key == "ports";
        if !ports && !["rate", "secondary", "renew", "step", "direct", "index"].contains(&key.as_str()) {
            return Err(format!("program_of: {name} has no {key:?}"));
        }
    }
    let number = |key: &str, default: Option<u32>, most: u32| match (of.get(key), default) {
        (Some(Parameter::Number(value)), _) if *value >= 0.0 && *value <= f64::from(most) => {
            Ok(*value as u32)
        }
        (None, Some(default)) => Ok(default),
        _ => Err(format!("program_of: {key}: give a number of 0 to {most}")),
    };
    let rate = number("rate", None, u32::MAX)?;
    let secondary = number("secondary", Some(rate / 20), u32::MAX)?;
    let renew = number("renew", Some(45_000), u32::MAX)?;
    let step = number("step", Some(1000), u32::MAX)?;
    let index = number("index", Some((*usual).into()), 255)? as u8;
    let direct = match of.get("direct") {
        None => false,
        Some(Parameter::Switch(direct)) => *direct,
        Some(_) => return Err("program_of: direct: give true or false".into()),
    };
    let mut bytes = Vec::with_capacity(Cookie::MOST);
    for word in [rate, secondary, renew, step, direct.into()] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    if services {
        bytes.resize(RANGES_AT, 0);
        for (first, last) in ranges(of.get("ports"))? {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&last.to_le_bytes());
        }
        bytes.resize(Cookie::MOST, 0);
    }
    match Cookie::new(&bytes) {
        Some(cookie) => Ok((index, cookie)),
        None => Err(format!("program_of: {name}: {} bytes are no cookie", bytes.len())),
    }
}

fn ranges(ports: Option<&Parameter>) -> Result<Vec<(u16, u16)>, String> {
    let wrong =
        || "program_of: ports: give a list of 1 to 6 ports or ranges such as \"8000-8080\"".to_owned();
    let Some(Parameter::List(list)) = ports else { return Err(wrong()) };
    if list.is_empty() || list.len() > RANGES {
        return Err(wrong());
    }
    // What the script's patterns take: no sign, and blanks of ASCII only.
    let port = |text: &str| {
        let text = text.trim_ascii();
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|port| digits && *port > 0)
    };
    list.iter()
        .map(|one| {
            let pair = match one {
                Parameter::Number(number) => port(&number.to_string()).map(|port| (port, port)),
                Parameter::Text(text) => match text.split_once('-') {
                    Some((first, last)) => port(first).zip(port(last)),
                    None => port(text).map(|port| (port, port)),
                },
                _ => None,
            };
            pair.filter(|(first, last)| first <= last).ok_or_else(wrong)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, Parameter)]) -> BTreeMap<String, Parameter> {
        entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    #[test]
    fn cookies_have_the_layout_of_the_programs() {
        let number = |n: u32| Parameter::Number(n.into());
        let (index, cookie) = build(
            "web",
            &of(&[("rate", number(1024)), ("secondary", number(50)), ("direct", Parameter::Switch(true))]),
        )
        .unwrap();
        let words = [0, 4, 0, 0, 50, 0, 0, 0, 0xc8, 0xaf, 0, 0, 0xe8, 3, 0, 0, 1, 0, 0, 0];
        assert_eq!((index, cookie.bytes()), (3, &words[..]));
        let ports = Parameter::List(vec![number(22), Parameter::Text("8000-8080".into())]);
        let (index, cookie) =
            build("tcp-services", &of(&[("rate", number(100)), ("ports", ports), ("index", number(9))]))
                .unwrap();
        assert_eq!(index, 9);
        assert_eq!(cookie.bytes().len(), 64);
        assert_eq!(cookie.bytes()[4], 5, "a twentieth");
        assert_eq!(cookie.bytes()[20..40], [0; 20]);
        assert_eq!(cookie.bytes()[40..52], [22, 0, 22, 0, 0x40, 0x1f, 0x90, 0x1f, 0, 0, 0, 0]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let number = |n: f64| Parameter::Number(n);
        let list = |ports: &[Parameter]| ("ports", Parameter::List(ports.to_vec()));
        let error = |name: &str, entries: &[(&str, Parameter)]| build(name, &of(entries)).unwrap_err();
        assert!(error("granted3", &[]).contains("no program \"granted3\""));
        assert!(error("web", &[]).contains("rate: give a number"));
        for rate in [f64::NAN, -1.0, 1e10] {
            assert!(error("web", &[("rate", number(rate))]).contains("rate: give a number"), "{rate}");
        }
        let rate = ("rate", number(1.0));
        assert!(error("web", &[rate.clone(), list(&[number(80.0)])]).contains("web has no \"ports\""));
        assert!(error("web", &[rate.clone(), ("index", number(256.0))]).contains("index"));
        assert!(error("web", &[rate.clone(), ("direct", number(1.0))]).contains("direct"));
        for ports in [
            vec![],
            vec![number(0.0)],
            vec![number(65_536.0)],
            vec![number(1.5)],
            vec![Parameter::Text("9-8".into())],
            vec![Parameter::Text("+8000-+8080".into())],
            vec![Parameter::Text("+1".into())],
            vec![Parameter::Text("\u{a0}1".into())],
            vec![number(1.0); 7],
        ] {
            assert!(
                error("tcp-services", &[rate.clone(), list(&ports)]).contains("1 to 6 ports"),
                "{ports:?}"
            );
        }
    }
}
