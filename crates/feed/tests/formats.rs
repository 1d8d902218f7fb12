//! The text forms, round trips, and any text at all.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::io::Cursor;
use tidemill_feed::{
    FamilyChange, LabelBy, Labels, LoadOptions, LoadedTable, NextHopName, Numbering, SaveFormat, Synthetic,
    UpdateOptions, Updates, load, load_all, load_from, save, write,
};
use tidemill_lpm::rib::Change;
use tidemill_lpm::{Address, Label, Prefix, Rib};

fn load_text(text: &str, options: &LoadOptions) -> LoadedTable {
    load_from(Box::new(Cursor::new(text.as_bytes().to_vec())), "f", options).unwrap_or_else(|e| panic!("{e}"))
}

/// Every route with its next hop's name, in canonical order.
fn routes(table: &LoadedTable) -> Vec<String> {
    let mut text = Vec::new();
    write(&mut text, &table.v4, &table.v6, &table.labels, SaveFormat::Text).unwrap();
    String::from_utf8(text).unwrap().lines().map(|line| line.replace('\t', " ")).collect()
}

#[test]
fn every_text_form_loads() {
    let plain = LoadOptions { synthetic: Synthetic::Single, ..LoadOptions::default() };
    let origin = LoadOptions { label_by: LabelBy::OriginAs, ..plain };
    let neighbour = LoadOptions { label_by: LabelBy::NeighbourAs, ..plain };
    for (text, options, wanted) in [
        ("10.0.0.0/8\r\n9.0.0.0/8", &plain, &["9.0.0.0/8 1", "10.0.0.0/8 1"][..]),
        ("2001:db8::/32\t7\n10.0.0.1\t148\n", &plain, &["10.0.0.1/32 148", "2001:db8::/32 7"]),
        ("10.0.0.0/8\t192.0.2.1\t64500\t64501\n", &plain, &["10.0.0.0/8 192.0.2.1"]),
        ("10.0.0.0/8\t192.0.2.1\t64500\t64501\n", &neighbour, &["10.0.0.0/8 64500"]),
        ("10.0.0.0/8\t192.0.2.1\t64500\t64501\n", &origin, &["10.0.0.0/8 64501"]),
        ("10.0.0.0/8\t394977\n", &origin, &["10.0.0.0/8 394977"]),
        ("10.0.0.0/8\tveth27\n", &plain, &["10.0.0.0/8 veth27"]),
        (
            "10.0.0.0/8 192.0.2.1@ae0.10\n0.0.0.0/0 rjct\n",
            &plain,
            &["0.0.0.0/0 rjct", "10.0.0.0/8 192.0.2.1@ae0.10"],
        ),
        ("prefix,nexthop\n10.0.0.0/8,192.0.2.1\n", &plain, &["10.0.0.0/8 192.0.2.1"]),
        ("\"label\",\"Prefix\"\n\"3\",\"10.0.0.0/8\"\n", &plain, &["10.0.0.0/8 3"]),
        ("prefix,origin\n10.0.0.0/8,64500\n", &origin, &["10.0.0.0/8 64500"]),
        ("10.0.0.0/8, 192.0.2.1\n", &plain, &["10.0.0.0/8 192.0.2.1"]),
        ("# c\nR198.18.0.0/24 0\nR198.18.1.0/24 1\n", &plain, &["198.18.0.0/24 0", "198.18.1.0/24 1"]),
        ("prefix,origin\n10.0.0.0/8,\"{1,2}\"\n", &origin, &["10.0.0.0/8 {1,2}"]),
        ("10.0.0.0/8\ta\t1\t{1,2}\n", &origin, &["10.0.0.0/8 {1,2}"]),
        ("10.0.0.0/8\tprefix\n", &plain, &["10.0.0.0/8 prefix"]),
        ("\u{feff}10.0.0.0/8 7\n", &plain, &["10.0.0.0/8 7"]),
        ("\u{feff}# c\n10.0.0.0/8 7\n", &plain, &["10.0.0.0/8 7"]),
        ("10.0.0.0/8\t#7\n", &plain, &["10.0.0.0/8 #7"]),
        ("prefix,label,note\n10.0.0.0/8,7,see #1 # 2\n", &plain, &["10.0.0.0/8 7"]),
        ("", &plain, &[]),
        ("# only a comment", &plain, &[]),
    ] {
        assert_eq!(routes(&load_text(text, options)), wanted, "{text:?}");
    }
}

#[test]
fn labels_are_the_files_numbers_or_count_its_names() {
    let options = LoadOptions::default();
    let label = |table: &LoadedTable, prefix: &str| table.v4.get(prefix.parse().unwrap()).unwrap().0;
    let table = load_text("10.0.0.0/8 148\n11.0.0.0/8 1\n", &options);
    assert_eq!([label(&table, "10.0.0.0/8"), label(&table, "11.0.0.0/8")], [148, 1]);
    let table = load_text("10.0.0.0/8 148\n11.0.0.0/8 0\n", &options);
    assert_eq!(table.labels.numbering(), Numbering::Shifted);
    assert_eq!([label(&table, "10.0.0.0/8"), label(&table, "11.0.0.0/8")], [149, 1]);
    // 65,535 is the largest that is; with a larger one all are names.
    for (text, labels) in [
        ("10.0.0.0/8 65535\n11.0.0.0/8 3\n", [65_535, 3]),
        ("10.0.0.0/8 65536\n11.0.0.0/8 3\n", [1, 2]),
        ("10.0.0.0/8 0\n11.0.0.0/8 65535\n", [1, 2]),
    ] {
        let table = load_text(text, &options);
        assert_eq!([label(&table, "10.0.0.0/8"), label(&table, "11.0.0.0/8")], labels, "{text:?}");
    }
    let table = load_text("10.0.0.0/8 192.0.2.2\n11.0.0.0/8 192.0.2.1\n12.0.0.0/8 192.0.2.2\n", &options);
    assert_eq!(
        [label(&table, "10.0.0.0/8"), label(&table, "11.0.0.0/8"), label(&table, "12.0.0.0/8")],
        [1, 2, 1]
    );
    // Without values: the same prefix has the same label in every file.
    let a = load_text("10.0.0.0/8\n11.0.0.0/8\n", &options);
    let b = load_text("11.0.0.0/8\n", &options);
    assert_eq!(label(&a, "11.0.0.0/8"), label(&b, "11.0.0.0/8"));
}

