//! The file of rules that a configuration names: read to a bound, apart from the control side, and taken whole or not at all.

use crate::common::PORTS;
use std::path::Path;
use tidemill_lookup::qsbr::Domain;
use tidemill_switch::{SwitchControl, SwitchSection};

/// A section with room for three rules.
fn section(flows: &Path) -> SwitchSection {
    SwitchSection { flows: Some(flows.to_owned()), rules: 3, ..SwitchSection::default() }
}

fn made(section: &SwitchSection) -> Result<SwitchControl, String> {
    SwitchControl::new(section, &PORTS.map(str::to_owned), 1, &Domain::new(), 99)
        .map_err(|error| error.to_string())
}

#[test]
fn what_has_no_end_or_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows");
    let long = std::fs::File::create(&path).unwrap();
    let most = section(&path).text_bytes() as u64;
    long.set_len(most + 1).unwrap();
    let bound = "256 for each rule that there can be, and 16 MiB for groups and meters";
    for (flows, what) in [
        (folder.path(), "is a folder: give a file".to_owned()),
        (Path::new("/dev/zero"), "a device or a folder, and no file".to_owned()),
        (path.as_path(), format!("longer than {most} bytes ({bound}): give fewer, or raise switch.rules")),
    ] {
        let error = made(&section(flows)).err();
        assert_eq!(error, Some(format!("{}: {what}", flows.display())));
    }
    // As large as a size can be, for who asks before the section has been looked at.
    let large = SwitchSection { rules: usize::MAX, ..SwitchSection::default() };
    assert_eq!(large.text_bytes(), usize::MAX);
}

#[test]
fn a_reload_with_too_many_rules_leaves_those_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows");
    let rules = |from: usize, to: usize| -> String {
        (from..to).map(|n| format!("priority={n},ip actions=wan\n")).collect()
    };
    std::fs::write(&path, rules(1, 3)).unwrap();
    let section = section(&path);
    let mut control = made(&section).unwrap();
    assert_eq!(control.rules(), 2);
    let shown = |control: &mut SwitchControl| -> Vec<u16> {
        control.flows("").unwrap().iter().map(|flow| flow.place.1).collect()
    };
    let before = shown(&mut control);
    for (text, line) in [(rules(2, 6), 4), (format!("# many\n\n{}", rules(0, 5000)), 6)] {
        std::fs::write(&path, text).unwrap();
        let error = control.reload(&section, &section.read_rules().unwrap()).unwrap_err().to_string();
        let what = "no room for another rule: there can be 3: take one of them out";
        assert_eq!(error, format!("{}: line {line}, column 1: {what}", path.display()));
        assert_eq!(shown(&mut control), before);
    }
    std::fs::write(&path, rules(2, 4)).unwrap();
    let loaded = control.reload(&section, &section.read_rules().unwrap()).unwrap();
    assert_eq!((loaded.added, loaded.kept, loaded.removed), (1, 1, 1));
    assert_eq!(shown(&mut control), [3, 2]);
    // Without a file it is a bridge again.
    let bridge = SwitchSection { flows: None, ..section };
    control.reload(&bridge, &bridge.read_rules().unwrap()).unwrap();
    assert_eq!(control.flows("").unwrap()[0].text, "table=0,priority=0 actions=normal");
}
