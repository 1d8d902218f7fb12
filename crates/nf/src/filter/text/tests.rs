use super::*;

fn said(text: &str) -> String {
    read_rules(text).map_or_else(|error| error.to_string(), |_| "nothing".into())
}

#[test]
fn a_file_is_read() {
    let file = read_rules(
        "# hosts behind us\n\
         lan = \"lan0\"   # a name\n\
         web = \"{ http, https 8000:8080 }\"\n\
         table <bad> persist file \"bad.txt\" file \"worse.txt\" { 192.0.2.1, 2001:db8::/32 }\n\
         table <ours> const { 10.0.0.0/8 }\n\
         set skip on { lo mgmt }\n\
         block all\n\
         pass in log quick on $lan inet proto tcp from <ours> port > 1023 to ! <bad> \\\n    port $web flags S/SA keep state label \"web\"\n\
         pass out proto { udp, 47 } to { 192.0.2.0/24 }\n\
         pass inet6 proto icmp6 icmp6-type { echoreq, unreach code 4 } no state\n\
         reject from ! 10.1.0.0/16\r\n",
    )
    .unwrap();
    assert_eq!(file.sets.len(), 2);
    assert_eq!(
        file.sets[0].files.iter().map(|(file, _)| &file[..]).collect::<Vec<_>>(),
        ["bad.txt", "worse.txt"]
    );
    assert_eq!(
        file.sets[0].networks.iter().map(Network::to_string).collect::<Vec<_>>(),
        ["192.0.2.1", "2001:db8::/32"]
    );
    assert!(file.sets[1].is_const && !file.sets[0].is_const);
    assert_eq!(file.skip.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["lo", "mgmt"]);
    let [all, web, out, six, told] = &file.rules[..] else { panic!("{}", file.rules.len()) };
    assert_eq!((all.action, all.keep_state, all.place), (Action::Drop, false, Place { line: 7, column: 1 }));
    assert_eq!(
        (web.action, web.direction, web.log, web.quick),
        (Action::Pass, Some(Direction::In), true, true)
    );
    assert_eq!((web.is_v6, &web.protocols[..], web.keep_state), (Some(false), &[6][..], true));
    assert_eq!(web.interfaces, [("lan0".to_owned(), Place { line: 8, column: 22 })]);
    assert_eq!(web.from, Ends { hosts: vec![Host::Set(1, false)], ports: vec![1024..=65535] });
    assert_eq!(
        web.to,
        Ends { hosts: vec![Host::Set(0, true)], ports: vec![80..=80, 443..=443, 8000..=8080] }
    );
    assert_eq!((web.flags, web.label.as_deref()), (Flags::Masked { set: 2, of: 18 }, Some("web")));
    assert_eq!(
        web.text,
        "pass in log quick on $lan inet proto tcp from <ours> port > 1023 to ! <bad> port $web flags S/SA keep state label \"web\""
    );
    assert_eq!(
        (&out.protocols[..], out.direction, out.keep_state),
        (&[17, 47][..], Some(Direction::Out), true)
    );
    assert_eq!((&six.icmp[..], six.keep_state), (&[(128, None), (1, Some(4))][..], false));
    assert_eq!(told.action, Action::Tell);
    assert!(matches!(told.from.hosts[..], [Host::NotIn(Network::V4(_))]));
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (text, says) in [
        ("pas all", "line 1, column 1: `pas` begins no statement"),
        ("block all\n  scrub in all", "line 2, column 3: packets are not changed"),
        ("nat on wan from any to any -> 192.0.2.1", "line 1, column 1: a filter does not translate"),
        ("anchor x", "line 1, column 1: anchors are not supported"),
        ("pass in on wan from any to any tag x", "line 1, column 32: `tag` is pf's, and not supported here"),
        ("pass all all", "line 1, column 10: `all` has no place here"),
        ("pass from 10.0.0.1/8", "line 1, column 11: 10.0.0.1/8 has host bits set: did you mean 10.0.0.0/8?"),
        ("pass from example.net", "line 1, column 11: `example.net` is no address"),
        ("pass from wan:network", "line 1, column 11: \"wan:network\" is not an IPv6 address"),
        ("pass from { 10.0.0.1, ! 10.0.0.2 }", "line 1, column 23: `!` in a list would mean everybody"),
        ("pass from ! any", "line 1, column 11: `! any` is nobody"),
        ("pass to <bad>\npass to <worse>", "line 1, column 10: there is no table <bad>"),
        ("table <a> {}\ntable <a> {}", "line 2, column 8: there is a table <a> already"),
        ("table <a> { 10.0.0.0/33 }", "line 1, column 13: \"33\" is not a prefix length"),
        ("table <a> { ! 10.0.0.0/8 }", "line 1, column 13: `!` in a table is not supported"),
        ("table <a> file bad.txt", "line 1, column 16: a file's name in quotes must be here"),
        ("table <a> file \"\"", "line 1, column 16: this name is empty: name a file"),
        ("table <a> { 10.0.0.0/8", "line 1, column 23: this list is not closed"),
        ("pass proto tcp to any port htpp", "line 1, column 28: `htpp` is no port"),
        ("pass proto tcp to any port 90:80", "line 1, column 28: the range 90:80 ends before it begins"),
        ("pass proto tcp to any port > 65535", "line 1, column 30: no port is like this"),
        ("pass proto tcp to any port 1 >< 9", "line 1, column 30: a range of ports is `first:last`"),
        ("pass proto tpc", "line 1, column 12: `tpc` is no protocol"),
        ("pass proto udp flags S/SA", "line 1, column 16: `flags` is about TCP"),
        ("pass proto tcp flags S/A", "line 1, column 22: of the flags behind"),
        ("pass proto tcp flags S/SA flags any", "line 1, column 27: `flags` is there already in this rule"),
        ("pass proto icmp icmp-type 8 icmp-type 0", "line 1, column 29: a type of ICMP is there already"),
        ("pass keep state no state", "line 1, column 17: `keep state` or `no state` is there already"),
        ("pass keep state keep state", "line 1, column 17: `keep state` or `no state` is there already"),
        ("block no state no state", "line 1, column 16: `keep state` or `no state` is there already"),
        ("pass label a keep state label b", "line 1, column 25: a label is there already"),
        ("pass proto tcp flags X/A", "line 1, column 22: flags are written SET/OF"),
        ("pass icmp-type echoreq", "line 1, column 6: it needs `proto icmp`"),
        ("pass proto icmp icmp-type echo", "line 1, column 27: `echo` is no type of ICMP"),
        ("block keep state", "line 1, column 7: what is blocked has no state"),
        ("pass synproxy state", "line 1, column 6: it is not supported"),
        ("pass keep state (max 3)", "line 1, column 17: `keep state` takes no options"),
        ("block return-rst", "line 1, column 7: senders are told by ICMP"),
        ("set timeout tcp.first 3", "line 1, column 5: `set timeout`: timeouts and room are"),
        ("set debug urgent", "line 1, column 5: `set debug` is not supported"),
        ("pass on ! wan", "line 1, column 9: `! INTERFACE` is not supported"),
        ("pass on $wan", "line 1, column 9: there is no macro wan above this line"),
        ("1a = \"x\"", "line 1, column 1: a macro's name"),
        ("a = \"\"", "line 1, column 1: the macro a is nothing"),
        ("a = \"x", "line 1, column 5: this quote is not closed"),
        ("pass from { }", "line 1, column 14: this list is empty"),
        ("pass \\ x", "line 1, column 6: a `\\` goes on with the next line"),
        ("pass \\", "line 1, column 1: the file ends behind a `\\`"),
        ("pass from 10.0.0.1; drop", "line 1, column 19: `;` has no place"),
        ("\u{feff}pass all", "line 1, column 1: U+FEFF has no place"),
        ("pass \u{1b}", "line 1, column 6: U+001B has no place"),
        ("pass label \"\"", "line 1, column 12: a label has 1 to 63 bytes"),
    ] {
        let said = said(text);
        assert!(said.starts_with(says), "{text:?}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn files_of_addresses() {
    let mut networks = Vec::new();
    read_set("# a list\n192.0.2.1\t10\n\n  10.0.0.0/8 ; ours\r\n2001:db8::/32\n", &mut networks).unwrap();
    assert_eq!(
        networks.iter().map(Network::to_string).collect::<Vec<_>>(),
        ["192.0.2.1", "10.0.0.0/8", "2001:db8::/32"]
    );
    for (text, says) in [
        ("192.0.2.1\n 192.0.2.256", "line 2, column 2: \"192.0.2.256\" is not an IPv4 address"),
        ("192.0.2.1 192.0.2.2", "line 1, column 11: `192.0.2.2` follows the address"),
    ] {
        assert_eq!(
            read_set(text, &mut networks).unwrap_err().to_string().split(": give").next(),
            Some(says),
            "{text}"
        );
    }
}

#[test]
fn of_what_is_long_the_beginning_is_said() {
    let long = "9".repeat(1 << 20);
    for text in [&long, &format!("::{long}"), &format!("192.0.2.0/{long}"), &format!("192.0.2.1 {long}x")] {
        let said = read_set(text, &mut Vec::new()).unwrap_err().to_string();
        assert!(said.contains("999...") && said.len() < 200, "{} bytes", said.len());
    }
    let long = "a".repeat(1 << 20);
    for text in [
        format!("pass to <{long}>"),
        format!("{long} = \"\""),
        format!("pass to {long}"),
        format!("pass to ${long}"),
        format!("pass {long}"),
        format!("table <t> {{ {long} }}"),
        format!("pass proto {long}"),
        format!("pass proto tcp to any port {long}"),
        format!("set {long}"),
    ] {
        let said = said(&text);
        assert!(said.contains("aaa...") && said.len() < 300, "{}: {} bytes", &text[..20], said.len());
    }
}

#[test]
fn macros_do_not_grow_without_bound() {
    let mut text = String::from("a0 = \"1 1 1 1 1 1 1 1\"\n");
    for n in 1..20 {
        let before = n - 1;
        text += &format!("a{n} = \"$a{before} $a{before} $a{before} $a{before}\"\n");
    }
    assert!(said(&text).contains("words"), "{}", said(&text));
}

#[test]
fn access_lists_are_loaded_where_the_statement_stands() {
    let mut file = read_rules(
        "block all\nload \"a.rules\" format classbench pass in on lan\npass quick all\nload \"b.txt\" format cisco acl 101 log keep state\n",
    )
    .unwrap();
    let [a, b] = &file.loads[..] else { panic!("{:?}", file.loads) };
    assert_eq!((&a.file[..], &a.format, a.at), ("a.rules", &Format::ClassBench(Action::Pass), 1));
    assert_eq!((&b.file[..], &b.format, b.at), ("b.txt", &Format::Cisco("101".into()), 2));
    let first = a
        .rules("# two\n@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF 0x0000/0x0200\n\n@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n")
        .unwrap();
    assert_eq!(
        first.iter().map(|rule| &rule.text[..14]).collect::<Vec<_>>(),
        ["a.rules:2: @10", "a.rules:4: @0."]
    );
    assert!(first.iter().all(|rule| rule.quick && !rule.keep_state && rule.direction == Some(Direction::In)));
    let list = "access-list 101 permit tcp any any established\naccess-list 101 permit udp any any\naccess-list 101 deny ip any any log\n";
    let second = b.rules(list).unwrap();
    let shape: Vec<_> = second.iter().map(|rule| (rule.action, rule.keep_state, rule.flags)).collect();
    assert_eq!(
        shape,
        [
            (Action::Pass, false, Flags::Any),
            (Action::Pass, false, Flags::Any),
            (Action::Pass, true, Flags::Default),
            (Action::Drop, false, Flags::Default),
            (Action::Drop, false, Flags::Default),
        ],
        "of what goes on two, of ACK and of RST; what nobody permits is denied"
    );
    assert_eq!(second[4].text, "b.txt:at its end: deny ip any any");
    file.put_in(vec![first, second]).unwrap();
    let texts: Vec<&str> = file.rules.iter().map(|rule| &rule.text[..7]).collect();
    assert_eq!(
        texts,
        ["block a", "a.rules", "a.rules", "pass qu", "b.txt:1", "b.txt:1", "b.txt:2", "b.txt:3", "b.txt:a"]
    );
    // Mistakes of the file have places of the file.
    let load = &file.loads[0];
    assert_eq!(load.rules("\n@10.0.0.0/8 x\n").unwrap_err().line, 2);
    assert!(file.loads[1].rules(list).is_ok() && file.loads[1].rules("").is_err());
}

#[test]
fn what_is_wrong_with_a_load_is_named() {
    for (text, says) in [
        ("load anchor \"x\" from \"y\"", "line 1, column 6: anchors are not supported"),
        ("load x format cisco acl 1", "line 1, column 6: a file's name in quotes"),
        ("load \"\" format cisco acl 1", "line 1, column 6: this name is empty: name a file"),
        ("load \"x\" cisco", "line 1, column 10: `format` must be here, not `cisco`"),
        ("load \"x\" format juniper", "line 1, column 17: there are the formats"),
        (
            "load \"x\" format cisco 101",
            "line 1, column 23: `acl` and the list's name or number must be here",
        ),
        ("load \"x\" format classbench", "line 1, column 27: `pass`, `block` or `reject`"),
        (
            "load \"x\" format classbench permit",
            "line 1, column 28: `pass`, `block` or `reject` must be here",
        ),
        ("load \"x\" format classbench pass quick", "line 1, column 33: `quick` has no place here"),
        ("load \"x\" format cisco acl in keep", "line 1, column 34: `keep state`"),
    ] {
        let said = said(text);
        assert!(said.starts_with(says), "{text}: {said}");
    }
}
