//! Connections of the API: one thread with a current-thread runtime. Requests are carried out in a few threads that may
//! block. Everything is bounded: connections, time for headers, bodies and answers, their lengths, and streams.

use super::access::{Role, check_origin, role_of_peer};
use super::listen::{self, Place};
use super::routes::{self, Found, Reply, Task};
use super::stream::{EventStream, Wanted};
use super::timed::Timed;
use super::{Api, MAX_BODY};
use crate::daemon::message::ErrorAnswer;
use crate::daemon::refusal::{ErrorCode, Refusal};
use crate::daemon::web;
use crate::report;
use gabion_vault::world::Stopwatch;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Most connections at once, of each socket: a full TCP socket does not keep the operator from the Unix socket.
const MAX_CONNECTIONS: usize = 64;

/// Most streams at once; the other connections remain for requests.
const MAX_STREAMS: usize = 24;

/// Threads that carry out requests.
const WORKERS: usize = 8;

/// Most bytes of the head of a request, and most headers.
const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

/// Longest time for a TLS handshake, for the head of a request (also while a connection is idle), and for its body.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// Longest time in which a client takes nothing of its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval at which the end of the daemon, and the end of a job, are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Pause after an error of `accept`, for example too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

/// State of the server, shared by its connections.
struct Server {
    api: Arc<Api>,
    published: watch::Sender<u64>,
    streams: Arc<Semaphore>,
}

/// Serves requests until the daemon ends.
pub(in crate::daemon) fn serve(place: &Place, tcp: Option<TcpListener>, api: Arc<Api>) -> io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(WORKERS).build()?;
    let unix = place.listener.try_clone()?;
    let (published, _) = watch::channel(0_u64);
    let wake = published.clone();
    api.daemon.context.events.on_publish(move || {
        wake.send_modify(|number: &mut u64| *number = number.wrapping_add(1));
    });
    let server = Arc::new(Server { api, published, streams: Arc::new(Semaphore::new(MAX_STREAMS)) });
    runtime.block_on(async move {
        let unix = tokio::net::UnixListener::from_std(unix)?;
        let tcp = tcp.map(tokio::net::TcpListener::from_std).transpose()?;
        tokio::spawn(accept_unix(unix, Arc::clone(&server)));
        if let Some(tcp) = tcp {
            tokio::spawn(accept_tcp(tcp, Arc::clone(&server)));
        }
        while !server.api.daemon.is_over() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        // What is being answered, for example the request to stop, is answered.
        tokio::time::sleep(POLL_INTERVAL).await;
        Ok::<(), io::Error>(())
    })?;
    // A request that still works on a slow disk does not keep the daemon.
    runtime.shutdown_background();
    Ok(())
}

async fn accept_unix(listener: tokio::net::UnixListener, server: Arc<Server>) {
    let open = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else {
            refuse_connection(&stream);
            continue;
        };
        let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(io::Error::from);
        let role = role_of_peer(peer, &server.api.settings().readers);
        tokio::spawn(talk(stream, Caller::Local(role), Arc::clone(&server), permit));
    }
}

async fn accept_tcp(listener: tokio::net::TcpListener, server: Arc<Server>) {
    let open = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Without a word: with TLS it would have to be encrypted.
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else { continue };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            match server.api.settings().tls.clone() {
                None => talk(stream, Caller::Remote, server, permit).await,
                Some(tls) => {
                    let handshake = TlsAcceptor::from(tls).accept(stream);
                    if let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, handshake).await {
                        talk(stream, Caller::Remote, server, permit).await;
                    }
                }
            }
        });
    }
}

/// Tells a client of a full socket why it is refused, if that can be sent at once.
fn refuse_connection(stream: &tokio::net::UnixStream) {
    let body = report::line(&ErrorAnswer::new(&Refusal::new(
        ErrorCode::TooMany,
        format!("more than {MAX_CONNECTIONS} connections are open"),
    )));
    let text = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.try_write(text.as_bytes());
}

/// Where a request comes from.
#[derive(Clone)]
enum Caller {
    /// The Unix socket: the role of its user.
    Local(Result<Role, Refusal>),
    /// TCP: each request has a token.
    Remote,
}

