// The views. Each has a title and `start`, which fills its node and returns what to do with each new status.

import { get, pathParameter, post } from "./client.js";
import { alertText, badge, bytes, confirmation, count, duration, facts, field, fileName, h, number, paint, progress,
  table, time, visible } from "./page.js";
import { decisions, fileStates, findings, verdictOf } from "./verdict.js";

const MINUTE = 60000;
const list = (texts) => h("ul", {}, texts.map((text) => h("li", {}, text)));
const share = (part, all) => (all ? `${((100 * part) / all).toFixed(1)} %` : "0 %");
const select = (label, id, options, value) =>
  h("label", { for: id }, label, h("select", { id },
    options.map((option) => h("option", { value: option, selected: option === value }, option))));

// Shows what a request gives, or why it failed.
async function show(node, ask, build) {
  node.setAttribute("aria-busy", "true");
  try {
    node.replaceChildren(...[build(await ask())].flat(9).filter(Boolean));
  } catch (error) {
    node.replaceChildren(alertText(error.message));
  }
  node.removeAttribute("aria-busy");
}

function matrix(cells) {
  const columns = [...new Set(cells.map((cell) => cell.actual))].sort((a, b) => a - b);
  const rows = [...new Set(cells.map((cell) => cell.configured))].sort((a, b) => a - b);
  const at = (row, column) => cells.find((cell) => cell.configured === row && cell.actual === column);
  const cell = (found) => (found ? `${number(found.files)} (${bytes(found.bytes)})` : "–");
  return table("Redundancy blocks per stripe: wanted (rows) and actual (columns)",
    ["redundancy", ...columns.map((column) => `actual ${column}`)],
    rows.map((row) => [`wanted ${row}`, ...columns.map((column) => cell(at(row, column)))]));
}

function sourceFacts(source) {
  const { live, scrub, scrub_overdue: overdue, job } = source;
  const states = fileStates(source);
  return facts([
    ["Files", states ? Object.entries(states).map(([state, files]) => `${number(files)} ${state}`).join(", ") : "not counted yet"],
    ["Pending", !live ? "unknown"
      : live.pending === 0 ? "none" : `${count(live.pending, "change")}, the oldest for ${duration(live.lag_seconds)}`],
    ["Last scrub", scrub ? time(scrub.last ?? source.last.scrub?.ended) : source.last.scrub ? time(source.last.scrub.ended) : "never"],
    ["Next scrub", scrub?.next ? time(scrub.next) : "not scheduled"],
    ["Overdue", overdue?.files
      ? [count(overdue.files, "file"), overdue.oldest ? [", the oldest verified ", time(overdue.oldest.verified)] : null]
      : "none"],
    ["Work", job ? [`${job.work} `, progress(job)] : source.waiting > 0 ? `${count(source.waiting, "job")} waiting` : "none"],
    live?.failures > 0 ? ["Failures", `${count(live.failures, "attempt")} to protect a file failed since the start`] : null,
  ].filter(Boolean));
}

