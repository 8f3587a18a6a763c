//! E-mails: composed once, sent to a mail server or handed to a command.

use super::super::super::config::notify::{Addresses, MailTls, Smtp};
use super::super::super::secret::Secret;
use super::super::message::Message;
use super::{DeliveryError, foreign};
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{SmtpTransport, Transport};
use std::error::Error;
use std::time::Duration;

/// Headers besides the usual ones: automatic replies are not wanted.
const HEADERS: [(&str, &str); 2] =
    [("Auto-Submitted", "auto-generated"), ("X-Auto-Response-Suppress", "All")];

/// A message as an e-mail. Subjects and addresses with line feeds are encoded or refused by the library, and the texts
/// have none.
pub(super) fn compose(addresses: &Addresses, message: &Message) -> Result<lettre::Message, DeliveryError> {
    let wrong = |error: &dyn Error| DeliveryError::Mail(error.to_string());
    let host: String =
        message.host.chars().filter(|it| it.is_ascii_alphanumeric() || ".-".contains(*it)).collect();
    let mut mail = lettre::Message::builder()
        .from(addresses.from.clone())
        .subject(message.subject.clone())
        .message_id(Some(format!("<{}@{}>", message.id, if host.is_empty() { "localhost" } else { &host })))
        .header(ContentType::TEXT_PLAIN);
    for to in &addresses.to {
        mail = mail.to(to.clone());
    }
    for (name, value) in HEADERS {
        let name = HeaderName::new_from_ascii_str(name);
        mail = mail.raw_header(HeaderValue::new(name, value.to_owned()));
    }
    mail.body(message.text.clone()).map_err(|error| wrong(&error))
}

/// Sends a message by a mail server.
pub(super) fn smtp(
    server: &Smtp,
    addresses: &Addresses,
    message: &Message,
    deadline: Duration,
) -> Result<(), DeliveryError> {
    let mail = compose(addresses, message)?;
    let login =
        server.login.as_ref().map(|(user, password)| password.read().map(|it| (user, it))).transpose()?;
    let mut transport = SmtpTransport::builder_dangerous(&server.host)
        .port(server.port)
        .tls(match server.tls {
            MailTls::None => Tls::None,
            MailTls::Starttls => Tls::Required(parameters(server)?),
            MailTls::Tls => Tls::Wrapper(parameters(server)?),
        })
        // For each answer; the thread of a delivery that takes longer in all is left behind.
        .timeout(Some(deadline));
    if let Some((user, password)) = &login {
        transport = transport.credentials(Credentials::new((*user).clone(), password.reveal().to_owned()));
    }
    let sent = transport.build().send(&mail);
    sent.map(drop).map_err(|error| {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            why = format!("{why}: {inner}");
            cause = inner.source();
        }
        if error.is_timeout() {
            why = format!("no answer within {} s", deadline.as_secs());
        }
        let hidden = |password: &Secret| foreign(&password.redact(&why));
        let why = login.as_ref().map_or_else(|| foreign(&why), |(_, password)| hidden(password));
        DeliveryError::Connection { host: format!("{}:{}", server.host, server.port), why }
    })
}

fn parameters(server: &Smtp) -> Result<TlsParameters, DeliveryError> {
    let wrong = |error: &dyn std::fmt::Display| DeliveryError::Certificates(error.to_string());
    let mut parameters = TlsParameters::builder(server.host.clone());
    if let Some(path) = &server.ca {
        let text = std::fs::read(path).map_err(|error| wrong(&error))?;
        parameters =
            parameters.add_root_certificate(Certificate::from_pem(&text).map_err(|error| wrong(&error))?);
    }
    parameters.build_rustls().map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use super::compose;
    use crate::daemon::config::notify::Addresses;
    use crate::daemon::notifications::message::{self, Change, Item};
    use crate::daemon::notifications::topic::{Condition, Topic};
    use gabion_vault::world::Timestamp;

    /// The text of a message comes from names of files and from other programs: no line of it becomes a header.
    #[test]
    fn nothing_in_a_message_becomes_a_header() {
        let addresses = Addresses {
            from: "Gabion <gabion@example.org>".parse().unwrap(),
            to: vec!["admin@example.org".parse().unwrap()],
        };
        for hostile in [
            "x\r\nBcc: evil@example.org",
            "x\nBcc: evil@example.org\n\nbody",
            "x\rBcc: evil",
            "=?utf-8?q?=0aBcc:x?=",
            "\u{85}Bcc: x",
            "\0",
        ] {
            let mut condition =
                Condition::new(Topic::Lost, hostile, 1, hostile).detailed([hostile]).next(hostile);
            // Even if the texts were not cleaned before.
            condition.summary = hostile.to_owned();
            let item = Item::new(&condition, Change::Began, Timestamp::EPOCH);
            let mut composed =
                message::compose("id".to_owned(), hostile, vec![item], false, 0, Timestamp::EPOCH);
            composed.subject = format!("subject {hostile}");
            let mail = String::from_utf8(compose(&addresses, &composed).unwrap().formatted()).unwrap();
            let (headers, _) = mail.split_once("\r\n\r\n").unwrap();
            let names: Vec<&str> = headers
                .split("\r\n")
                .filter(|line| !line.starts_with([' ', '\t']))
                .map(|line| line.split_once(':').unwrap_or_else(|| panic!("{line:?}")).0)
                .collect();
            assert!(!names.iter().any(|name| name.eq_ignore_ascii_case("bcc")), "{headers}");
            assert!(!headers.replace("\r\n", "").contains(['\r', '\n', '\0']), "{headers:?}");
            assert_eq!(names.iter().filter(|name| name.eq_ignore_ascii_case("subject")).count(), 1);
        }
    }
}
