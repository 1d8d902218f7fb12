//! The live page of a run, in a headless Chromium: a token is entered, panels are gone through by keyboard, numbers are those of `show`, a lost
//! connection is said and comes back by itself. All of that for a Gatekeeper, which is a router too; the panels and numbers of every other role.
//!
//! Chromium and its libraries are a large download, so this is no part of a usual test run: `cargo test -p tidemill-cli --features lua --test live_page --
//! --ignored`, or `cargo xtask held 15`. With TIDEMILL_PICTURES=FOLDER the pictures are kept there, to be looked at.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may

mod browser;
#[path = "../tool/mod.rs"]
mod tool;

use browser::Browser;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tool::Folder;

const TOKEN: &str = "a-token-for-the-page-that-looks";

/// A run; it ends with the test, however that ends.
struct Running {
    child: Child,
    address: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes `run.toml` with the API on TCP at `port`, and a token for it.
fn write(folder: &Folder, text: &str, port: u16) {
    let control = format!(
        "[control]\nsocket = \"s.sock\"\nlisten = [\"127.0.0.1:{port}\"]\ntoken_file = \"tokens\"\nalarm_drops_pps = 1\n"
    );
    folder.write("tokens", format!("page read {TOKEN}\n")).write("run.toml", format!("{text}\n{control}"));
    std::fs::set_permissions(folder.path("tokens"), std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A kvcache, whose example is for interfaces, between a generator and nowhere: its own panel and tables are there, whatever passes.
const KVCACHE: &str = "version = 1\nrole = \"kvcache\"\n[[port]]\nname = \"clients\"\nkind = \"generator\"\nrate_pps = 1000\n\
    [[port]]\nname = \"servers\"\nkind = \"null\"\nreceive = false\n\
    [kvcache]\naddresses = [\"10.1.0.2\"]\nallow = [\"10.1.0.0/24\"]\n";

/// A folder with an example: its captures are played again and again at their own pace or a faster one, and the API is on TCP at `port`.
fn configured(example: &str, port: u16) -> Folder {
    let folder = Folder::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
    let home = file.parent().unwrap();
    let written = std::fs::read_to_string(&file).unwrap();
    let has = |key: &str| written.lines().any(|line| line.starts_with(key));
    let pace = if has("pace") { "" } else { "pace = \"time\"\nspeed = 20.0\n" };
    let preload = if has("preload") { "" } else { "preload = true\n" };
    let again = |line: &str| match line.strip_prefix("input = \"").and_then(|rest| rest.strip_suffix('"')) {
        Some(input) => {
            let input = home.join(input).display().to_string();
            format!("input = {input:?}\nrepeat = 0\n{preload}{pace}")
        }
        None => format!("{line}\n"),
    };
    let text: String = written.lines().map(again).collect();
    assert!(text.contains("repeat = 0"), "{text}");
    write(&folder, &text, port);
    // What it names beside its captures: rules, tables.
    for entry in std::fs::read_dir(home).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "rules" || kind == "flows" || kind == "txt") {
            std::fs::copy(&path, folder.path(path.file_name().unwrap().to_str().unwrap())).unwrap();
        }
    }
    folder
}

fn start(folder: &Folder) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(["run", "run.toml"]).current_dir(folder.path(".")).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address =
        said.find_map(|line| Some(line.strip_prefix("tidemill: the API and /metrics are at ")?.to_owned()));
    // Whatever else it says is read and thrown away: a full pipe would hold it up.
    std::thread::spawn(move || said.for_each(drop));
    Running { child, address: address.unwrap() }
}

fn show(folder: &Folder, line: &str) -> Vec<Value> {
    folder.ok(&format!("{line} --json --socket s.sock")).json()
}

/// A number that only grows, as the page shows it: between what `show` says before and after.
fn between(folder: &Folder, browser: &mut Browser, page: &str, service: impl Fn(&Folder) -> u64) {
    let before = service(folder);
    // Two of its rounds later what is shown is not older than `before`.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let shown = browser.eval(page);
    let after = service(folder);
    let digits: String = shown.as_str().unwrap().chars().filter(char::is_ascii_digit).collect();
    let shown: u64 = digits.parse().unwrap_or_else(|_| panic!("{page}: {shown}"));
    assert!((before..=after).contains(&shown) && after > before, "{page}: {before} {shown} {after}");
}

