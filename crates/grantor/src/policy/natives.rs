//! What scripts can call that is written in Rust. Each is bounded work, and none can reach anything but what it is given.
//!
//! A wrong argument comes back as `nil, message`, so that the prelude can raise the error where the script made it.

use crate::config::Parameter;
use crate::policy::cookie;
use crate::policy::expiring::{Expiring, MapKey, VALUES};
use crate::policy::state::{Declared, Meter};
use crate::policy::tables::{Library, PrefixTable};
use crate::policy::wire::FIELDS_MAX;
use crate::question::Signature;
use mlua::{AnyUserData, Lua, LuaString, Result, Table, UserData, UserDataMethods, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maps of one script that outlive its state.
const KEPT_MAX: usize = 16;
/// The longest name, and the longest text in a table that scripts hand over: these are copied, out of the memory that scripts are held to.
const NAME_MAX: usize = 64;

/// A value, or what is wrong.
type Made<T> = (Option<T>, Option<String>);

/// The functions, for the prelude.
pub(crate) fn table(
    lua: &Lua,
    library: &Arc<Library>,
    meter: &Arc<Meter>,
    declared: &Arc<Mutex<Declared>>,
    seed: u64,
) -> Result<Table> {
    let native = lua.create_table()?;
    let (tables, reader) = (library.clone(), meter.clone());
    let lpm = move |lua: &Lua, (file, column): (String, Option<String>)| -> Result<Made<AnyUserData>> {
        let began_ns = reader.clock_ns();
        let found = tables.get(&file, column.as_deref().unwrap_or("value"));
        reader.excuse(began_ns);
        match found {
            Ok(table) => Ok((Some(lua.create_userdata(Lpm(table))?), None)),
            Err(error) => Ok((None, Some(error.to_string()))),
        }
    };
    native.raw_set("lpm", lua.create_function(lpm)?)?;
    let (maps, known) = (meter.clone(), declared.clone());
    type Of = (f64, f64, Option<String>);
    let expiring = move |lua: &Lua, (entries, idle_s, keep): Of| -> Result<Made<AnyUserData>> {
        let wrong = |what: &str| Ok((None, Some(format!("expiring: {what}"))));
        if !(entries >= 1.0 && idle_s > 0.0 && idle_s <= 1e6) {
            return wrong("give at least one entry, and an idle time of at most 1000000 seconds");
        }
        let left = maps.entries.load(Relaxed);
        // Rounded up as the map does it.
        let size = (entries.min(1e9) as usize).next_power_of_two().max(8) as u64;
        if size > left {
            return wrong(&format!("{size} entries: there is room for {left} in all maps of a script"));
        }
        let idle_ns = (idle_s * 1e9) as u64;
        let mut before = None;
        if let Some(name) = &keep {
            let declared = known.lock().unwrap_or_else(PoisonError::into_inner);
            if name.is_empty() || name.len() > NAME_MAX {
                return wrong(&format!("keep: give a name of at most {NAME_MAX} bytes"));
            }
            if declared.maps.iter().any(|(other, _)| other == name) {
                return wrong(&format!("keep: {name:?} is kept already"));
            }
            if declared.maps.len() == KEPT_MAX {
                return wrong(&format!("keep: more than {KEPT_MAX} maps"));
            }
            let same = |map: &Arc<Mutex<Expiring>>| locked(map).take_up(size as usize, idle_ns);
            before = declared.before.iter().find(|(other, map)| other == name && same(map)).cloned();
        }
        // Each map of a state has its own hash.
        let make = || Arc::new(Mutex::new(Expiring::new(size as usize, idle_ns, seed ^ left)));
        let map = before.map_or_else(make, |(_, map)| map);
        if let Some(name) = keep {
            known.lock().unwrap_or_else(PoisonError::into_inner).maps.push((name, map.clone()));
        }
        maps.entries.store(left - size, Relaxed);
        Ok((Some(lua.create_userdata(Map { map, meter: maps.clone() })?), None))
    };
    native.raw_set("expiring", lua.create_function(expiring)?)?;
    let signed = declared.clone();
    let signature = move |_: &Lua, name: String| {
        let mut declared = signed.lock().unwrap_or_else(PoisonError::into_inner);
        let with = declared.signature.unwrap_or(Signature::NONE).with(&name);
        declared.signature = with.or(declared.signature);
        Ok(with.is_some())
    };
    native.raw_set("signature", lua.create_function(signature)?)?;
    let fields = declared.clone();
    let field = move |_: &Lua, (of, what): (Value, String)| {
        let mut declared = fields.lock().unwrap_or_else(PoisonError::into_inner);
        let table = of.as_userdata().and_then(|table| Some(table.borrow::<Lpm>().ok()?.0.clone()));
        let Some(table) = table else { return Ok(Some("field: that is no table of lpm()".to_owned())) };
        if declared.fields.len() == FIELDS_MAX {
            return Ok(Some(format!("field: more than {FIELDS_MAX} fields")));
        }
        declared.fields.push((table, what == "destination"));
        Ok(None)
    };
    native.raw_set("field", lua.create_function(field)?)?;
    let address = |lua: &Lua, text: LuaString| match text.to_str().ok().and_then(|text| text.parse().ok()) {
        Some(IpAddr::V4(v4)) => lua.create_string(v4.octets()).map(Some),
        Some(IpAddr::V6(v6)) => lua.create_string(v6.octets()).map(Some),
        None => Ok(None),
    };
    native.raw_set("address", lua.create_function(address)?)?;
    let text = |_: &Lua, bytes: LuaString| Ok(ip(&bytes.as_bytes()).map(|ip| ip.to_string()));
    native.raw_set("text", lua.create_function(text)?)?;
    let mask = |lua: &Lua, (bytes, len): (LuaString, f64)| {
        let mut octets = bytes.as_bytes().to_vec();
        if ip(&octets).is_none() || !(len >= 0.0 && len <= octets.len() as f64 * 8.0) {
            return Ok(None);
        }
        for (at, octet) in octets.iter_mut().enumerate() {
            let kept = (len as usize).saturating_sub(at * 8).min(8);
            *octet &= !(0xffu16 >> kept) as u8;
        }
        lua.create_string(octets).map(Some)
    };
    native.raw_set("mask", lua.create_function(mask)?)?;
    let cookie = |lua: &Lua, (name, of): (String, Table)| {
        Ok(match read(&of)?.and_then(|of| cookie::build(&name, &of)) {
            Ok((index, cookie)) => {
                (Value::Integer(index.into()), Value::String(lua.create_string(cookie.bytes())?))
            }
            Err(what) => (Value::Nil, Value::String(lua.create_string(what)?)),
        })
    };
    native.raw_set("cookie", lua.create_function(cookie)?)?;
    Ok(native)
}

/// The address of 4 or 16 bytes.
fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (Ok(v4), _) => Some(v4.into()),
        (_, Ok(v6)) => Some(v6.into()),
        _ => None,
    }
}

