//! Groups and meters.

use super::actions;
use super::source::Source;
use crate::pipeline::{Bucket, Group, GroupKind, MeterRate, MeterUnit};
use crate::text::TextError;

/// `group_id=N,type=select,bucket=weight:W,actions=...,bucket=...`
pub(super) fn group(source: &Source<'_>) -> Result<(u32, Group), TextError> {
    let text = source.text();
    let starts: Vec<usize> = bucket_places(text);
    let head_end = starts.first().copied().unwrap_or(text.len());
    let (mut number, mut kind) = (None, None);
    for word in source.words(0, head_end) {
        let value = word.value.unwrap_or_default();
        match word.name {
            "group_id" => {
                let id = source.number(value, word.value_at, 0xffff_ff00, word.name)? as u32;
                source.once(&word, number.replace(id))?;
            }
            "type" => {
                let said = match value {
                    "all" => GroupKind::All,
                    "select" => GroupKind::Select,
                    other => {
                        let what = format!("type: {other:?}: give all or select");
                        return Err(source.error(word.value_at, what));
                    }
                };
                source.once(&word, kind.replace(said))?;
            }
            name => return Err(source.error(word.at, format!("{name:?} is no word of a group"))),
        }
    }
    let Some(number) = number else { return Err(source.error(0, "group_id=N is missing")) };
    let Some(kind) = kind else { return Err(source.error(head_end, "type=all or type=select is missing")) };
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let buckets = starts.iter().zip(ends).map(|(&start, end)| bucket(source, start, end, kind));
    Ok((number, Group::new(kind, buckets.collect::<Result<_, _>>()?)))
}

/// Where buckets begin.
fn bucket_places(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let begins =
        |at: &usize| at.checked_sub(1).is_none_or(|at| bytes[at] == b',' || bytes[at].is_ascii_whitespace());
    text.match_indices("bucket=").map(|(at, _)| at).filter(begins).collect()
}

fn bucket(source: &Source<'_>, start: usize, end: usize, kind: GroupKind) -> Result<Bucket, TextError> {
    let (text, mut at) = (source.text(), start + "bucket=".len());
    let (mut weight, usual) = (None, u16::from(kind == GroupKind::Select));
    loop {
        let rest = &text[at..end];
        if let Some(actions) = rest.strip_prefix("actions=") {
            let actions = actions::bucket(source, end - actions.len(), end)?;
            return Ok(Bucket { weight: weight.unwrap_or(usual), actions });
        }
        let Some((word, _)) = rest.split_once(',') else { break };
        match word.split_once(':') {
            Some(("weight", value)) if kind == GroupKind::Select => {
                let value_at = at + "weight:".len();
                let said = source.number(value, value_at, u16::MAX.into(), "weight")? as u16;
                if weight.replace(said).is_some() {
                    return Err(source.error(at, "weight: the bucket says this already"));
                }
            }
            Some(("weight", _)) => return Err(source.error(at, "weight: only type=select has weights")),
            // Its own number has no use here.
            Some(("bucket_id", value)) => {
                source.number(value, at + "bucket_id:".len(), 0xffff_ff00, "bucket_id")?;
            }
            _ => break,
        }
        at += word.len() + 1;
    }
    // Without the word, what is there is actions.
    Ok(Bucket { weight: weight.unwrap_or(usual), actions: actions::bucket(source, at, end)? })
}

/// `meter=N,pktps,band=type=drop,rate=R,burst_size=B`. Without a burst, or with 0, it holds what a second lets through, as Open vSwitch has it: packets
/// that come together are of one time, so a meter without would pass one of them.
pub(super) fn meter(source: &Source<'_>) -> Result<(u32, MeterRate), TextError> {
    let (mut number, mut unit, mut rate, mut burst) = (None, None, None, None);
    let end = source.text().len();
    for word in source.words(0, end) {
        let value = word.value.unwrap_or_default();
        let parsed = |most: u64| source.number(value, word.value_at, most, word.name);
        match (word.name, value) {
            ("meter", _) => source.once(&word, number.replace(parsed(u32::MAX.into())? as u32))?,
            ("pktps", "") => source.once(&word, unit.replace(MeterUnit::Packets))?,
            ("kbps", "") => source.once(&word, unit.replace(MeterUnit::Kilobits))?,
            ("burst" | "stats", "") | ("band" | "bands", "type=drop") | ("type", "drop") => {}
            ("band" | "bands" | "type", _) => {
                return Err(source.error(word.value_at, "a meter has one band, of type=drop"));
            }
            ("rate", _) => {
                if rate.replace(parsed(u32::MAX.into())?).is_some() {
                    return Err(source.error(word.at, "a meter has one band"));
                }
            }
            ("burst_size", _) => source.once(&word, burst.replace(parsed(u32::MAX.into())?))?,
            (name, _) => return Err(source.error(word.at, format!("{name:?} is no word of a meter"))),
        }
    }
    match (number, rate) {
        (Some(number), Some(rate)) => {
            let unit = unit.unwrap_or(MeterUnit::Kilobits);
            Ok((number, MeterRate { unit, rate, burst: burst.filter(|&burst| burst > 0).unwrap_or(rate) }))
        }
        (None, _) => Err(source.error(0, "meter=N is missing")),
        (_, None) => Err(source.error(end, "rate=N is missing")),
    }
}
