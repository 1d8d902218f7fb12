use super::*;

fn line(id: &str, digit: char) -> String {
    format!("{id} {}\n", digit.to_string().repeat(64))
}

#[test]
fn text_is_read() {
    let text = format!("# ours\n\n{}  {} # old\n", line("2", 'a'), line("65535", 'B').trim());
    let ring = Keyring::parse(&text).unwrap();
    assert_eq!(ring.ids().collect::<Vec<_>>(), [2, 65535]);
    assert_eq!(ring.signer(), 2);
    assert_eq!(ring, Keyring::parse(&text.replace('a', "A")).unwrap());
    assert_ne!(ring, Keyring::parse(&line("2", 'a')).unwrap());
    let other = Keyring::parse(&(line("65535", 'b') + &line("2", 'c'))).unwrap();
    let [ours, theirs] = [&ring, &other].map(|ring| ring.fingerprints().collect::<Vec<_>>());
    assert_eq!([ours[1] == theirs[0], ours[0] == theirs[1], ours[0] == theirs[0]], [true, false, false]);
    let number = Keyring::parse(&line("3", 'a')).unwrap();
    assert_ne!(number.fingerprints().next(), Some(ours[0]), "the same secret under another number");
    assert_eq!(format!("{ours:?}"), "[2, 65535]");
}

#[test]
fn mistakes_name_their_line_and_no_secret() {
    let long = (1..=9).map(|id| line(&id.to_string(), '1')).collect::<String>();
    for (text, wanted) in [
        ("".into(), "there is no key"),
        ("# 1 2\n".into(), "there is no key"),
        ("1".into(), "line 1: no key"),
        (line("0", 'a'), "line 1: no number of a key"),
        (line("65536", 'a'), "line 1: no number of a key"),
        (format!("\n1 {}", "a".repeat(63)), "line 2: no secret"),
        (format!("1 {}g", "a".repeat(63)), "line 1: no secret"),
        (format!("1 {}é", "a".repeat(62)), "line 1: no secret"),
        (line("1", '0'), "line 1: a secret of zeros, which anybody can guess: give a number"),
        (line("1", 'a') + &line("1", 'b'), "line 2: there is a key 1 already"),
        (long, "line 9: more than 8 keys"),
    ] {
        let error = Keyring::parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text:?}: {error}");
        assert!(!error.contains("aaaa"), "{error}");
    }
    let shown = format!("{:?}", Keyring::parse(&line("12", 'a')).unwrap());
    assert_eq!(shown, "[12]");
}

#[test]
fn what_may_be_a_secret_is_not_shown() {
    let half = "0a".repeat(16);
    for (message, wanted) in [
        ("unknown field `x`, give 10.0.0.0/8 é".into(), "unknown field `x`, give 10.0.0.0/8 é".into()),
        (format!("`7 {half}{half}`: {half}"), "`7 (not shown)`: (not shown)".to_owned()),
        (half[1..].to_owned(), half[1..].to_owned()),
    ] {
        assert_eq!(without_keys(&message), wanted);
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("tidemill-keys-{}", std::process::id()));
    std::fs::write(&path, line("3", 'd')).unwrap();
    let with = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Keyring::read(&path)
    };
    for mode in [0o640, 0o604, 0o610, 0o601, 0o666] {
        assert_eq!(with(mode).unwrap_err(), KeyError::Open { mode });
    }
    for mode in [0o600, 0o400] {
        assert_eq!(with(mode).unwrap().ids().collect::<Vec<_>>(), [3]);
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Keyring::read(&path), Err(KeyError::File(_))));
    assert!(matches!(Keyring::read(&std::env::temp_dir()), Err(KeyError::File(_))));
}

/// Keys behind the cut would be missing without a word.
#[cfg(unix)]
#[test]
fn a_file_that_is_too_long_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("tidemill-long-{}", std::process::id()));
    let with = |len: usize| {
        let text = line("3", 'd');
        std::fs::write(&path, text.clone() + &"#".repeat(len - text.len())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Keyring::read(&path)
    };
    let (longest, longer) = (with(64 << 10), with((64 << 10) + 1));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(longest.unwrap().ids().collect::<Vec<_>>(), [3]);
    let error = longer.unwrap_err().to_string();
    assert!(error.starts_with("longer than 65536 bytes"), "{error}");
}

/// Nobody writes to it: opening it would wait for ever.
#[cfg(unix)]
#[test]
fn a_pipe_is_no_key_file() {
    let path = std::env::temp_dir().join(format!("tidemill-pipe-{}", std::process::id()));
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let read = Keyring::read(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(read, Err(KeyError::File(_))));
}