#[test]
#[ignore = "needs chromium: cargo xtask held 15"]
fn the_page_shows_what_runs() {
    let Some(program) = browser::program() else {
        println!("skipped: the_page_shows_what_runs (chromium is not installed)");
        return;
    };
    let folder = configured("gatekeeper/gatekeeper.toml", 0);
    let running = start(&folder);
    let port: u16 = running.address.rsplit_once(':').unwrap().1.parse().unwrap();
    let mut browser = Browser::start(program);
    browser.window(1280, 900, "light");
    browser.open(&format!("http://{}/", running.address));

    // A wrong token is said to be one; then the right one.
    browser.until("document.activeElement.id === 'token'");
    browser.picture("token-1280");
    browser.write("not-a-token-of-this-service");
    browser.press("Enter");
    browser.until("document.getElementById('why').textContent.includes(\"nobody's here\")");
    browser.write(TOKEN);
    browser.press("Enter");
    browser.until(
        "document.querySelector('#state.live') && document.querySelectorAll('#graph .node').length > 4",
    );
    browser.until("document.getElementById('name').textContent === 'tidemill gatekeeper'");
    assert_eq!(browser.eval("sessionStorage.getItem('tidemill-token')"), TOKEN);

    // Numbers are those of the command line.
    browser
        .until("[...document.querySelectorAll('#graph .on-edge')].some((text) => text.textContent !== '')");
    let received = |folder: &Folder| show(folder, "show summary")[0]["in"].as_u64().unwrap();
    between(
        &folder,
        &mut browser,
        "document.querySelector('[data-figure=in]').parentElement.title",
        received,
    );

    // By keyboard to a node of the picture: its ways out have numbers.
    browser.eval("document.querySelector('.skip').focus()");
    let mut presses = 0;
    while browser
        .eval("document.activeElement.getAttribute('aria-label') || ''")
        .as_str()
        .unwrap()
        .split(':')
        .next()
        != Some("node ethernet-input")
    {
        browser.press("Tab");
        presses += 1;
        assert!(presses < 100, "no way to the node by keyboard");
    }
    let outline = "getComputedStyle(document.activeElement.querySelector('rect')).strokeWidth";
    assert_eq!(browser.eval(outline), "4px", "the focus can be seen");
    browser.press("Enter");
    let way = "[...document.querySelectorAll('#about-node tr')].find((row) => row.textContent.includes('to ip4-input'))\
               .children[1].textContent";
    browser.until("document.querySelector('#about-node table')");
    let by_edge = |folder: &Folder| {
        let nodes = show(folder, "show graph");
        let node = nodes.iter().find(|node| node["name"] == "ethernet-input").unwrap();
        let outputs = node["outputs"].as_array().unwrap();
        outputs.iter().find(|output| output["to"] == "ip4-input").unwrap()["packets"].as_u64().unwrap()
    };
    between(&folder, &mut browser, way, by_edge);
    browser.until("document.querySelector('#chart .top') && document.querySelector('#legend b')");
    // No two areas look the same, and each has its line in the legend.
    let fills = |of: &str| {
        format!(
            "[...document.querySelectorAll('{of}')].map((one) => one.getAttribute('fill')).filter((fill) => fill && fill.startsWith('url(#look-'))"
        )
    };
    let looks = format!(
        "(() => {{ const [areas, lines] = [{}, {}]; \
         return areas.length > 1 && areas.length === lines.length && areas.length === new Set(areas).size && lines.every((line) => areas.includes(line)); }})()",
        fills("#chart path"),
        fills("#legend rect")
    );
    browser.until(&looks);
    browser.picture("overview-1280");

    // Through all panels with the arrow keys.
    browser.eval("document.querySelector('[role=tab][aria-selected=true]').focus()");
    let titles: Vec<String> = serde_json::from_value(
        browser.eval("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.textContent)"),
    )
    .unwrap();
    assert_eq!(
        titles,
        ["Overview", "Ports", "Workers", "Tables and caches", "Events", "Router", "Gatekeeper"]
    );
    for (number, title) in titles.iter().enumerate().skip(1) {
        browser.press("ArrowRight");
        assert_eq!(browser.eval("document.activeElement.textContent"), title.as_str());
        let visible =
            "[...document.querySelectorAll('[role=tabpanel]')].map((panel) => !panel.hidden).indexOf(true)";
        assert_eq!(browser.eval(visible), number);
        browser.until("document.querySelector('[role=tabpanel]:not([hidden]) td')");
        browser.picture(&format!("{}-1280", title.to_lowercase().replace(' ', "-")));
    }
    let row = |text: &str, column: usize| {
        format!(
            "[...document.querySelectorAll('[role=tabpanel]:not([hidden]) tr')]\
             .find((row) => row.children[0].textContent === '{text}').children[{column}].textContent"
        )
    };
    let requests =
        |folder: &Folder| show(folder, "gate counters")[0]["counters"]["requests"].as_u64().unwrap();
    between(&folder, &mut browser, &row("requests", 2), requests);
    browser.press("Home");
    (0..4).for_each(|_| browser.press("ArrowRight"));
    browser.until(
        "document.querySelector('[role=tabpanel]:not([hidden])').textContent.includes('a gatekeeper begins')",
    );

    // Dark, and on a phone: nothing sticks out of the window.
    for (width, height, scheme) in [(1280, 900, "dark"), (390, 844, "light"), (390, 844, "dark")] {
        browser.window(width, height, scheme);
        browser.press("Home");
        std::thread::sleep(std::time::Duration::from_millis(1500));
        for title in &titles {
            let fits = browser.eval("document.documentElement.scrollWidth <= innerWidth && innerWidth");
            assert_eq!(fits, width, "{title}");
            browser.picture(&format!("{}-{width}-{scheme}", title.to_lowercase().replace(' ', "-")));
            browser.press("ArrowRight");
        }
    }

    // The service goes away without a word, and comes back at the same place.
    browser.window(1280, 900, "light");
    browser.press("Home");
    drop(running);
    browser.until("!document.getElementById('banner').hidden");
    assert!(browser.eval("document.getElementById('banner').textContent").as_str().unwrap().contains("lost"));
    browser.picture("lost-1280");
    let text = folder.read("run.toml").replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    folder.write("run.toml", text);
    let running = start(&folder);
    browser.until("document.getElementById('banner').hidden && document.querySelector('#state.live')");
    between(
        &folder,
        &mut browser,
        "document.querySelector('[data-figure=in]').parentElement.title",
        received,
    );

    // Another role at the same place has its own name and panels.
    drop(running);
    write(&folder, KVCACHE, port);
    let _running = start(&folder);
    browser.until("document.getElementById('name').textContent === 'tidemill kvcache'");
    let tabs = "[...document.querySelectorAll('[role=tab]')].map((tab) => tab.textContent)";
    browser.until(&format!("{tabs}.includes('Key-value cache') && !{tabs}.includes('Router')"));

    // A token that is taken back is asked for again.
    folder.write("tokens", format!("page read {TOKEN}-another\n"));
    folder.ok("reload --socket s.sock");
    browser.until("document.activeElement.id === 'token' && document.getElementById('main').hidden");
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

/// The other roles, each with its own panels, tables and numbers; the Grantor where the program has its policies' language.
#[test]
#[ignore = "needs chromium: cargo xtask held 15"]
fn every_role_has_its_page() {
    let Some(program) = browser::program() else {
        println!("skipped: every_role_has_its_page (chromium is not installed)");
        return;
    };
    let mut browser = Browser::start(program);
    let roles: [(&str, &[&str]); 7] = [
        ("router", &["Router"]),
        ("switch", &["Switch"]),
        ("mitigator", &["Mitigator"]),
        ("nat", &["Router", "NAT"]),
        ("filter", &["Router", "Filter"]),
        ("kvcache", &["Key-value cache"]),
        ("grantor", &["Router", "Grantor"]),
    ];
    for (role, panels) in roles.into_iter().filter(|(role, _)| *role != "grantor" || cfg!(feature = "lua")) {
        let folder = if role == "kvcache" {
            let folder = Folder::new();
            write(&folder, KVCACHE, 0);
            folder
        } else {
            configured(&format!("{role}/{role}.toml"), 0)
        };
        let running = start(&folder);
        browser.window(1280, 900, "light");
        browser.open(&format!("http://{}/", running.address));
        browser.until("document.activeElement.id === 'token'");
        browser.write(TOKEN);
        browser.press("Enter");
        browser.until(&format!("document.getElementById('name').textContent === 'tidemill {role}'"));
        browser.until("document.querySelector('#state.live')");
        browser.until(
            "[...document.querySelectorAll('#graph .on-edge')].some((text) => text.textContent !== '')",
        );
        let tabs = "[...document.querySelectorAll('[role=tab]')].map((tab) => tab.textContent)";
        browser.until(&format!("{tabs}.length === {}", 5 + panels.len()));
        let titles: Vec<String> = serde_json::from_value(browser.eval(tabs)).unwrap();
        assert_eq!(titles[5..], *panels, "{role}");
        let received = |folder: &Folder| show(folder, "show summary")[0]["in"].as_u64().unwrap();
        between(
            &folder,
            &mut browser,
            "document.querySelector('[data-figure=in]').parentElement.title",
            received,
        );
        // By keyboard through all of it, wide and on a phone: each has something to show, and nothing sticks out.
        for (width, height) in [(1280, 900), (390, 844)] {
            browser.window(width, height, "light");
            browser.eval("document.querySelector('[role=tab][aria-selected=true]').focus()");
            browser.press("Home");
            for title in &titles {
                assert_eq!(browser.eval("document.activeElement.textContent"), title.as_str(), "{role}");
                if title != "Overview" {
                    browser.until("document.querySelector('[role=tabpanel]:not([hidden]) td')");
                }
                let fits = browser.eval("document.documentElement.scrollWidth <= innerWidth && innerWidth");
                assert_eq!(fits, width, "{role}: {title}");
                browser.picture(&format!("{role}-{}-{width}", title.to_lowercase().replace(' ', "-")));
                browser.press("ArrowRight");
            }
        }
        // What is asked of a service that has gone is no fault of the page's.
        assert!(browser.complaints.is_empty(), "{role}: {:?}", browser.complaints);
        browser.open("about:blank");
    }
}
