//! A client of the daemon's API for tests: requests as bytes, answers as they are.

use serde_json::Value;
use std::io::{Read, Write};

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Parses a whole answer.
    pub(crate) fn parse(bytes: &[u8]) -> Answer {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Answer {
            status: status.unwrap_or_else(|| panic!("no HTTP: {head:?}")),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of an error, whose status and form are right.
    pub(crate) fn error(&self) -> String {
        assert!(self.status >= 400, "{self:?}");
        let body = self.json();
        assert!(body["version"] == 1 && body["error"]["message"].is_string(), "{self:?}");
        body["error"]["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        text += "Host: localhost\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    (text + "\r\n" + body).into_bytes()
}

/// Sends bytes and reads until the other side ends.
pub(crate) fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> Vec<u8> {
    // It may hang up before all of it is sent.
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}
