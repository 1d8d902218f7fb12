//! `check --reference`: every key of the configuration, as a page of Markdown. It is made of the JSON schema that `check --schema` prints, and of what a
//! reload refuses, so it says what this program takes.

use super::config::Config;
use anyhow::Result;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tidemill_amp::MitigatorSection;
use tidemill_bgp::config::BgpSection;
use tidemill_gatekeeper::GatekeeperSection;
use tidemill_grantor::GrantorSection;
use tidemill_nf::filter::FilterSection;
use tidemill_nf::nat::NatSection;
use tidemill_router::RouterConfig;
use tidemill_switch::SwitchSection;

const INTRODUCTION: &str = "# Configuration

A configuration is a file in TOML. Keys that are not here are errors. Relative paths are relative to the file's folder. `tidemill check FILE` says what is wrong with one, and where;
complete ones of every role are in [examples](examples).

This page is what `tidemill check --reference` prints, made of the same schema as `tidemill check --schema`, which editors can use.

After a key stands what it takes, then its default, or *required*; *optional* is what has no default, or one that its text says. *Restart*: `tidemill reload` and SIGHUP refuse a
change of it. They take other changes while packets flow; what they cannot take they name, and then nothing has changed.

## The file
";

/// The sections in the order of the page. One that is not here comes last.
const PARTS: &[(&str, &[&str])] = &[
    ("Sections of every role", &["run", "memory", "port", "dpdk", "control", "log", "assets", "ipfix"]),
    (
        "Sections of roles that route: router, gatekeeper, grantor, nat, filter",
        &[
            "interface",
            "table",
            "next_hop",
            "next_hops",
            "route",
            "router",
            "neighbors",
            "vrf",
            "queue",
            "kernel",
            "bgp",
            "state",
            "updates",
            "remap",
            "nat",
            "filter",
        ],
    ),
    ("Sections of one role", &["mitigator", "gatekeeper", "grantor", "kvcache", "switch"]),
];

/// The page.
pub(super) fn page() -> Result<String> {
    let schema = serde_json::to_value(schemars::schema_for!(Config))?;
    Ok(Page::of(&schema, &fixed()?))
}

/// What a reload refuses to change, as those who refuse it say.
fn fixed() -> Result<BTreeSet<String>> {
    let mut fixed = BTreeSet::new();
    let mut add = |section: &str, keys: &[(&'static str, bool)]| {
        fixed.extend(keys.iter().map(|(key, _)| format!("{section}{key}")));
    };
    let config: Config = toml::from_str("version = 1\nrole = \"router\"\n")?;
    add("", &config.fixed_sections(&config));
    add("", &config.fixed_routing(&config));
    let router = RouterConfig::default();
    add("", &router.fixed_keys(&router));
    let bgp: BgpSection = toml::from_str("asn = 65000\nid = \"10.0.0.1\"\n")?;
    add("", &bgp.fixed_keys(&bgp));
    let mitigator = MitigatorSection::default();
    add("mitigator.", &mitigator.fixed_keys(&mitigator));
    // `MitigatorControl::reload` compares the ports that these two come to.
    add("mitigator.", &[("outside", true), ("inside", true)]);
    let gatekeeper = GatekeeperSection::default();
    add("gatekeeper.", &gatekeeper.fixed_keys(&gatekeeper));
    let grantor = GrantorSection::default();
    add("grantor.", &grantor.fixed_keys(&grantor));
    let switch = SwitchSection::default();
    add("switch.", &switch.fixed_keys(&switch));
    let nat = NatSection::default();
    add("nat.", &nat.fixed_keys(&nat));
    let filter = FilterSection::default();
    add("filter.", &filter.fixed_keys(&filter));
    // `KvcacheControl::reload` takes nothing else than what it has.
    add("", &[("kvcache", true)]);
    Ok(fixed)
}

/// A page that is being written.
struct Page<'a> {
    schema: &'a Value,
    fixed: &'a BTreeSet<String>,
    /// The headings of tables that are told, or will be, by what they are called in the schema.
    told: BTreeMap<&'a str, String>,
    text: String,
}

