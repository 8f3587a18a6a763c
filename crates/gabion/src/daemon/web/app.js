// The page: which view is shown, the status that all share, and what happens when the daemon does not answer.

import { Refused, Unreachable, get, stream, token } from "./client.js";
import { alertText, badge, facts, field, h, paint, tick, visible } from "./page.js";
import { assess } from "./verdict.js";
import { VIEWS } from "./views.js";

const INTERVAL = 5000; // ms between requests of the status
const MAX_EVENTS = 200;

const by = (id) => document.getElementById(id);
const events = { list: [], live: false };
let [status, lastAnswer, update, timer, asking, again] = [null, null, null, 0, false, false];

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, name] = path.split("/");
  let decoded = "";
  try {
    decoded = decodeURIComponent(name ?? "");
  } catch {
    // No source has such a name.
  }
  return { key: Object.hasOwn(VIEWS, view) ? view : "", name: decoded, query: new URLSearchParams(query ?? "") };
}

function navigation() {
  const { key } = route();
  const decisions = status ? assess(status).decisions : 0;
  const shown = Object.entries(VIEWS).filter(([view]) => view !== "source");
  paint(by("views"), [key, decisions, Boolean(token.get())], () => [
    ...shown.map(([view, { title }]) => h("a", { href: `#/${view}`, id: `nav-${view}`, "aria-current": view === key ? "page" : null },
      title, view === "decisions" && decisions > 0 ? ` (${decisions})` : null)),
    token.get() ? h("button", { type: "button", id: "forget", click: logOut }, "Forget the token") : null,
  ]);
}

// Shows the view of the address from the beginning.
function open(focus) {
  if (!status) return;
  const { key, name, query } = route();
  const main = by("content");
  const body = h("div");
  main.replaceChildren(h("h1", { tabindex: "-1" }, name && key === "source" ? `Source ${visible(name)}` : VIEWS[key].title), body);
  update = VIEWS[key].start(body, name, query, events, status);
  update(status);
  navigation();
  if (focus) main.querySelector("h1").focus();
}

function headline(verdict, sentence, pairs) {
  document.body.dataset.level = verdict.level;
  document.title = `${verdict.word} – Gabion`;
  paint(by("verdict"), [verdict, sentence], () => [badge(verdict), " ", visible(sentence)]);
  paint(by("facts"), pairs, () => facts(pairs.map(([name, text, link]) =>
    [name, link ? h("a", { href: link, id: "to-decisions" }, text) : visible(text)])));
}

function showStatus() {
  const it = assess(status);
  headline({ level: it.level, word: it.word, sign: it.sign }, it.sentence, [
    ["Exposed", it.exposed], ["In progress", it.working],
    it.decisions > 0 ? ["Decisions", `${it.decisions} needed`, "#/decisions"] : ["Decisions", "none needed"]]);
  navigation();
  by("footer").textContent = `${status.host}, process ${status.process}, ${status.program}`;
}

const UNKNOWN = { level: "unknown", word: "Unknown", sign: "?" };

function logIn(text) {
  status = update = null;
  document.body.classList.remove("gone");
  headline(UNKNOWN, "A token is needed to see the state.", []);
  paint(by("views"), "none", () => []);
  by("footer").textContent = "";
  if (by("token")) {
    by("refused").replaceChildren(alertText(text));
    return;
  }
  const form = h("form", { class: "row", submit: (event) => {
    event.preventDefault();
    token.set(by("token").value.trim());
    refresh();
  } }, field("Token", "token", { type: "password", required: true }), h("button", { id: "login" }, "Use this token"));
  by("content").replaceChildren(h("h1", {}, "Token"), h("p", {}, "It is a line of one of the files that ", h("code", {}, "[api]"), " of the daemon's configuration names. This window keeps it until it is closed."),
    form, h("div", { id: "refused" }, token.get() ? alertText(text) : null));
  by("token").focus();
}

function logOut() {
  token.clear();
  location.reload();
}

function failed(error) {
  if (error.status === 401) {
    const known = token.get();
    logIn(error.message);
    if (known) token.clear();
    return;
  }
  const since = lastAnswer ? `The last answer came at ${lastAnswer.toLocaleTimeString()}.` : "It has not answered since this page was opened.";
  document.body.classList.add("gone");
  by("content").setAttribute("aria-label", lastAnswer ? `old state, of ${lastAnswer.toLocaleTimeString()}` : "old state");
  const retry = "Trying again every 5 s.";
  if (error instanceof Unreachable) {
    headline({ ...UNKNOWN, word: "No answer" }, `The daemon does not answer (${error.message}). ${since} ${retry}`, []);
  } else if (error instanceof Refused) {
    headline(UNKNOWN, `The daemon refuses: ${error.message}. ${retry}`, []);
  } else {
    headline(UNKNOWN, `This page failed: ${error.message}. ${retry}`, []);
    console.error(error);
  }
}

async function refresh() {
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  clearTimeout(timer);
  try {
    const answer = await get("/status", 10);
    const first = !status;
    [status, lastAnswer] = [answer, new Date()];
    document.body.classList.remove("gone");
    by("content").removeAttribute("aria-label");
    showStatus();
    if (first) {
      open(false);
      follow();
    } else {
      update?.(status);
    }
  } catch (error) {
    failed(error);
  } finally {
    asking = false;
    const works = status?.sources.some((source) => source.job);
    timer = setTimeout(refresh, again ? 250 : works ? INTERVAL / 2 : INTERVAL);
    again = false;
  }
}

// The last events. Numbers of events are about microseconds: a short time first, then longer ones.
async function history() {
  for (const hours of [1, 24, 24 * 30, 24 * 3650]) {
    let after = Math.max(0, status.last_sequence - hours * 3.6e9);
    let found = [];
    for (let page = 0; page < 10; page += 1) {
      const answer = await get(`/events?after=${after}&limit=1000`);
      found = [...found, ...answer.events].slice(-MAX_EVENTS);
      after = answer.last_sequence;
      if (answer.events.length < 1000) break;
    }
    events.list = found.reverse();
    if (events.list.length >= 50) break;
  }
  return events.list[0]?.sequence ?? status.last_sequence;
}

let following = false;
async function follow() {
  if (following) return;
  following = true;
  let after = null;
  const receive = (event) => {
    after = event.sequence;
    events.list = [event, ...events.list].slice(0, MAX_EVENTS);
    refresh();
  };
  for (;;) {
    try {
      if (status) {
        after ??= await history();
        events.live = true;
        update?.(status);
        await stream(after, receive);
      }
    } catch {
      // The status says what is wrong.
    }
    events.live = false;
    await new Promise((done) => setTimeout(done, 2000));
  }
}

addEventListener("hashchange", () => open(true));
// A hidden page is rarely woken: what it shows may be old.
document.addEventListener("visibilitychange", () => document.hidden || refresh());
by("skip").addEventListener("click", (event) => {
  event.preventDefault();
  by("content").focus();
});
setInterval(tick, 5000);
refresh();
