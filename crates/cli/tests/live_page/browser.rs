//! A headless Chromium, driven by the DevTools protocol over two pipes: JSON messages, each with a zero byte behind it
//! (`--remote-debugging-pipe`: the browser reads from descriptor 3 and writes to 4).

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a test waits for at most; nothing takes that long unless it is broken.
const LONG: Duration = Duration::from_secs(60);

/// What the program is called on Debian and elsewhere.
const NAMES: [&str; 4] = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    number: u64,
    session: Option<String>,
    /// What the page's console has complained of: scripts that failed, what the policy has refused.
    pub(crate) complaints: Vec<String>,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The browser that there is.
pub(crate) fn program() -> Option<&'static str> {
    let paths = std::env::var_os("PATH")?;
    let is_there = |name: &&&str| std::env::split_paths(&paths).any(|folder| folder.join(name).is_file());
    NAMES.iter().find(is_there).copied()
}

impl Browser {
    pub(crate) fn start(program: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null", program]);
        command.args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"]);
        command.args(["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (to, mut read) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (tell, from) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while read.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if tell.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser =
            Browser { child, to, from, number: 0, session: None, complaints: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let session =
            browser.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method and waits for what it returns.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        self.to.flush().unwrap();
        loop {
            let heard = self.from.recv_timeout(LONG).unwrap_or_else(|_| panic!("{method}: no answer"));
            if heard["id"] == self.number {
                assert!(heard["error"].is_null(), "{method}: {heard}");
                return heard["result"].clone();
            }
            self.hear(&heard);
        }
    }

    fn hear(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(parameters["exceptionDetails"].to_string());
            }
            // That nothing answers for a while is what a test may be about.
            Some("Log.entryAdded")
                if parameters["entry"]["level"] == "error" && parameters["entry"]["source"] != "network" =>
            {
                self.complaints.push(parameters["entry"].to_string());
            }
            _ => {}
        }
    }

    /// What an expression comes to in the page.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let began = Instant::now();
        while self.eval(&format!("Boolean({expression})")) != true {
            assert!(began.elapsed() < LONG, "never: {expression}: {}", self.eval("document.body.innerText"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({"url": address}));
        self.until("document.readyState === 'complete'");
    }

    /// Presses a key by its name: `Tab`, `Enter`, `ArrowRight`.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            "End" => (35, None),
            "Home" => (36, None),
            "ArrowLeft" => (37, None),
            "ArrowRight" => (39, None),
            other => panic!("{other}: which key?"),
        };
        let mut event = json!({"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code});
        if let Some(text) = text {
            event["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", event);
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Makes the window so large, and what it shows light or dark.
    pub(crate) fn window(&mut self, width: u32, height: u32, scheme: &str) {
        let mobile = width < 600;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Takes a picture of the whole page, and returns it as PNG in base 64; into a folder, if there is one.
    pub(crate) fn picture(&mut self, name: &str) -> String {
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let whole = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let taken = self.call("Page.captureScreenshot", whole);
        let picture = taken["data"].as_str().unwrap().to_owned();
        if let Some(folder) = std::env::var_os("TIDEMILL_PICTURES") {
            std::fs::write(Path::new(&folder).join(format!("{name}.png")), base64(&picture)).unwrap();
        }
        picture
    }
}

/// The bytes of a text in base 64.
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte));
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        bits = bits << 6 | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
