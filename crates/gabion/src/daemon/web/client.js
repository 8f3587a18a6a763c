// Client of the API: the token, requests with a deadline, live events.

const TOKEN = "gabion-token";
const DEADLINE = 20; // s
const SILENCE = 40; // s without a heartbeat, which comes every 15 s

// The daemon answered with an error.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// No answer.
export class Unreachable extends Error {}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  clear: () => sessionStorage.removeItem(TOKEN),
};

function open(method, path, body, signal) {
  const headers = {};
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const content = body === undefined ? undefined : JSON.stringify(body);
  const options = { method, headers, body: content, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  return fetch(`/api/v1${path}`, options);
}

async function refusal(answer) {
  const text = await answer.json().then((body) => body.error.message, () => `status ${answer.status}`);
  return new Refused(answer.status, text);
}

// Sends a request and gives the body of its answer.
export async function request(method, path, body, seconds = DEADLINE) {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), seconds * 1000);
  try {
    const answer = await open(method, path, body, abort.signal);
    if (!answer.ok) throw await refusal(answer);
    return await answer.json();
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Unreachable(abort.signal.aborted ? `no answer within ${seconds} s` : "the connection failed");
  } finally {
    clearTimeout(timer);
  }
}

export const get = (path, seconds) => request("GET", path, undefined, seconds);
export const post = (path, body = {}) => request("POST", path, body);

// Reads live events until the stream ends. EventSource cannot send a token, hence by hand.
export async function stream(after, receive) {
  const abort = new AbortController();
  let timer;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), SILENCE * 1000);
  };
  alive();
  try {
    const answer = await open("GET", `/events/stream?after=${after}`, undefined, abort.signal);
    if (!answer.ok) throw await refusal(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const messages = (text + value).split("\n\n");
      text = messages.pop();
      for (const message of messages) {
        const data = message.split("\n").find((line) => line.startsWith("data: "));
        if (data) receive(JSON.parse(data.slice(6)));
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

// A path as a parameter: bytes that are not UTF-8 as they are.
export function pathParameter(file) {
  if (!file.path_bytes) return encodeURIComponent(file.path);
  return Array.from(atob(file.path_bytes), (c) => "%" + c.charCodeAt(0).toString(16).padStart(2, "0")).join("");
}
