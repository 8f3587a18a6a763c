// Building blocks of the page. All text becomes text nodes: nothing that the daemon sends is parsed as HTML.

export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Rebuilds a part of the page if its data changed. The focus stays on the element with the same id.
const painted = new WeakMap();
export function paint(node, data, build) {
  const text = JSON.stringify(data);
  if (painted.get(node) === text) return;
  painted.set(node, text);
  const focus = node.contains(document.activeElement) ? document.activeElement.id : "";
  node.replaceChildren(...[build(data)].flat(9).filter(Boolean));
  if (focus) document.getElementById(focus)?.focus();
}

export const number = (value) => Number(value).toLocaleString("en-US");
export const count = (value, word) => `${number(value)} ${word}${value === 1 ? "" : "s"}`;

export function bytes(value) {
  if (value === null || value === undefined) return "unknown";
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  if (value < 1024) return `${value} B`;
  let unit = -1;
  do {
    value /= 1024;
    unit += 1;
  } while (value >= 1024 && unit + 1 < units.length);
  return `${value.toFixed(2)} ${units[unit]}`;
}

export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${number(Math.round(s / 86400))} d`;
}

function relative(date) {
  const seconds = (Date.now() - date) / 1000;
  return seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

// A point in time, shown by its distance.
export function time(text) {
  if (!text) return "never";
  const date = new Date(text);
  return h("time", { datetime: text, title: date.toLocaleString(), "data-relative": true }, relative(date));
}

export function tick() {
  for (const node of document.querySelectorAll("time[data-relative]")) {
    const text = relative(new Date(node.dateTime));
    if (node.textContent !== text) node.textContent = text;
  }
}

// Control and bidirectional characters of names are shown by their number: they could make a name look like another.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\ufff9-\ufffb]/gu;
export function visible(text) {
  return String(text).replace(HIDDEN, (c) => `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

export function fileName(file) {
  return h("bdi", { class: "path" }, visible(file.path), file.path_bytes ? " (not UTF-8)" : null);
}

// A table that has a line per row on a phone; the roles keep it a table for screen readers there.
export function table(caption, heads, rows) {
  const cell = (text, at) =>
    at === 0
      ? h("th", { scope: "row", role: "rowheader" }, text)
      : h("td", { role: "cell", "data-label": heads[at] }, text);
  return h("table", { role: "table" },
    h("caption", {}, caption),
    h("thead", { role: "rowgroup" },
      h("tr", { role: "row" }, heads.map((head) => h("th", { scope: "col", role: "columnheader" }, head)))),
    h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, row.map(cell)))));
}

export const facts = (pairs) => pairs.map(([name, ...value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
export const alertText = (text) => h("p", { class: "alert", role: "alert" }, visible(text));
export const badge = ({ level, word, sign }) => h("span", { class: `badge ${level}` }, `${sign} ${word}`);

export function field(label, id, attributes = {}) {
  return h("label", { for: id }, label, h("input", { id, autocomplete: "off", spellcheck: "false", ...attributes }));
}

// Progress of a job: its step, a bar, the rest of the time.
export function progress(job) {
  const [done, total] = job.total_bytes ? [job.bytes, job.total_bytes] : [job.files, job.total_files];
  const share = total ? Math.min(100, Math.floor((100 * done) / total)) : null;
  const left = job.eta_seconds === null || job.eta_seconds === undefined ? null : `, about ${duration(job.eta_seconds)} left`;
  const wait = job.waiting_for ? `waits for ${visible(job.waiting_for)}` : visible(job.step);
  const amount = `${count(job.files, "file")}, ${bytes(job.bytes)}`;
  return [
    share === null ? null : h("progress", { max: 100, value: share, "aria-label": `progress of ${job.work}` }),
    ` ${share === null ? amount : `${share} %`}${left ?? ""}: ${wait}`,
  ];
}

// Asks before something is changed. The answer of the action, or its error, is shown in `result`.
export function confirmation(title, paragraphs, label, action, result) {
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  const go = async () => {
    close();
    result.replaceChildren(h("p", { role: "status" }, "Sent …"));
    try {
      result.replaceChildren(h("p", { role: "status" }, await action()));
    } catch (error) {
      result.replaceChildren(alertText(`Not done: ${error.message}`));
    }
  };
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", cancel: () => setTimeout(() => dialog.remove()) },
    h("h2", { id: "dialog-title" }, title),
    paragraphs.map((text) => h("p", {}, text)),
    h("p", { class: "row" },
      h("button", { type: "button", id: "dialog-cancel", autofocus: true, click: close }, "Cancel"),
      h("button", { type: "button", id: "dialog-go", class: "strong", click: go }, label)));
  document.body.append(dialog);
  dialog.showModal();
}