function sourceCard(source) {
  const head = h("div", { id: `card-${source.name}` });
  const capacity = h("div");
  const redundancy = h("div");
  let next = 0;
  const node = h("article", { "aria-label": `source ${source.name}` }, head, capacity, redundancy);
  const refresh = () => {
    const path = `/sources/${encodeURIComponent(source.name)}`;
    get(`${path}/targets`).then(({ targets }) => paint(capacity, targets, () => h("dl", {}, facts([
      ["Capacity", targets.length > 3
        ? [`${count(targets.length, "target")}, ${bytes(targets.reduce((sum, it) => sum + (it.free_bytes ?? 0), 0))} free `,
          h("a", { href: "#/targets" }, "details")]
        : targets.map((it) => h("div", {}, `${visible(it.name)}: ${bytes(it.free_bytes)} free of ${bytes(it.total_bytes)}`))],
    ]))), () => capacity.replaceChildren());
    get(`${path}/redundancy`).then((answer) => paint(redundancy, answer.matrix,
      (cells) => (cells.length ? matrix(cells) : null)), () => redundancy.replaceChildren());
  };
  const update = (now) => {
    paint(head, { ...now, since: null, live: { ...now.live, events: 0, lag_seconds: Math.round(now.live?.lag_seconds ?? 0) } }, () => [
      h("h2", {}, h("a", { href: `#/source/${encodeURIComponent(now.name)}`, id: `link-${now.name}` }, now.name), " ", badge(verdictOf(now))),
      h("p", { class: "quiet" }, `${now.kind} of `, fileName(now), now.at ? [" at ", fileName(now.at)] : null),
      findings(now).length ? list(findings(now).map((it) => visible(it.text))) : null,
      h("dl", {}, sourceFacts(now)),
    ]);
    // These count files: not with each status.
    if (Date.now() >= next) {
      next = Date.now() + MINUTE;
      refresh();
    }
  };
  return { node, update, files: () => { next = 0; } };
}

const overview = {
  title: "Overview",
  start(node) {
    const cards = new Map();
    let known = "";
    return (status) => {
      const names = status.sources.map((source) => source.name);
      for (const source of status.sources) {
        if (!cards.has(source.name)) cards.set(source.name, sourceCard(source));
        const total = JSON.stringify([source.state, source.files]);
        const card = cards.get(source.name);
        if (card.total !== total) card.files();
        card.total = total;
        card.update(source);
      }
      if (known !== names.join("\n") || node.childElementCount === 0) {
        known = names.join("\n");
        node.replaceChildren(...(names.length ? names.map((name) => cards.get(name).node)
          : [h("p", {}, "The configuration names no source. Add one to the configuration and reload the daemon.")]));
      }
    };
  },
};

const fileRow = (source) => (file) => [
  fileName(file), file.state, bytes(file.size), file.code, `${file.actual_redundancy} of ${file.configured_redundancy}`,
  time(file.protected_at), time(file.scrubbed_at),
  [file.problems?.length ? list(file.problems.map((it) => `${it.piece}: bytes ${number(it.start)}–${number(it.end)}`)) : null,
    h("a", { href: `#/policy/${source}?path=${pathParameter(file)}` }, "policy")],
];