/// A table that has a heading of its own.
struct Table<'a> {
    path: String,
    heading: String,
    /// As it stands at its key.
    schema: &'a Value,
}

/// How many of something a key takes.
#[derive(Clone, Copy)]
enum Number {
    One,
    List,
    ByName,
}

impl<'a> Page<'a> {
    fn of(schema: &'a Value, fixed: &'a BTreeSet<String>) -> String {
        let mut page = Page { schema, fixed, told: BTreeMap::new(), text: INTRODUCTION.to_owned() };
        page.line("");
        let mut sections = page.keys("", schema, "");
        for (part, names) in PARTS {
            let (these, others): (Vec<_>, Vec<_>) =
                sections.into_iter().partition(|section| names.contains(&section.path.as_str()));
            sections = others;
            page.part(part, these, names);
        }
        page.part("Other sections", sections, &[]);
        page.text
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn part(&mut self, title: &str, mut sections: Vec<Table<'a>>, order: &[&str]) {
        if sections.is_empty() {
            return;
        }
        sections.sort_by_key(|section| order.iter().position(|name| *name == section.path));
        self.line(&format!("\n## {title}"));
        sections.iter().for_each(|section| self.table(section, 3));
    }

    /// A table under its heading, and those in it.
    fn table(&mut self, table: &Table<'a>, level: usize) {
        let (_, _, schema) = self.inner(table.schema);
        self.line(&format!("\n{} `{}`\n", "#".repeat(level.min(6)), table.heading));
        let mut said = vec![description(table.schema), description(schema)];
        said.dedup();
        if self.fixed.contains(&table.path) {
            said.push("*Restart*.".into());
        }
        said.retain(|text| !text.is_empty());
        if !said.is_empty() {
            self.line(&said.join(" "));
        }
        let mut later = Vec::new();
        let variants = options(schema);
        if variants.is_empty() {
            self.line("");
            later = self.keys(&table.path, schema, "");
        }
        for variant in variants {
            let tag = properties(variant).find_map(|(name, key)| Some((name, key.get("const")?)));
            let tag =
                tag.map_or_else(String::new, |(name, word)| format!(" with `{name} = {}`", written(word)));
            let heading = format!("\n{} `{}`{tag}\n", "#".repeat((level + 1).min(6)), table.heading);
            self.line(&heading);
            self.line(&format!("{}\n", description(variant)));
            later.extend(self.keys(&table.path, variant, ""));
        }
        later.iter().for_each(|table| self.table(table, level + 1));
    }

    /// A line or more for each key of a table. Gives the tables among them, which are told of elsewhere.
    fn keys(&mut self, path: &str, schema: &'a Value, indent: &str) -> Vec<Table<'a>> {
        let required = schema["required"].as_array();
        let is_required = |key: &str| required.is_some_and(|list| list.iter().any(|name| name == key));
        let mut keys: Vec<(&String, &Value)> = properties(schema).collect();
        // What says which table it is stands first, then what has to be there.
        keys.sort_by_key(|(name, key)| (key.get("const").is_none(), !is_required(name)));
        let mut later = Vec::new();
        for (name, key) in keys {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let (number, called, inner) = self.inner(key);
            let is_table = is_table(inner);
            let kind = match is_table {
                true => self.link(&path, number, called, key, &mut later),
                false => self.kind(key, false, &[]),
            };
            let mut facts = vec![kind];
            match key.get("default") {
                _ if is_required(name) => facts.push("*required*".into()),
                // Of tables it is said, if at all, what is so without one.
                _ if is_table => {}
                None | Some(Value::Null) => facts.push("*optional*".into()),
                Some(default) => facts.push(format!("default `{}`", written(default))),
            }
            if self.fixed.contains(&path) {
                facts.push("*restart*".into());
            }
            let said = match description(key) {
                said if said.is_empty() => description(inner),
                said => said,
            };
            let colon = if said.is_empty() { "" } else { ": " };
            self.line(&format!("{indent}- `{name}` ({}){colon}{said}", facts.join("; ")));
            if !is_table {
                self.choices(&path, key, &format!("{indent}  "), &mut later);
            }
        }
        later
    }

    /// What a key takes that is a table: where it is told of. The first time it is put among those that will be.
    fn link(
        &mut self,
        path: &str,
        number: Number,
        called: Option<&'a str>,
        schema: &'a Value,
        later: &mut Vec<Table<'a>>,
    ) -> String {
        let (what, path, heading) = match number {
            Number::One => ("table", path.to_owned(), format!("[{path}]")),
            Number::List => ("tables", path.to_owned(), format!("[[{path}]]")),
            Number::ByName => ("tables by name", format!("{path}.NAME"), format!("[{path}.NAME]")),
        };
        let before = called.and_then(|called| self.told.get(called)).cloned();
        let like = if before.as_ref().is_some_and(|before| *before != heading) { "as " } else { "" };
        let place = match before {
            Some(before) => before,
            None => {
                if let Some(called) = called {
                    self.told.insert(called, heading.clone());
                }
                later.push(Table { path, heading: heading.clone(), schema });
                heading
            }
        };
        let anchor: String = place.chars().filter(|c| c.is_alphanumeric() || "_-".contains(*c)).collect();
        format!("{what} {like}[`{place}`](#{})", anchor.to_lowercase())
    }

    /// A line for each of the things of which a key takes one, under its own.
    fn choices(&mut self, path: &str, schema: &'a Value, indent: &str, later: &mut Vec<Table<'a>>) {
        let (mut called, mut schema) = self.real(schema);
        while let Some((_, item)) = items(schema) {
            (called, schema) = self.real(item);
        }
        let within: Vec<&str> = called.into_iter().collect();
        let options = options(schema);
        if let [one, several] = options[..]
            && items(several)
                .is_some_and(|(_, item)| self.kind(item, false, &[]) == self.kind(one, false, &[]))
        {
            return;
        }
        for option in options {
            let (_, inner) = self.real(option);
            let said = match description(option) {
                said if said.is_empty() => description(inner),
                said => said,
            };
            let colon = if said.is_empty() { "" } else { ": " };
            self.line(&format!("{indent}- {}{colon}{said}", self.kind(option, false, &within)));
            let deeper = format!("{indent}  ");
            if is_table(inner) {
                later.extend(self.keys(path, inner, &deeper));
            } else if self::options(inner).len() > 1 {
                self.choices(path, inner, &deeper, later);
            }
        }
    }

    /// What a key takes, in words; `many` of it. `within` are the types that this is part of.
    fn kind(&self, schema: &'a Value, many: bool, within: &[&'a str]) -> String {
        let (called, schema) = self.real(schema);
        if called.is_some_and(|called| within.contains(&called)) {
            return "the same".into();
        }
        let within: Vec<&str> = within.iter().copied().chain(called).collect();
        if let Some(word) = schema.get("const") {
            return format!("`{}`", written(word));
        }
        let mut kinds: Vec<String> =
            self.alternatives(schema).into_iter().map(|option| self.kind(option, many, &within)).collect();
        let words = schema.get("enum").and_then(Value::as_array);
        kinds.extend(words.into_iter().flatten().map(|word| format!("`{}`", written(word))));
        if let Some((last, others)) = kinds.split_last() {
            return if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) };
        }
        let (one, more) = match (type_of(schema), schema["format"].as_str()) {
            ("boolean", _) => return "`true` or `false`".into(),
            ("integer", _) => ("whole number", "whole numbers"),
            ("number", _) => ("number", "numbers"),
            ("string", Some("ip")) => ("IP address", "IP addresses"),
            ("string", Some("ipv4")) => ("IPv4 address", "IPv4 addresses"),
            ("string", Some("ipv6")) => ("IPv6 address", "IPv6 addresses"),
            ("string", _) => ("text", "texts"),
            ("array" | "object", _) => {
                let (number, item) = match items(schema) {
                    Some((number, item)) => (number, self.kind(item, true, &within)),
                    None => (Number::One, String::new()),
                };
                return match (number, many) {
                    (Number::List, false) => format!("list of {item}"),
                    (Number::List, true) => format!("lists of {item}"),
                    (Number::ByName, false) => format!("table of names, each with {item}"),
                    (Number::ByName, true) => format!("tables of names, each with {item}"),
                    (Number::One, false) => "table".into(),
                    (Number::One, true) => "tables".into(),
                };
            }
            _ => ("value", "values"),
        };
        if many { more.into() } else { one.into() }
    }

    /// The things of which one is meant; where one is again one of several, these.
    fn alternatives(&self, schema: &'a Value) -> Vec<&'a Value> {
        let deeper = |option: &'a Value| {
            let several = self.alternatives(self.real(option).1);
            if several.is_empty() { vec![option] } else { several }
        };
        options(schema).into_iter().flat_map(deeper).collect()
    }

    /// What stands behind references, and behind what may be left out; and what the schema calls it.
    fn real(&self, mut schema: &'a Value) -> (Option<&'a str>, &'a Value) {
        let mut called = None;
        loop {
            let name = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/"));
            let next = match (name, &options(schema)[..]) {
                (Some(name), _) => {
                    called = Some(name);
                    self.schema["$defs"].get(name)
                }
                (None, [only]) if schema.get("anyOf").is_some() => Some(*only),
                _ => None,
            };
            match next {
                Some(next) => schema = next,
                None => return (called, schema),
            }
        }
    }

    /// The same of what a list, or a table by names, is of.
    fn inner(&self, schema: &'a Value) -> (Number, Option<&'a str>, &'a Value) {
        let (called, schema) = self.real(schema);
        match items(schema) {
            None => (Number::One, called, schema),
            Some((number, item)) => {
                let (called, item) = self.real(item);
                (number, called, item)
            }
        }
    }
}

