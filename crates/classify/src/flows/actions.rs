//! What stands behind `actions=`.

use super::fields::{self, Form};
use super::source::Source;
use crate::key::{Field, VLAN_PRESENT};
use crate::pipeline::{Action, Instructions, Output, SETTABLE, check_action};
use crate::rule::Match;
use crate::text::TextError;
use tidemill_wire::EtherType;

/// A word of a list of actions: its name, what is behind the colon or in brackets, and their places.
struct Call<'a> {
    name: &'a str,
    at: usize,
    value: &'a str,
    value_at: usize,
}

/// Splits a list at the commas that are in no brackets.
fn calls<'a>(source: &Source<'a>, from: usize, to: usize) -> Result<Vec<Call<'a>>, TextError> {
    let text = &source.text()[..to];
    let (mut calls, mut start, mut open) = (Vec::new(), from, None);
    for (at, byte) in text.bytes().enumerate().skip(from).chain([(to, b',')]) {
        match byte {
            b'(' if open.is_none() => open = Some(at),
            b'(' => return Err(source.error(at, "brackets inside brackets")),
            b')' if open.take().is_none() => return Err(source.error(at, "`)` without `(`")),
            b',' if open.is_none() || at == to => {
                if let Some(call) = call(text, start, at) {
                    calls.push(call);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    match open {
        Some(at) => Err(source.error(at, "`(` without `)`")),
        None => Ok(calls),
    }
}

fn call(text: &str, start: usize, end: usize) -> Option<Call<'_>> {
    let whole = text.get(start..end)?;
    let trimmed = whole.trim_start();
    let at = start + (whole.len() - trimmed.len());
    let trimmed = trimmed.trim_end();
    if trimmed.is_empty() {
        return None;
    }
    let len = trimmed.find([':', '(']).unwrap_or(trimmed.len());
    let value = trimmed.get(len + 1..).unwrap_or_default();
    let value =
        if trimmed[len..].starts_with('(') { value.strip_suffix(')').unwrap_or(value) } else { value };
    Some(Call { name: &trimmed[..len], at, value, value_at: at + (len + 1).min(trimmed.len()) })
}

/// Actions, and the table to go on with; and where each stands.
pub(super) fn instructions(
    source: &Source<'_>,
    from: usize,
    to: usize,
    matches: &Match,
) -> Result<(Instructions, Vec<u16>), TextError> {
    let calls = calls(source, from, to)?;
    let places = calls.iter().map(|call| super::byte(call.at)).collect();
    let mut instructions = Instructions::default();
    let Some(first) = calls.first() else {
        return Err(source.error(from, "give actions, or `drop`"));
    };
    if first.name == "drop" {
        return match calls.get(1) {
            None if first.value.is_empty() => Ok((instructions, places)),
            None => Err(source.error(first.value_at, "drop takes nothing")),
            Some(next) => Err(source.error(next.at, "nothing may follow drop")),
        };
    }
    for call in &calls {
        if instructions.goto.is_some() {
            return Err(source.error(call.at, "nothing may follow goto_table"));
        }
        match call.name {
            "goto_table" => {
                instructions.goto = Some(source.number(call.value, call.value_at, 254, call.name)? as u8);
            }
            "resubmit" => {
                let Some(table) = call.value.strip_prefix(',') else {
                    return Err(source.error(call.value_at, "resubmit: give a later table, as resubmit(,2)"));
                };
                instructions.goto = Some(source.number(table, call.value_at + 1, 254, call.name)? as u8);
            }
            _ => {
                let action = action(source, call, false)?;
                check_action(&action, matches).map_err(|error| source.error(call.at, error.to_string()))?;
                instructions.actions.push(action);
            }
        }
    }
    Ok((instructions, places))
}

/// The actions of a bucket.
pub(super) fn bucket(source: &Source<'_>, from: usize, to: usize) -> Result<Vec<Action>, TextError> {
    let calls = calls(source, from, to)?;
    match calls.as_slice() {
        [only] if only.name == "drop" => Ok(Vec::new()),
        calls => calls.iter().map(|call| action(source, call, true)).collect(),
    }
}

fn set(field: Field, value: u128, mask: u128) -> Action {
    let all = crate::Mask::prefix(field, 128).get(field);
    Action::Set { field, value: value & all, mask: mask & all }
}

fn action(source: &Source<'_>, call: &Call<'_>, in_bucket: bool) -> Result<Action, TextError> {
    let number = |most: u64| source.number(call.value, call.value_at, most, call.name);
    let bare = |action: Action| match call.value {
        "" => Ok(action),
        _ => Err(source.error(call.value_at, format!("{} takes nothing", call.name))),
    };
    // `mod_...` sets a whole field.
    let whole = |field: Field, form: Form| {
        let (value, mask) = fields::parse(source, call.value, call.value_at, form, call.name)?;
        if call.value.contains('/') {
            return Err(source.error(call.value_at, format!("{}: give one value, no mask", call.name)));
        }
        Ok(set(field, value, mask))
    };
    let present = u128::from(VLAN_PRESENT);
    match call.name {
        "output" => output(source, call.value, call.value_at),
        "drop" => Err(source.error(call.at, "drop stands alone")),
        "in_port" | "IN_PORT" => bare(Action::Output(Output::InPort)),
        "normal" | "NORMAL" => bare(Action::Output(Output::Normal)),
        "flood" | "FLOOD" => bare(Action::Output(Output::Flood)),
        "all" | "ALL" => bare(Action::Output(Output::All)),
        "controller" | "CONTROLLER" => Err(no_controller(source, call.at)),
        "set_field" => set_field(source, call),
        "mod_vlan_vid" => Ok(set(Field::Vlan, u128::from(number(4095)?) | present, 0x1fff)),
        "mod_vlan_pcp" => Ok(set(Field::Vlan, u128::from(number(7)?) << 13 | present, 0xf000)),
        "push_vlan" => {
            let tpid = EtherType(number(0xffff)? as u16);
            if !tpid.is_vlan() {
                let what = "push_vlan: give the tag's ethertype, 0x8100 or 0x88a8";
                return Err(source.error(call.value_at, what));
            }
            Ok(Action::PushVlan(tpid))
        }
        "pop_vlan" | "strip_vlan" => bare(Action::PopVlan),
        "mod_dl_src" => whole(Field::MacSource, Form::Mac),
        "mod_dl_dst" => whole(Field::MacDestination, Form::Mac),
        "mod_nw_src" => whole(Field::Ipv4Source, Form::Ipv4),
        "mod_nw_dst" => whole(Field::Ipv4Destination, Form::Ipv4),
        "mod_nw_tos" => whole(Field::Tos, Form::Tos),
        "mod_nw_ecn" => whole(Field::Tos, Form::Ecn),
        "mod_tp_src" => whole(Field::SourcePort, Form::Port),
        "mod_tp_dst" => whole(Field::DestinationPort, Form::Port),
        "dec_ttl" => bare(Action::DecTtl),
        "write_metadata" => {
            let (value, mask) = source.masked(call.value, call.value_at, u32::MAX.into(), call.name)?;
            Ok(set(Field::Metadata, value, mask))
        }
        "group" if !in_bucket => Ok(Action::Group(number(u32::MAX.into())? as u32)),
        "meter" if !in_bucket => Ok(Action::Meter(number(u32::MAX.into())? as u32)),
        "group" | "meter" | "goto_table" | "resubmit" => {
            Err(source.error(call.at, format!("a bucket cannot {}", call.name)))
        }
        name if call.value.is_empty() => output(source, name, call.at),
        name => Err(source.error(call.at, format!("there is no action {name:?}"))),
    }
}

/// Packets for one would be dropped: that is to be seen here, not when they are missing.
fn no_controller(source: &Source<'_>, at: usize) -> TextError {
    source.error(at, "controller: there is no controller here: give another action, or drop")
}

fn output(source: &Source<'_>, text: &str, at: usize) -> Result<Action, TextError> {
    let output = match text {
        "in_port" | "IN_PORT" => Output::InPort,
        "normal" | "NORMAL" => Output::Normal,
        "flood" | "FLOOD" => Output::Flood,
        "all" | "ALL" => Output::All,
        "controller" | "CONTROLLER" => return Err(no_controller(source, at)),
        port => Output::Port(source.port(port, at)?),
    };
    Ok(Action::Output(output))
}

/// `value[/mask]->field`.
fn set_field(source: &Source<'_>, call: &Call<'_>) -> Result<Action, TextError> {
    let Some((value, name)) = call.value.split_once("->") else {
        return Err(source.error(call.value_at, "set_field: give value->field, as 10.0.0.1->ip_dst"));
    };
    let name_at = call.value_at + value.len() + 2;
    let known = fields::field(name)
        .filter(|(field, form, _)| SETTABLE.contains(field) && !matches!(form, Form::Number(_)));
    let Some((field, form, _)) = known else {
        return Err(source.error(name_at, format!("set_field: {name:?} is no field that can be set")));
    };
    let (value, mask) = fields::parse(source, value, call.value_at, form, name)?;
    // OpenFlow writes VLANs with the bit that says that there is one; without it, a number is meant all the same.
    if field == Field::Vlan && mask & u128::from(VLAN_PRESENT) != 0 && value & u128::from(VLAN_PRESENT) == 0 {
        return Err(source.error(
            call.value_at,
            "set_field: a VLAN has the bit 0x1000, as 4106->vlan_vid for 10; pop_vlan takes a tag off",
        ));
    }
    if field == Field::Vlan && mask & u128::from(VLAN_PRESENT) == 0 {
        return Err(source.error(call.value_at, "set_field: the mask of a VLAN has the bit 0x1000"));
    }
    Ok(set(field, value, mask))
}