/// The parameters as a Lua table.
pub(crate) fn parameters(lua: &Lua, from: &BTreeMap<String, Parameter>) -> Result<Table> {
    let table = lua.create_table()?;
    for (name, value) in from {
        table.raw_set(name.as_str(), parameter(lua, value)?)?;
    }
    Ok(table)
}

fn parameter(lua: &Lua, value: &Parameter) -> Result<Value> {
    Ok(match value {
        Parameter::Switch(on) => Value::Boolean(*on),
        Parameter::Number(number) => Value::Number(*number),
        Parameter::Text(text) => Value::String(lua.create_string(text)?),
        Parameter::List(values) => {
            let list = lua.create_table()?;
            for value in values {
                list.raw_push(parameter(lua, value)?)?;
            }
            Value::Table(list)
        }
        Parameter::Table(values) => Value::Table(parameters(lua, values)?),
    })
}

/// Entries of a table that scripts hand over: bounded, and one level deep besides a list. Or what is wrong with them.
fn read(table: &Table) -> Result<std::result::Result<BTreeMap<String, Parameter>, String>> {
    let mut out = BTreeMap::new();
    for pair in table.pairs::<LuaString, Value>().take(64) {
        let (name, value) = pair?;
        if name.as_bytes().len() > NAME_MAX {
            return Ok(Err(format!("program_of: a name of more than {NAME_MAX} bytes")));
        }
        let name = name.to_string_lossy();
        let value = match &value {
            Value::Table(list) => {
                let values = list.sequence_values::<Value>().take(256);
                let values: Result<Option<Vec<Parameter>>> = values.map(|value| Ok(plain(&value?))).collect();
                values?.map(Parameter::List)
            }
            other => plain(other),
        };
        let Some(value) = value else {
            let what = format!("numbers, switches, texts of at most {NAME_MAX} bytes, or a list of these");
            return Ok(Err(format!("program_of: {name}: give {what}")));
        };
        out.insert(name, value);
    }
    Ok(Ok(out))
}