async fn talk<S>(stream: S, caller: Caller, server: Arc<Server>, permit: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let (server, caller) = (Arc::clone(&server), caller.clone());
        async move { Ok::<_, Infallible>(answer(request, &caller, &server).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    // An error means that the client closed the connection, or sent something else than HTTP.
    let _ = http.serve_connection(TokioIo::new(Timed::new(stream, WRITE_TIMEOUT)), service).await;
    drop(permit);
}

async fn answer(request: Request<Incoming>, caller: &Caller, server: &Arc<Server>) -> Response<AnswerBody> {
    let is_head = request.method() == Method::HEAD;
    let mut response = match carry_out(request, caller, server).await {
        Ok(Sent::Reply(reply)) => {
            let mut response = Response::new(full(reply.body));
            *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
            set(&mut response, header::CONTENT_TYPE, reply.content_type);
            response
        }
        Ok(Sent::Stream(stream)) => {
            let mut response = Response::new(stream.boxed_unsync());
            set(&mut response, header::CONTENT_TYPE, "text/event-stream");
            response
        }
        Err(refusal) => {
            let mut response = Response::new(full(report::line(&ErrorAnswer::new(&refusal)).into()));
            *response.status_mut() =
                StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            set(&mut response, header::CONTENT_TYPE, "application/json");
            if refusal.code == ErrorCode::Unauthorized {
                set(&mut response, header::WWW_AUTHENTICATE, "Bearer realm=\"gabion\"");
            }
            response
        }
    };
    if is_head {
        *response.body_mut() = full(Bytes::new());
    }
    for (name, value) in HEADERS {
        set(&mut response, HeaderName::from_static(name), value);
    }
    response
}

/// Headers of all answers. Pages of this server get nothing from elsewhere, and no page may frame them.
const HEADERS: [(&str, &str); 5] = [
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
];

fn set(response: &mut Response<AnswerBody>, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}

fn full(body: Bytes) -> AnswerBody {
    Full::new(body).boxed_unsync()
}

enum Sent {
    Reply(Reply),
    Stream(EventStream),
}

async fn carry_out(
    request: Request<Incoming>,
    caller: &Caller,
    server: &Arc<Server>,
) -> Result<Sent, Refusal> {
    let settings = server.api.settings();
    let (head, body) = request.into_parts();
    if head.uri.authority().is_some() {
        return Err(Refusal::invalid("this is no proxy: a request has a path, and the host in Host"));
    }
    // The page itself, also by a link from elsewhere: it holds no secret. Its requests are checked as all others.
    if let Some(asset) = web::asset(&head.method, head.uri.path()) {
        if let Caller::Local(role) = caller {
            role.clone()?;
        }
        return Ok(Sent::Reply(Reply {
            status: 200,
            content_type: asset.content_type,
            body: Bytes::from_static(asset.body.as_bytes()),
        }));
    }
    check_origin(&head.headers, matches!(caller, Caller::Local(_)), &settings.hosts)?;
    let role = match caller {
        Caller::Local(role) => role.clone()?,
        Caller::Remote => settings.tokens.role(&head.headers)?,
    };
    let found = routes::find(&head.method, head.uri.path())?;
    if role < found.route.role {
        let why = "this user or token may only read: changes need the daemon's user, root, or an admin token";
        return Err(Refusal::new(ErrorCode::Forbidden, why));
    }
    let query = routes::Query::parse(head.uri.query().unwrap_or_default())?;
    let body = read_body(body, &head.headers).await?;
    found.check(&query, &body)?;
    let Found { route, parameters } = found;
    let call = routes::Call { parameters, query, body, headers: head.headers };
    match &route.task {
        Task::Blocking(carry_out) => {
            let (api, carry_out) = (Arc::clone(&server.api), *carry_out);
            let done = tokio::task::spawn_blocking(move || carry_out(&api, &call)).await;
            let failed = |_| Refusal::internal("the request ended unexpectedly; the log has more");
            done.map_err(failed)?.map(Sent::Reply)
        }
        Task::Job => wait_for_job(server, &call).await.map(Sent::Reply),
        Task::Stream => start_stream(server, &call).map(Sent::Stream),
    }
}

async fn read_body(body: Incoming, headers: &HeaderMap) -> Result<Bytes, Refusal> {
    let collected = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await;
    let bytes = match collected {
        Err(_) => return Err(Refusal::new(ErrorCode::Timeout, "the body did not arrive in time")),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("a body has at most {MAX_BODY} bytes");
            return Err(Refusal::new(ErrorCode::BodyTooLarge, why));
        }
        Ok(Err(error)) => return Err(Refusal::invalid(format!("the body cannot be read: {error}"))),
        Ok(Ok(bytes)) => bytes.to_bytes(),
    };
    let kind = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let is_json = |kind: &str| kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json");
    if !bytes.is_empty() && !kind.is_some_and(is_json) {
        return Err(Refusal::invalid("a body is JSON: Content-Type: application/json"));
    }
    Ok(bytes)
}

/// Answers when the job has ended, or after the time that the request names.
async fn wait_for_job(server: &Arc<Server>, call: &routes::Call) -> Result<Reply, Refusal> {
    let (number, patience) = routes::job_to_wait_for(call)?;
    let began = Stopwatch::start();
    loop {
        let job = server.api.daemon.job(number)?;
        let is_over = job.1.ended().is_some();
        if is_over || began.elapsed() >= patience || server.api.daemon.is_over() {
            return Ok(routes::job_reply(&job));
        }
        drop(job);
        tokio::time::sleep(POLL_INTERVAL.min(patience)).await;
    }
}

fn start_stream(server: &Arc<Server>, call: &routes::Call) -> Result<EventStream, Refusal> {
    let events = &server.api.daemon.context.events;
    let wanted: Wanted = routes::wanted_events(call, events)?;
    let too_many = || Refusal::new(ErrorCode::TooMany, format!("{MAX_STREAMS} streams are open already"));
    let permit = Arc::clone(&server.streams).try_acquire_owned().map_err(|_| too_many())?;
    Ok(EventStream::start(Arc::clone(events), wanted, server.published.subscribe(), permit))
}

/// Binds the TCP socket of a configuration, if it names one.
pub(in crate::daemon) fn bind(config: &crate::daemon::config::ApiConfig) -> io::Result<Option<TcpListener>> {
    config.listen.map(listen::bind).transpose()
}
