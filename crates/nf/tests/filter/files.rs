//! Files that rules are read from.

/// A device has no end: it is refused, wherever it is named, and so is what is too long.
#[test]
fn only_files_are_read_and_no_more_than_a_bound_of_them() {
    use tidemill_ip::{Interface, Interfaces};
    use tidemill_nf::filter::{FilterControl, FilterSection, text::MOST_BYTES};
    let interfaces = Interfaces::new(vec![Interface::of_port(0, "lan"), Interface::of_port(1, "wan")], 2);
    let domain = tidemill_lookup::qsbr::Domain::new();
    let error = |rules: std::path::PathBuf| {
        let section = FilterSection { rules: Some(rules), ..FilterSection::default() };
        FilterControl::new(&section, &interfaces, 1, &domain).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(error("/dev/zero".into()), "/dev/zero: a device or a folder, and no file");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules");
    for rules in ["pass all\ntable <bad> file \"/dev/zero\"\n", "\nload \"/dev/zero\" format cisco acl 1\n"] {
        std::fs::write(&path, rules).unwrap();
        let said = error(path.clone());
        let what = ": /dev/zero: a device or a folder, and no file";
        assert!(said.contains("line 2, column ") && said.ends_with(what), "{said}");
    }
    std::fs::write(&path, vec![b'\n'; MOST_BYTES + 1]).unwrap();
    assert!(error(path).ends_with(": longer than 16777216 bytes"));
}

/// Whoever writes files asks before he does.
#[test]
fn the_names_of_files_are_told_by_the_rules_alone() {
    use tidemill_nf::filter::{FilterFiles, FilterSection};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let rules = "table <bad> file \"bad.txt\" file \"/nowhere/worse\"\nload \"acl\" format classbench block\npass all\n";
    std::fs::write(at("rules"), rules).unwrap();
    let section = FilterSection { rules: Some(at("rules")), ..FilterSection::default() };
    let names = FilterFiles::names(&section).unwrap();
    assert_eq!(names, [at("rules"), at("bad.txt"), "/nowhere/worse".into(), at("acl")]);
    let section = FilterSection { rules: Some(at("none")), ..FilterSection::default() };
    assert!(FilterFiles::names(&section).unwrap_err().to_string().contains("/none: No such file"));
}

/// What a loss of power leaves of a table's file is told by a line, whatever its size.
#[test]
fn a_table_file_of_zeros_or_without_lines_is_refused_in_few_words() {
    use tidemill_nf::filter::{FilterFiles, FilterSection};
    let folder = tempfile::tempdir().unwrap();
    let (rules, table) = (folder.path().join("rules"), folder.path().join("bad.txt"));
    std::fs::write(&rules, "table <bad> file \"bad.txt\"\npass all\n").unwrap();
    let section = FilterSection { rules: Some(rules.clone()), ..FilterSection::default() };
    let error = || FilterFiles::read(&section).unwrap_err().to_string();
    let zero = "a byte of zero: this is no text, or was not written to its end";
    for (bytes, says) in [
        (vec![0; 4 << 20], format!("line 1, column 1: {zero}")),
        (b"192.0.2.1\n198.51.\0\0\0\n\xff\n".to_vec(), format!("line 2, column 8: {zero}")),
        (vec![b'9'; 4 << 20], format!("line 1, column 1: \"{}...\" is not an IPv4 address", "9".repeat(60))),
        (b"192.0.2.1\n\xff".to_vec(), "line 2, column 1: this is no UTF-8".into()),
    ] {
        std::fs::write(&table, bytes).unwrap();
        assert_eq!(error(), format!("{}: {says}", table.display()));
    }
    std::fs::write(&rules, "pass all\n\0").unwrap();
    assert_eq!(error(), format!("{}: line 2, column 1: {zero}", rules.display()));
}

/// As in pf: what commands have put into a table stays, unless the file says what is in it.
#[test]
fn a_table_that_the_file_says_nothing_of_keeps_its_addresses() {
    use tidemill_ip::{Interface, Interfaces};
    use tidemill_nf::filter::text::read_network;
    use tidemill_nf::filter::{FilterControl, FilterFiles, FilterSection};
    let interfaces = Interfaces::new(vec![Interface::of_port(0, "lan"), Interface::of_port(1, "wan")], 2);
    let folder = tempfile::tempdir().unwrap();
    let (rules, list) = (folder.path().join("rules"), folder.path().join("list"));
    let section = FilterSection { rules: Some(rules.clone()), ..FilterSection::default() };
    let begin = "block in quick from <bans>\ntable <bans> persist\ntable <file> file \"list\"\n";
    std::fs::write(&rules, format!("{begin}table <list> {{ 192.0.2.0/24 }}\n")).unwrap();
    std::fs::write(&list, "198.51.100.0/24\n").unwrap();
    let domain = tidemill_lookup::qsbr::Domain::new();
    let mut control = FilterControl::new(&section, &interfaces, 1, &domain).unwrap();
    let more = ["203.0.113.77", "2001:db8::7"].map(|text| read_network(text).unwrap());
    for name in ["bans", "file", "list"] {
        assert_eq!(control.add_to_set(name, &more).unwrap(), 2);
    }
    let mut load = |text: &str| {
        std::fs::write(&rules, text).unwrap();
        let files = FilterFiles::read(&section).unwrap();
        control.take(files, &interfaces).unwrap();
        let count = |name| control.set(name).map(|set| (set.v4.len(), set.v6.len()));
        ["bans", "file", "list"].map(count)
    };
    // Also where the tables have other places in the file.
    let (kept, one) = (Some((1, 1)), Some((1, 0)));
    let other = "table <list> { 192.0.2.0/24 }\ntable <file> file \"list\"\ntable <bans>\n";
    assert_eq!(load(other), [kept, one, one]);
    assert_eq!(load("table <bans> persist\ntable <list>\n"), [kept, None, one], "its list is gone");
    assert_eq!(load("table <bans> { }\ntable <file>\n"), [Some((0, 0)), Some((0, 0)), None]);
    assert_eq!(load("table <bans> const\n"), [Some((0, 0)), None, None]);
}

/// What a file's name does to a terminal is not done by an error.
#[test]
fn names_of_files_are_shown_in_plain_signs() {
    use tidemill_nf::filter::{FilterFiles, FilterSection};
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("ru\u{202e}les\u{1b}");
    let section = FilterSection { rules: Some(rules.clone()), ..FilterSection::default() };
    let error = || FilterFiles::read(&section).unwrap_err().to_string();
    let place = format!("{}/ru?les?: ", folder.path().display());
    assert!(error().starts_with(&place), "{}", error());
    let long = "n".repeat(5000);
    for (name, says) in [("b\u{202e}ad\u{1b}", "/b?ad?: No such file"), (long.as_str(), "nnn...: ")] {
        std::fs::write(&rules, format!("table <bad> file \"{name}\"\n")).unwrap();
        let said = error();
        assert!(said.starts_with(&place) && said.contains(says), "{said}");
        assert!(said.len() < 1000 && said.chars().all(tidemill_nf::plain::is_plain), "{said}");
    }
}