#[test]
fn several_files_share_one_dictionary() {
    let dir = tempfile::tempdir().unwrap();
    let (v4, v6) = (dir.path().join("v4"), dir.path().join("v6"));
    std::fs::write(&v4, "10.0.0.0/8 a\n11.0.0.0/8 b\n").unwrap();
    std::fs::write(&v6, "2001:db8::/32 b\n").unwrap();
    let table = load_all(&[&v4, &v6], &LoadOptions::default()).unwrap();
    assert_eq!((table.v4.len(), table.v6.len(), table.labels.len()), (2, 1, 2));
    assert_eq!(table.v6.get("2001:db8::/32".parse().unwrap()), Some(Label(2)));
    let error = load(&dir.path().join("none"), &LoadOptions::default()).err().unwrap().to_string();
    assert!(error.starts_with(&dir.path().join("none").display().to_string()), "{error}");
}

#[test]
fn updates_use_the_tables_dictionary() {
    let table = load_text("10.0.0.0/8 192.0.2.2\n", &LoadOptions::default());
    let text = "1.5\tA\t64500\t10.0.0.0/8\t192.0.2.2\n2\tA\t64501\t11.0.0.0/8\t192.0.2.3\n3\tW\t64500\t10.0.0.0/8\t-\n";
    let read = |options| {
        let reader = Box::new(Cursor::new(text.as_bytes().to_vec()));
        Updates::read(reader, "f", table.labels.clone(), options).unwrap()
    };
    let mut updates = read(UpdateOptions::default());
    let all: Vec<_> = updates.by_ref().map(Result::unwrap).collect();
    let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
    let changes: Vec<_> = all.iter().map(|u| u.change).collect();
    assert_eq!(
        changes,
        [
            FamilyChange::V4(Change::Announce(p("10.0.0.0/8"), Label(1))),
            FamilyChange::V4(Change::Announce(p("11.0.0.0/8"), Label(2))),
            FamilyChange::V4(Change::Withdraw(p("10.0.0.0/8"))),
        ]
    );
    assert_eq!(all[0].time, Some(1_500_000_000));
    assert_eq!(updates.labels().name(Label(2)), NextHopName::parse("192.0.2.3").as_ref());
    let own = read(UpdateOptions { peer_as: Some(64_500), ..UpdateOptions::default() });
    assert_eq!(own.count(), 2);
}

/// Address, length, label.
type Raw<A> = Vec<(A, u8, u32)>;

fn rib<A: Address>(routes: Raw<A>) -> Rib<A> {
    routes.into_iter().map(|(a, l, n)| (Prefix::new(a, l).unwrap(), Label(n))).collect()
}

fn tables() -> impl Strategy<Value = (Raw<u32>, Raw<u128>)> {
    let v4 = proptest::collection::vec((any::<u32>(), 0..=32u8, 1..9u32), 0..40);
    let v6 = proptest::collection::vec((any::<u128>(), 0..=128u8, 1..9u32), 0..40);
    (v4, v6)
}

proptest! {
    #[test]
    fn what_is_saved_loads_again((v4, v6) in tables(), csv in any::<bool>(), names in any::<bool>(), kind in 0..4usize) {
        let (v4, v6) = (rib(v4), rib(v6));
        let mut labels = Labels::new();
        for n in 1..9 {
            let text = if names { format!("{{{n},192.0.2.{n}@eth{n}}}") } else { n.to_string() };
            labels.label(&NextHopName::parse(&text).unwrap());
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(["t.txt", "t.gz", "t.xz", "t.zst"][kind]);
        let format = if csv { SaveFormat::Csv } else { SaveFormat::Text };
        save(&path, &v4, &v6, &labels, format).unwrap();
        let again = load(&path, &LoadOptions::default()).unwrap();
        let before = LoadedTable { v4, v6, labels, ..LoadedTable::default() };
        prop_assert_eq!(routes(&again), routes(&before));
    }

    #[test]
    fn any_text_loads_or_says_why(text in "([0-9a-fR:./#,\t \n@AWpx-]{0,40}\n?){0,6}", skip in any::<bool>()) {
        let options = LoadOptions { skip_wrong: skip, mask_host_bits: skip, ..LoadOptions::default() };
        match load_from(Box::new(Cursor::new(text.clone().into_bytes())), "f", &options) {
            Ok(table) => prop_assert!(table.v4.len() + table.v6.len() <= text.lines().count()),
            Err(error) => prop_assert!(error.to_string().starts_with("f:") && !error.to_string().contains('\n')),
        }
        let options = UpdateOptions { skip_wrong: skip, ..UpdateOptions::default() };
        if let Ok(updates) = Updates::read(Box::new(Cursor::new(text.clone().into_bytes())), "f", Labels::new(), options) {
            prop_assert!(updates.count() <= text.lines().count() + 1);
        }
    }
}
