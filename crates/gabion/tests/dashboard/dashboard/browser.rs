//! A WebDriver client for Chromium: what the tests of the dashboard need of it, over plain HTTP.

use gabion_testkit::{PATIENCE, until, until_some};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Key of an element in answers of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

/// True if there is a browser here; else the test is skipped.
pub(crate) fn can_browse(test: &str) -> bool {
    let has = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    let missing = ["chromium", "chromedriver"].into_iter().find(|program| !has(program));
    if let Some(program) = missing {
        gabion_testkit::skip(test, format!("{program} is not installed"));
    }
    missing.is_none()
}

impl Browser {
    /// Starts it; `width` of the window in pixels.
    pub(crate) fn start(width: u32) -> Browser {
        let (port, profile) = (gabion_testkit::port(), tempfile::tempdir().unwrap());
        let driver = Command::new("chromedriver")
            .args([format!("--port={port}"), "--log-level=OFF".to_owned()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        until("chromedriver listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let size = format!("--window-size={width},900");
        let profile = format!("--user-data-dir={}", browser._profile.path().display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            // Names of other hosts lead nowhere.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            &size,
            &profile,
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        }}});
        let answer = browser.exchange("POST", "/session", &wanted);
        let session = answer["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}"));
        browser.session = format!("/session/{session}");
        browser
    }

    /// Sends a command and gives its value, also that of an error.
    fn exchange(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut bytes = Vec::new();
        loop {
            let mut buffer = [0; 16 << 10];
            let got = stream.read(&mut buffer).unwrap();
            bytes.extend(&buffer[..got]);
            if got == 0 || is_whole(&bytes) {
                break;
            }
        }
        let text = String::from_utf8(bytes).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {text:?}"));
        let mut answer: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"));
        answer["value"].take()
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let value = self.exchange(method, &format!("{}{path}", self.session), body);
        match value["error"].as_str() {
            Some(error) => Err(format!("{path}: {error}: {}", value["message"])),
            None => Ok(value),
        }
    }

    fn done(&self, path: &str, body: &Value) -> Value {
        self.command("POST", path, body).unwrap_or_else(|error| panic!("{error}\n{}", self.text()))
    }

    pub(crate) fn open(&self, address: &str) {
        self.done("/url", &json!({ "url": address }));
    }

    /// The value of a script.
    pub(crate) fn script(&self, text: &str) -> Value {
        self.done("/execute/sync", &json!({ "script": text, "args": [] }))
    }

    /// The text that a person sees.
    pub(crate) fn text(&self) -> String {
        let text = json!({ "script": "return document.body.innerText", "args": [] });
        let value = self.command("POST", "/execute/sync", &text);
        value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Waits until a person sees all of these texts.
    pub(crate) fn sees(&self, texts: &[&str]) {
        let began = gabion_vault::world::Stopwatch::start();
        loop {
            let shown = self.text();
            let missing = texts.iter().find(|text| !shown.contains(**text));
            let Some(missing) = missing else { return };
            assert!(began.elapsed() < PATIENCE, "{missing:?} is not in: {shown}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn element(&self, selector: &str) -> Option<String> {
        let find = json!({ "using": "css selector", "value": selector });
        let found = self.command("POST", "/element", &find).ok()?;
        found[ELEMENT].as_str().map(str::to_owned)
    }

    /// Clicks an element as a person does. It may be replaced by a newer one meanwhile.
    pub(crate) fn click(&self, selector: &str) {
        let mut last = String::new();
        let began = gabion_vault::world::Stopwatch::start();
        while began.elapsed() < PATIENCE {
            let found = self.element(selector);
            let clicked =
                found.map(|element| self.command("POST", &format!("/element/{element}/click"), &json!({})));
            match clicked {
                Some(Ok(_)) => return,
                Some(Err(error)) => last = error,
                None => last = "there is none".to_owned(),
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{selector} cannot be clicked: {last}\n{}", self.text());
    }

    /// Replaces the text of a field.
    pub(crate) fn fill(&self, selector: &str, text: &str) {
        let element = until_some(selector, || self.element(selector));
        self.done(&format!("/element/{element}/clear"), &json!({}));
        self.done(&format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Presses keys where the focus is.
    pub(crate) fn press(&self, keys: &[&str]) {
        let actions: Vec<Value> = keys
            .iter()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })))
            .collect();
        self.done("/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    /// What the browser complained about since the last call: errors of scripts, violations of the content security
    /// policy, and failed requests.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let entries = self.done("/se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().unwrap().iter();
        let bad = entries.filter(|entry| entry["level"] != "INFO" && entry["level"] != "DEBUG");
        bad.map(|entry| entry["message"].as_str().unwrap_or("?").to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            let _ = self.command("DELETE", "", &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// True if an answer has as many bytes as it says.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    length.is_some_and(|length: usize| bytes.len() >= end + 4 + length)
}