fn plain(value: &Value) -> Option<Parameter> {
    match value {
        Value::Boolean(on) => Some(Parameter::Switch(*on)),
        Value::Integer(number) => Some(Parameter::Number(*number as f64)),
        Value::Number(number) => Some(Parameter::Number(*number)),
        Value::String(text) if text.as_bytes().len() <= NAME_MAX => {
            Some(Parameter::Text(text.to_string_lossy()))
        }
        _ => None,
    }
}

/// A table of prefixes.
struct Lpm(Arc<PrefixTable>);

impl UserData for Lpm {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |_, this, address: LuaString| Ok(this.0.get(&address.as_bytes())));
        methods.add_method("prefixes", |_, this, ()| Ok(this.0.prefixes()));
    }
}

/// An expiring map.
struct Map {
    /// Another state may take it up.
    map: Arc<Mutex<Expiring>>,
    meter: Arc<Meter>,
}

fn locked(map: &Mutex<Expiring>) -> MutexGuard<'_, Expiring> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Map {
    /// The time, and the map. While a script loads there is no time, and what is kept may be another state's.
    fn opened(&self) -> Result<(u64, MutexGuard<'_, Expiring>)> {
        if self.meter.is_loading() {
            return Err(mlua::Error::runtime("a map is for decide: while the script loads use a table"));
        }
        Ok((self.meter.now_ns.load(Relaxed), locked(&self.map)))
    }
}

fn map_key(key: &Value) -> Result<MapKey> {
    let made = match key {
        Value::String(bytes) => MapKey::new(&bytes.as_bytes()),
        Value::Number(number) => Some(MapKey::number(*number)),
        Value::Integer(number) => Some(MapKey::number(*number as f64)),
        _ => None,
    };
    made.ok_or_else(|| mlua::Error::runtime("a key is a number, or a text of at most 32 bytes"))
}

impl UserData for Map {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |_, this, key: Value| {
            let key = map_key(&key)?;
            let (now_ns, mut map) = this.opened()?;
            let values = map.get(now_ns, &key);
            let value = |at: usize| values.map(|values: [f64; VALUES]| values[at]);
            Ok((value(0), value(1), value(2), value(3)))
        });
        type Set = (Value, f64, Option<f64>, Option<f64>, Option<f64>);
        methods.add_method("set", |_, this, (key, a, b, c, d): Set| {
            let key = map_key(&key)?;
            let rest = |value: Option<f64>| value.unwrap_or(0.0);
            let (now_ns, mut map) = this.opened()?;
            map.set(now_ns, &key, [a, rest(b), rest(c), rest(d)]);
            Ok(())
        });
        methods.add_method("remove", |_, this, key: Value| {
            let key = map_key(&key)?;
            this.opened()?.1.remove(&key);
            Ok(())
        });
        methods.add_method("evicted", |_, this, ()| Ok(locked(&this.map).evicted() as f64));
        methods.add_method("capacity", |_, this, ()| Ok(locked(&this.map).capacity()));
    }
}