const source = {
  title: "Source",
  start(node, name, query) {
    const path = `/sources/${encodeURIComponent(name)}`;
    const states = ["problems", "all", "protected", "degraded", "damaged", "lost"];
    const head = h("div");
    const result = h("div", { id: "files", "aria-live": "polite" });
    const form = h("form", { class: "row", role: "search", submit: (event) => {
      event.preventDefault();
      list();
    } },
    select("State", "state", states, query.get("state") ?? "problems"),
    field("Directory or file", "prefix", { value: query.get("prefix") ?? "" }),
    h("button", { id: "show" }, "Show"));
    let rows = [];
    const list = (cursor) => {
      const state = form.querySelector("#state").value;
      const prefix = encodeURIComponent(form.querySelector("#prefix").value);
      const route = state === "problems" ? "problems?" : state === "all" ? "files?" : `files?state=${state}&`;
      const page = () => get(`${path}/${route}prefix=${prefix}&limit=100${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
      show(result, page, ({ files, next_cursor: next }) => {
        rows = [...(cursor ? rows : []), ...files.map(fileRow(name))];
        if (rows.length === 0) return h("p", {}, state === "problems" ? "No file has problems." : "No such file.");
        const heads = ["File", "State", "Size", "Code", "Redundancy", "Protected", "Scrubbed", "Details"];
        return [table(`${count(rows.length, "file")}${next ? ", there are more" : ""}`, heads, rows),
          next ? h("button", { type: "button", id: "more", click: () => list(next) }, "Next page") : null];
      });
    };
    node.append(head, h("h2", {}, "Files"), form, result);
    list();
    return (status) => {
      const now = status.sources.find((it) => it.name === name);
      paint(head, now && { ...now, since: null, live: { ...now.live, events: 0 } }, () => (now
        ? [h("p", {}, badge(verdictOf(now)), ` ${now.kind} of `, fileName(now)),
          h("ul", {}, findings(now).map((it) => h("li", {}, visible(it.text)))),
          now.files?.damaged > 0 ? h("p", {}, "Repair them with ", h("code", {}, `gabion repair ${visible(now.path)}`), ".") : null,
          h("dl", {}, sourceFacts(now))]
        : alertText(`There is no source ${name}.`)));
    };
  },
};

function whatIf(answer) {
  const amount = (name, it) => [name, number(it.files), bytes(it.bytes)];
  const { lost } = answer;
  const safe = lost.files === 0 && !answer.namespace_lost && answer.unknown === 0;
  const line = safe ? "Nothing would be lost." : lost.files ? `${count(lost.files, "file")} would be lost.`
    : answer.namespace_lost ? "The names of the files would be lost." : `The state of ${count(answer.unknown, "file")} is unknown.`;
  return [
    h("p", { class: safe ? "" : "alert" }, h("strong", {}, line),
      answer.namespace_lost ? " No target would have the current namespace of the pool." : null),
    table(`If ${answer.lose.map(visible).join(", ")} fail`, ["Files that", "files", "bytes"], [
      amount("are not affected", answer.unaffected), amount("keep data, lose redundancy", answer.exposed),
      amount("can be reconstructed", answer.degraded), amount("are lost", lost)]),
    answer.unknown ? h("p", {}, `${count(answer.unknown, "file")} could not be examined.`) : null,
    answer.lost_files.length ? [h("h3", {}, "The first of the lost files"), list(answer.lost_files.map(fileName))] : null,
  ];
}

function targetTable(name, targets, pool) {
  const result = h("div", { class: "result", "aria-live": "polite" });
  const box = (target) => h("label", { class: "check" },
    h("input", { type: "checkbox", name: "lose", value: target.name, id: `lose-${name}-${target.name}` }), " ", visible(target.name));
  const decided = (target) => pool?.targets?.find((it) => it.name === target.name)?.state;
  const rows = targets.map((it) => [box(it), it.domain, [it.state, decided(it) && decided(it) !== "present" ? ` (${decided(it)})` : null],
    bytes(it.free_bytes), bytes(it.total_bytes), it.total_bytes ? share(it.total_bytes - it.free_bytes, it.total_bytes) : "unknown"]);
  const form = h("form", { submit: (event) => {
    event.preventDefault();
    const chosen = [...form.querySelectorAll("input:checked")].map((it) => `lose=${encodeURIComponent(it.value)}`);
    if (chosen.length === 0) return result.replaceChildren(alertText("Select at least one target."));
    result.replaceChildren(h("p", {}, "Reading the headers of all files …"));
    return show(result, () => get(`/sources/${encodeURIComponent(name)}/whatif?${chosen.join("&")}`, 600), whatIf);
  } },
  table(`Targets of ${name}`, ["Target", "Domain", "State", "Free", "Total", "Used"], rows),
  h("p", {}, h("button", { id: `whatif-${name}` }, "What if the selected ones fail?")));
  return [form, result];
}

const targets = {
  title: "Targets",
  start(node) {
    const known = new Map();
    return (status) => {
      for (const { name, pool } of status.sources) {
        const state = JSON.stringify(pool?.targets ?? null);
        if (known.get(name)?.state === state) continue;
        const part = known.get(name)?.part ?? h("div");
        if (!known.has(name)) node.append(h("section", { "aria-label": name }, h("h2", {}, name), part));
        known.set(name, { state, part });
        show(part, () => get(`/sources/${encodeURIComponent(name)}/targets`), (answer) => targetTable(name, answer.targets, answer.pool));
      }
    };
  },
};

const activity = {
  title: "Activity",
  start(node, _name, _query, events) {
    const [jobs, history] = [h("div"), h("div", { role: "log", "aria-label": "events" })];
    node.append(h("h2", {}, "Jobs"), jobs, h("h2", {}, "Events"), history);
    const outcome = (job) => (job.progress ? progress(job.progress) : job.error ? visible(job.error) : job.outcome ?? "");
    const row = (job) => [job.work, job.source, job.state, job.scheduled ? "schedule" : "request", time(job.requested), outcome(job)];
    return () => {
      get("/jobs").then((answer) => paint(jobs, answer.jobs, (all) => (all.length
        ? table("Newest first", ["Job", "Source", "State", "Started by", "Since", "Progress or outcome"], all.reverse().map(row))
        : h("p", {}, "No job ran since the daemon was started."))), () => null);
      paint(history, [events.list.length, events.list[0]?.sequence, events.live], () => [
        h("p", { class: "quiet" }, events.live ? "Live: new events appear here." : "Not live: connecting …"),
        events.list.length ? table("Newest first", ["Event", "Time", "Source", "Severity", "Message"], events.list.map((it) =>
          [it.kind.replaceAll("_", " "), time(it.time), it.source ?? "daemon",
            h("span", { class: `severity ${it.severity}` }, it.severity), h("bdi", {}, visible(it.message))]))
          : h("p", {}, "No event yet.")]);
    };
  },
};

function heldPart(held, result) {
  const title = `${held.source}: ${count(held.removed, "file")} removed, ${count(held.changed, "file")} changed`;
  const approve = () => confirmation(`Approve the changes of ${held.source}?`,
    [`The redundancy of ${count(held.removed, "removed file")} will be deleted, and ${count(held.changed, "changed file")} will be protected as they are now. This cannot be undone.`,
      ["Change-set ", h("code", {}, held.digest)]],
    "Approve", async () => {
      await post(`/sources/${encodeURIComponent(held.source)}/approve`, { digest: held.digest });
      return `Change-set ${held.digest} of ${held.source} is approved.`;
    }, result);
  return h("article", {}, h("h2", {}, title),
    h("p", {}, `Of ${count(held.known, "protected file")}, so many vanished or changed at once that nothing was done. Their redundancy is kept.`),
    held.before.removed + held.before.changed > 0
      ? h("p", {}, `Shortly before: ${number(held.before.removed)} removed, ${number(held.before.changed)} changed.`) : null,
    h("p", {}, "If this was intended, approve it. If not, stop what caused it and restore the files; see them with ",
      h("code", {}, `gabion status ${visible(held.path)}`), "."),
    h("p", {}, "Change-set ", h("code", {}, held.digest)),
    h("button", { type: "button", class: "strong", id: `approve-${held.source}`, click: approve }, "Approve these changes …"));
}

function askPart(ask, result) {
  const names = ask.gone.join(", ");
  const confirm = () => confirmation(`Give up ${names}?`,
    [`What ${names} held is rebuilt on the other targets of ${ask.source}. Files that need more of them than redundancy replaces stay lost until they return.`,
      ["Question ", h("code", {}, ask.agreement)]],
    "Give up and rebuild", async () => {
      const { job } = await post(`/sources/${encodeURIComponent(ask.source)}/rebuild`, { agree: ask.agreement });
      return `Job ${job.id} rebuilds ${ask.source}.`;
    }, result);
  return h("article", {}, h("h2", {}, `${ask.source}: are ${names} lost?`), h("p", {}, visible(ask.why)),
    h("p", {}, "If they can be brought back, do that instead. ", h("a", { href: "#/targets" }, "What would be lost?")),
    h("p", {}, "Question ", h("code", {}, ask.agreement)),
    h("button", { type: "button", class: "strong", id: `agree-${ask.source}`, click: confirm }, "Confirm the loss …"));
}

const decisionsView = {
  title: "Decisions",
  start(node) {
    const [open, result] = [h("div"), h("div", { id: "decided", "aria-live": "polite" })];
    node.append(result, open);
    return (status) => paint(open, status.sources.flatMap(decisions), (all) => (all.length
      ? all.map((it) => (it.kind === "held" ? heldPart(it, result) : askPart(it, result)))
      : h("p", {}, "Nothing needs a decision.")));
  },
};

function policyAnswer(answer) {
  const of = answer.treatment;
  return [
    h("p", {}, fileName(answer), of ? " is protected by the rule " : " is not protected, by the rule ", h("strong", {}, visible(answer.rule)), "."),
    answer.because.length ? list(answer.because.map((text) => visible(text))) : null,
    of ? h("dl", {}, facts([["Code", of.code], ["Block", bytes(of.block)], ["Quiet period", duration(of.quiet_seconds)],
      ["Scrub", of.scrub_seconds > 0 ? `every ${duration(of.scrub_seconds)}` : "never"], ["Priority", String(of.priority)],
      ["Write-once", of.write_once ? "yes" : "no"], ["Strong", of.strong ? "yes" : "no"],
      ["Duplicates share redundancy", of.share_duplicates ? "yes" : "no"]])) : null,
    answer.passed_over.length ? table("Rules that do not apply", ["Rule", "Reason"],
      answer.passed_over.map((it) => [visible(it.rule), visible(it.why)])) : null,
  ];
}

// A form whose answer is shown below it.
function question(node, fields, label, ask, build) {
  const result = h("div", { class: "result", "aria-live": "polite" });
  const go = (event) => {
    event?.preventDefault();
    return show(result, () => ask(form), build);
  };
  const form = h("form", { class: "row", submit: go }, fields, h("button", { id: "ask" }, label));
  node.append(form, result);
  return go;
}

const policy = {
  title: "Policy",
  start(node, name, query, _events, status) {
    // As it is written in the address: its bytes need not be UTF-8.
    const given = /[?&]path=([^&]*)/.exec(location.hash)?.[1];
    const names = status.sources.map((it) => it.name);
    const input = field("File in the source", "path", { value: query.get("path") ?? "", required: true });
    const changed = () => input.querySelector("input").value !== (query.get("path") ?? "");
    const ask = (form) => {
      const path = given && !changed() ? given : encodeURIComponent(form.querySelector("#path").value);
      return get(`/sources/${encodeURIComponent(form.querySelector("#source").value)}/policy?path=${path}`);
    };
    const go = question(node, [select("Source", "source", names, name), input], "Explain", ask, policyAnswer);
    if (given) go();
    return () => null;
  },
};

const forecast = {
  title: "Forecast",
  start(node) {
    const fields = [["Code", "code", "8+2"], ["Disks", "disks", ""], ["Size of a disk", "capacity", "4TB"],
      ["Annual failure rate", "afr", "2%"], ["Rebuild time", "rebuild", "12h"]];
    const ask = (form) => {
      const given = fields.map(([, id]) => [id, form.querySelector(`#${id}`).value]).filter(([, value]) => value);
      return get(`/forecast?${given.map(([id, value]) => `${id}=${encodeURIComponent(value)}`).join("&")}`, 60);
    };
    const line = ([model, it]) => [model, it.mean_years === null ? "beyond measure" : `${it.mean_years.toPrecision(3)} years`,
      it.loss_per_year.toExponential(2), it.nines.toFixed(1)];
    question(node, fields.map(([label, id, value]) => field(label, id, { value })), "Compute", ask, (answer) =>
      [table(`${answer.code} on ${count(answer.disks, "disk")}`, ["Model", "Mean time to data loss", "Loss per year", "Nines"],
        Object.entries(answer.models).map(line)),
      h("p", { class: "quiet" }, "checked: signatures find read errors that a disk does not report; unchecked: nothing finds them.")]);
    return () => null;
  },
};

export const VIEWS = { "": overview, source, targets, activity, decisions: decisionsView, policy, forecast };
