//! Live events as server-sent events: what came after `Last-Event-ID` first, then each event when it is published.

use crate::daemon::events::{Event, EventKind, Events};
use crate::report;
use hyper::body::{Body, Bytes, Frame};
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::timeout;

/// Events that are read at once.
const PAGE: usize = 100;

/// Interval of comments that keep a quiet connection open, and show that it is.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The body of a stream. Dropping it ends the task that feeds it.
pub(super) struct EventStream {
    receiver: mpsc::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
}

/// Which events are wanted.
pub(super) struct Wanted {
    pub(super) after: u64,
    pub(super) source: Option<String>,
    pub(super) kinds: Vec<EventKind>,
}

impl Wanted {
    fn fits(&self, event: &Event) -> bool {
        (self.source.is_none() || self.source == event.source)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }
}

impl EventStream {
    /// Starts a task on this runtime that feeds it. `published` changes with each event.
    pub(super) fn start(
        events: Arc<Events>,
        wanted: Wanted,
        mut published: watch::Receiver<u64>,
        permit: OwnedSemaphorePermit,
    ) -> EventStream {
        // One message is under way while the next one is read: a slow reader keeps no more in memory.
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut cursor = wanted.after;
            // At once, so that a client knows that the stream is open.
            let mut text = "retry: 2000\n\n".to_owned();
            loop {
                if !text.is_empty() && sender.send(Bytes::from(std::mem::take(&mut text))).await.is_err() {
                    return;
                }
                published.borrow_and_update();
                let Some(found) = next(&events, cursor).await else { return };
                if let Some(last) = found.last() {
                    cursor = last.sequence;
                    found.iter().filter(|event| wanted.fits(event)).for_each(|event| text += &message(event));
                    continue;
                }
                if events.is_closed() {
                    return;
                }
                match timeout(HEARTBEAT, published.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => text = ": alive\n\n".to_owned(),
                }
            }
        });
        EventStream { receiver, _permit: permit }
    }
}

/// The next events; files are read in a thread of their own.
async fn next(events: &Arc<Events>, cursor: u64) -> Option<Vec<Arc<Event>>> {
    if let Some(recent) = events.recent_after(cursor, PAGE) {
        return Some(recent);
    }
    let events = Arc::clone(events);
    tokio::task::spawn_blocking(move || events.after(cursor, PAGE)).await.ok()
}

/// An event in the form of the stream.
fn message(event: &Event) -> String {
    let mut text = String::new();
    // JSON has no line feed in it. Writing to a string cannot fail.
    let _ = write!(
        text,
        "id: {}\nevent: {}\ndata: {}\n\n",
        event.sequence,
        event.kind.word(),
        report::line(event)
    );
    text
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