/// The things of which one is meant, besides nothing.
fn options(schema: &Value) -> Vec<&Value> {
    let list = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array);
    list.into_iter().flatten().filter(|option| option["type"] != "null").collect()
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// What a list, or a table by names, is of.
fn items(schema: &Value) -> Option<(Number, &Value)> {
    match type_of(schema) {
        "array" => Some((Number::List, schema.get("items")?)),
        "object" if schema.get("properties").is_none() => {
            let value = schema.get("additionalProperties").filter(|value| value.is_object())?;
            Some((Number::ByName, value))
        }
        _ => None,
    }
}

/// Whether it is a table with keys of its own, or one of several such.
fn is_table(schema: &Value) -> bool {
    let options = options(schema);
    let has_keys = |schema: &Value| schema.get("properties").is_some();
    has_keys(schema) || !options.is_empty() && options.into_iter().all(has_keys)
}

fn type_of(schema: &Value) -> &str {
    let name = match &schema["type"] {
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        name => name.as_str(),
    };
    name.unwrap_or_default()
}

/// What is said of it, on one line, and without the marks of links into the source.
fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.replace('\n', " ").replace("[`", "`").replace("`]", "`")
}

/// A value as TOML writes it.
fn written(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("[{}]", list.iter().map(written).collect::<Vec<_>>().join(", ")),
        Value::Object(table) if table.is_empty() => "{}".into(),
        Value::Object(table) => {
            let pairs: Vec<String> =
                table.iter().map(|(key, value)| format!("{key} = {}", written(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        // Texts and numbers are written as in JSON.
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Shows every key of a schema, wherever it is.
    fn keys(schema: &Value, see: &mut impl FnMut(&str, &Value)) {
        for (name, key) in properties(schema) {
            see(name, key);
            keys(key, see);
        }
        options(schema).into_iter().for_each(|option| keys(option, see));
        if let Some((_, item)) = items(schema) {
            keys(item, see);
        }
    }

    #[test]
    fn no_key_of_the_configuration_is_missing() {
        let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
        let page = page().unwrap();
        let mut count = 0;
        let mut see = |name: &str, key: &Value| {
            count += 1;
            let start = format!("- `{name}` (");
            let said = description(key);
            let default = match key.get("default") {
                Some(default @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => {
                    format!("default `{}`", written(default))
                }
                _ => String::new(),
            };
            let is_it = |line: &str| {
                line.trim_start().starts_with(&start) && line.ends_with(&said) && line.contains(&default)
            };
            assert!(page.lines().any(is_it), "{name}: {key}");
        };
        keys(&schema, &mut see);
        schema["$defs"].as_object().unwrap().values().for_each(|def| keys(def, &mut see));
        assert!(count > 300, "{count}");
        for (name, key) in properties(&schema) {
            let headings = [format!("\n### `[{name}]`\n"), format!("\n### `[[{name}]]`\n")];
            let told = headings.iter().filter(|heading| page.contains(*heading)).count();
            assert_eq!(told, usize::from(!["role", "version"].contains(&&**name)), "{name}: {key}");
        }
        assert!(!page.contains("## Other sections"), "name the new section in PARTS");
    }

    #[test]
    fn what_a_reload_refuses_is_marked_once() {
        let (page, fixed) = (page().unwrap(), fixed().unwrap());
        assert!(
            ["run", "vrf", "bgp.asn", "bgp.redirect", "mitigator.outside", "grantor.policy.queue", "kvcache"]
                .iter()
                .all(|key| fixed.contains(*key))
        );
        assert!(["bgp", "bgp.peer", "bgp.announce"].iter().all(|key| !fixed.contains(*key)));
        assert_eq!(page.matches("*restart*").count(), fixed.len(), "a key of `fixed_keys` has no such name");
    }

    #[test]
    fn references_choices_lists_and_tables_by_name_are_told() {
        let schema = json!({
            "properties": {
                "mode": {"description": "How,\nas [`Mode`].", "$ref": "#/$defs/Mode", "default": "fast"},
                "limit": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Never"}, {"type": "null"}], "description": "Most."},
                "peer": {"type": "array", "items": {"$ref": "#/$defs/Peer"}, "description": "Who."},
                "back": {"anyOf": [{"$ref": "#/$defs/Peer"}, {"type": "null"}], "default": null},
                "port": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Port"}},
            },
            "required": ["limit"],
            "$defs": {
                "Mode": {"oneOf": [
                    {"const": "fast", "type": "string", "description": "Soon."},
                    {"const": "slow", "type": "string", "description": "Later."},
                ]},
                "Never": {"enum": ["never"]},
                "Peer": {"type": "object", "description": "A peer.", "properties": {
                    "address": {"type": ["string", "null"], "format": "ip"},
                    "names": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "default": []},
                }},
                "Port": {"oneOf": [
                    {"type": "object", "description": "By file.", "properties": {"kind": {"const": "file"}}, "required": ["kind"]},
                    {"type": "object", "description": "None.", "properties": {"kind": {"const": "none"}}, "required": ["kind"]},
                ]},
            },
        });
        let fixed = BTreeSet::from(["peer".to_owned(), "mode".to_owned()]);
        let page = Page::of(&schema, &fixed);
        assert_eq!(page.strip_prefix(INTRODUCTION).unwrap(), EXPECTED);
    }

    const EXPECTED: &str = "
- `limit` (whole number or `\"never\"`; *required*): Most.
  - whole number
  - `\"never\"`
- `back` (table [`[back]`](#back)): A peer.
- `mode` (`\"fast\"` or `\"slow\"`; default `\"fast\"`; *restart*): How, as `Mode`.
  - `\"fast\"`: Soon.
  - `\"slow\"`: Later.
- `peer` (tables as [`[back]`](#back); *restart*): Who.
- `port` (tables by name [`[port.NAME]`](#portname))

## Other sections

### `[back]`

A peer.

- `address` (IP address; *optional*)
- `names` (text or list of texts; default `[]`)

### `[port.NAME]`


#### `[port.NAME]` with `kind = \"file\"`

By file.

- `kind` (`\"file\"`; *required*)

#### `[port.NAME]` with `kind = \"none\"`

None.

- `kind` (`\"none\"`; *required*)
";
}
