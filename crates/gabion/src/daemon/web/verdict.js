// How a status is to be judged. Whatever is not known to be well is not shown as well.

import { count, duration, number } from "./page.js";

const LEVELS = {
  ok: { level: "ok", rank: 0, word: "Protected", sign: "✓" },
  busy: { level: "busy", rank: 1, word: "Catching up", sign: "↻" },
  unknown: { level: "unknown", rank: 2, word: "Unknown", sign: "?" },
  attention: { level: "attention", rank: 3, word: "Attention", sign: "!" },
  bad: { level: "bad", rank: 4, word: "Danger", sign: "✗" },
};

// Changes that wait for a person.
export function decisions(source) {
  const found = [];
  if (source.live?.held) found.push({ kind: "held", source: source.name, path: source.path, ...source.live.held });
  if (source.pool?.ask) found.push({ kind: "ask", source: source.name, ...source.pool.ask });
  return found;
}

// Files by state. What a survey of a pool found while targets are gone is not in the catalogue.
export function fileStates({ files, pool }) {
  if (!files) return null;
  const worst = (state) => Math.max(files[state], pool?.files?.[state] ?? 0);
  const [degraded, damaged, lost] = [worst("degraded"), files.damaged, worst("lost")];
  return { protected: Math.max(0, files.known - degraded - damaged - lost), degraded, damaged, lost };
}

// The findings of a source, the worst first.
export function findings(source) {
  const found = [];
  const add = (level, text) => found.push({ level, text });
  const { files, live, pool } = source;
  const states = fileStates(source);
  const missing = Math.max(0, (pool?.files?.lost ?? 0) - (files?.lost ?? 0));
  if (files?.lost > 0) add("bad", `${count(files.lost, "file")} lost beyond repair`);
  if (missing > 0) add("bad", `${count(missing, "file")} lost unless targets return`);
  if (source.state === "failed") add("bad", `it does not protect files: ${source.reason ?? "unknown reason"}`);
  else if (source.state === "starting") add("unknown", "it is starting");
  else if (source.state !== "running") add("attention", `it is ${source.state}`);
  if (live?.held) add("attention", `${count(live.held.removed + live.held.changed, "change")} held until you decide`);
  if (pool?.ask) add("attention", `the loss of ${pool.ask.gone.join(", ")} has to be confirmed`);
  const gone = (pool?.targets ?? []).filter((it) => it.state === "gone" || it.state === "given up");
  if (gone.length > 0) add("attention", `${count(gone.length, "target")} gone: ${gone.map((it) => it.name).join(", ")}`);
  else if (pool?.notice) add("attention", `targets gone: ${pool.notice.gone.join(", ")}`);
  if (pool?.rebuild) add("attention", `to be rebuilt: ${pool.rebuild.join(", ")}`);
  if (pool?.verify) add("attention", `to be verified: ${pool.verify.join(", ")}`);
  if (files?.damaged > 0) add("attention", `${count(files.damaged, "file")} damaged, and can be repaired`);
  if (states?.degraded > 0) add("attention", `${count(states.degraded, "file")} degraded`);
  if (pool?.files?.unreadable > 0) add("attention", `${count(pool.files.unreadable, "file")} unreadable`);
  if (source.scrub_overdue?.files > 0) add("attention", `the scrub of ${count(source.scrub_overdue.files, "file")} is overdue`);
  if (source.last?.scrub?.error) add("attention", `the last scrub failed: ${source.last.scrub.error}`);
  if (source.state === "running" && (!files || !live)) add("unknown", "its files are not counted yet");
  if (live?.pending > 0) {
    add("busy", `${count(live.pending, "change")} not protected yet, the oldest for ${duration(live.lag_seconds)}`);
  }
  return found.sort((a, b) => LEVELS[b.level].rank - LEVELS[a.level].rank);
}

export function verdictOf(source) {
  const [worst] = findings(source);
  if (!worst && source.files.known === 0) return { ...LEVELS.unknown, word: "No files", sign: "○" };
  return LEVELS[worst?.level ?? "ok"];
}

// The state of everything: level, one sentence, facts.
export function assess(status) {
  const sources = status.sources;
  const all = sources.flatMap((source) => findings(source).map((it) => ({ ...it, source: source.name })));
  all.sort((a, b) => LEVELS[b.level].rank - LEVELS[a.level].rank);
  const sum = (of) => sources.reduce((total, source) => total + (of(source) ?? 0), 0);
  const pending = sum((source) => source.live?.pending);
  const oldest = Math.max(0, ...sources.map((source) => source.live?.lag_seconds ?? 0));
  const known = sum((source) => source.files?.known);
  const exposed = ["lost", "damaged", "degraded"].map((state) => [sum((source) => fileStates(source)?.[state]), state]);
  exposed.push([sum((source) => (source.live?.held ? source.live.held.removed + source.live.held.changed : 0)), "held"]);
  exposed.push([pending, `pending, the oldest for ${duration(oldest)}`]);
  const parts = exposed.filter(([files]) => files > 0).map(([files, word]) => `${number(files)} ${word}`);
  const jobs = sources.filter((source) => source.job).map((source) => `${source.job.work} of ${source.name}`);
  const of = ` of ${count(sources.length, "source")}`;
  const base = {
    exposed: parts.length === 0 ? "nothing" : parts.join(", "),
    working: jobs.length === 0 ? "nothing" : jobs.join(", "),
    decisions: sources.flatMap(decisions).length,
  };
  if (sources.length === 0) {
    return { ...base, ...LEVELS.unknown, word: "No sources", sentence: "The configuration names no source: nothing is protected." };
  }
  if (all.length === 0) {
    const sentence = known === 0 ? `There are no files yet${of}.` : `All ${count(known, "file")}${of} are protected.`;
    return { ...base, ...LEVELS.ok, sentence };
  }
  const others = all.length > 1 ? ` (and ${count(all.length - 1, "other finding")})` : "";
  return { ...base, ...LEVELS[all[0].level], sentence: `${all[0].source}: ${all[0].text}${others}.` };
}
