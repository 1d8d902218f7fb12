// The live page: asks the service once a second, hears its events, and shows both.

import { NeedsToken, Refused, ask, hasToken, lines, setToken } from "./ask.js";
import { Drops } from "./drops.js";
import { Picture } from "./graph.js";
import { Rates, bar, byId, bytes, el, exact, fill, pps, short, span, table } from "./show.js";

const EVERY_MS = 1000;
const SILENCE_MS = 15000; // the service says something every 5 s
const EVENTS = 200;

const picture = new Picture();
const drops = new Drops();
const views = { workers: el("section"), ports: el("section"), tables: el("section"), events: el("section") };
const tabs = new Map();
let chosen = location.hash.slice(1) || "overview";
let started = null;
let lostAt = null;
const rates = { summary: new Rates(), tables: new Rates(), panels: new Map() };

// ---- Tabs: arrow keys, Home and End move between them, as everywhere.

function tab(id, title, ...content) {
  if (tabs.has(id)) return tabs.get(id);
  const button = el("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, tabindex: "-1",
    onclick: () => choose(id, true), onkeydown: (event) => move(event, id),
  }, title);
  const panel = el("div", { role: "tabpanel", id: `panel-${id}`, "aria-labelledby": `tab-${id}`, hidden: true }, ...content);
  byId("tabs").append(button);
  byId("panels").append(panel);
  tabs.set(id, { button, panel, body: panel.firstElementChild });
  if (id === chosen || tabs.size === 1) choose(id, false);
  return tabs.get(id);
}

function choose(id, byHand) {
  if (byHand) {
    chosen = id;
    history.replaceState(null, "", `#${id}`);
  }
  for (const [name, { button, panel }] of tabs) {
    button.setAttribute("aria-selected", name === id);
    button.tabIndex = name === id ? 0 : -1;
    panel.hidden = name !== id;
  }
  if (byHand) latest?.();
}

function move(event, id) {
  const names = [...tabs.keys()];
  const at = names.indexOf(id);
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const name = names.at(to % names.length);
  choose(name, true);
  tabs.get(name).button.focus();
}

// ---- What is shown.

let latest = null;

function showSummary({ value: s, at }) {
  if (started !== s.started_ns) {
    // Another process: its counters begin anew, and it may be another service.
    if (started !== null) begin();
    [started, rates.summary, rates.tables, rates.panels] = [s.started_ns, new Rates(), new Rates(), new Map()];
    drops.forget();
  }
  const dropped = Object.values(s.dropped).reduce((a, b) => a + b, 0);
  rates.summary.take(new Map([["in", s.in], ["out", s.out], ["dropped", dropped], ["bits", s.in_bytes * 8]]), at);
  const item = (name, text, title) => el("div", { title }, el("dt", {}, name), el("dd", { "data-figure": name }, text));
  const of = (name) => pps(rates.summary.of(name));
  byId("summary").replaceChildren(
    item("in", of("in"), `${exact(s.in)} packets`), item("out", of("out"), `${exact(s.out)} packets`),
    item("dropped", of("dropped"), `${exact(dropped)} packets`),
    item("held", exact(s.held), "packets inside now"),
    item("up", span(s.seconds), s.config));
}

function showWorkers({ value }) {
  const rows = value.workers.map((w) => [
    String(w.index), w.cpu === null ? (w.unbound ? "refused" : "-") : String(w.cpu), String(w.stage),
    bar(w.busy_percent, 100, `${w.busy_percent.toFixed(0)} %`), bar(w.asleep_percent, 100, `${w.asleep_percent.toFixed(0)} %`),
    pps(w.rx_pps), exact(w.packets), bar(w.pool_frames - w.pool_free, w.pool_frames, `${exact(w.pool_free)} free`),
  ]);
  fill(views.workers, el("h2", {}, "Workers"), table("Over the last second",
    [">worker", ">CPU", ">stage", "busy", "asleep", ">packets now", ">packets", "frames in use"], rows, "there are no workers"));
}

function showPorts({ value }) {
  const link = { up: "\u25b2 up", down: "\u25bc down", away: "\u2715 away" };
  const lost = (side) => Object.values(side.dropped).reduce((a, b) => a + b, 0);
  const rows = value.ports.map((p) => [
    p.name, p.kind, link[p.link] || "-", exact(p.rx.packets), bytes(p.rx.bytes), exact(p.tx.packets), bytes(p.tx.bytes), exact(lost(p.rx) + lost(p.tx)),
  ]);
  fill(views.ports, el("h2", {}, "Ports"), table("Since the start",
    ["port", "kind", "link", ">in", ">bytes in", ">out", ">bytes out", ">dropped"], rows, "there are no ports"));
}

function showTables({ value, at }) {
  const counts = new Map();
  for (const t of value.tables) {
    for (const what of ["generation", "hits", "misses"]) if (t[what] !== null) counts.set(`${t.name} ${what}`, t[what]);
  }
  rates.tables.take(counts, at);
  const rows = value.tables.map((t) => {
    const [hits, misses] = ["hits", "misses"].map((what) => rates.tables.of(`${t.name} ${what}`));
    const looked = t.hits === null ? 0 : t.hits + (t.misses || 0);
    const share = hits + misses > 0 ? `${((100 * hits) / (hits + misses)).toFixed(1)} %` : looked ? `${((100 * t.hits) / looked).toFixed(1)} %` : "-";
    return [
      t.name, t.kind || "-", exact(t.entries), t.room === null ? "-" : bar(t.entries, t.room, `of ${short(t.room)}`),
      t.bytes === null ? "-" : bytes(t.bytes), t.generation === null ? "-" : exact(t.generation), t.hits === null ? "-" : share,
    ];
  });
  fill(views.tables, el("h2", {}, "Tables and caches"), table("What is in them now",
    ["table", "made of", ">entries", "room", ">memory", ">changes", ">found there"], rows, "this service has no tables"));
}

function showPanels({ value, at }) {
  const ids = value.panels.map(({ title }) => `service-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`);
  // Another role at the same address has other panels.
  for (const id of [...tabs.keys()].filter((id) => id.startsWith("service-") && !ids.includes(id))) {
    const { button, panel } = tabs.get(id);
    const was = !panel.hidden;
    [button, panel].forEach((element) => element.remove());
    tabs.delete(id);
    rates.panels.delete(id);
    if (was) choose(tabs.keys().next().value, false);
  }
  value.panels.forEach((panel, number) => {
    const id = ids[number];
    const zeros = () => el("input", { type: "checkbox", onchange: () => latest?.() });
    const { body } = tab(id, panel.title, el("section", {},
      el("div", { class: "row" }, el("h2", {}, panel.title), el("label", {}, zeros(), " figures that are zero too")), el("div")));
    if (!rates.panels.has(id)) rates.panels.set(id, new Rates());
    const rate = rates.panels.get(id);
    const named = panel.families.flatMap((family) => family.samples.map((sample) => {
      const labels = Object.entries(sample.labels).map(([name, text]) => (name === "figure" ? text : `${name} ${text}`));
      return { family, sample, text: labels.join(", ") || family.help, key: `${family.name} ${JSON.stringify(sample.labels)}` };
    }));
    if (at !== rate.seen) rate.take(new Map(named.map(({ key, sample }) => [key, sample.value])), at);
    rate.seen = at;
    const all = body.querySelector("input").checked;
    const shown = named.filter(({ sample }) => all || sample.value !== 0);
    const rows = shown.map(({ family, sample, text, key }) => [
      el("span", { title: family.help }, text), el("span", { class: "mono" }, family.name), exact(sample.value), family.grows ? pps(rate.of(key)) : "",
    ]);
    fill(body.lastElementChild, table(`${shown.length} of ${named.length} figures; the same are in /metrics`,
      ["figure", "metric", ">value", ">now"], rows, "all figures are zero"));
  });
}

// ---- Asking.

function state(kind, text) {
  byId("state").className = `state ${kind}`;
  byId("state").textContent = text;
}

function lost(error) {
  lostAt ??= new Date();
  const why = error instanceof Refused ? error.message : "nothing answers";
  state("lost", "\u25b2 connection lost");
  byId("main").classList.add("stale");
  byId("banner").hidden = false;
  byId("banner").textContent = `The connection is lost since ${lostAt.toLocaleTimeString()} (${why}). What is below is as it was then; trying again every second.`;
}

function found() {
  lostAt = null;
  state("live", "\u25cf live");
  byId("main").classList.remove("stale");
  byId("banner").hidden = true;
  byId("entry").hidden = true;
  byId("main").hidden = false;
}

/// Says which parts are not what they are now.
function missing(failed) {
  byId("banner").hidden = failed.length === 0;
  byId("banner").textContent = failed.map(({ path, reason }) => `${path}: ${reason.message}`).join("; ");
  if (failed.length) state("lost", `\u25b2 without ${failed.map(({ path }) => path).join(", ")}`);
}

function wantToken() {
  byId("main").hidden = true;
  byId("banner").hidden = true;
  if (hasToken()) byId("why").textContent = "This token is nobody's here (any more): give another line of control.token_file.";
  setToken("");
  state("", "\u25cb a token is wanted");
  if (byId("entry").hidden) {
    byId("entry").hidden = false;
    byId("token").focus();
  }
}

async function look() {
  const paths = ["summary", "ports", "nodes", "workers", "drops", "tables", "panels"];
  const asked = await Promise.allSettled(paths.map((path) => ask(`/v1/${path}`)));
  const failed = asked.map(({ reason }, at) => ({ path: paths[at], reason })).filter(({ reason }) => reason);
  // Nobody there, or nobody who knows us: that is said of all of it. One part that cannot be had keeps no other from being shown.
  const unknown = failed.find(({ reason }) => reason instanceof NeedsToken);
  if (unknown || failed.length === paths.length) throw (unknown ?? failed[0]).reason;
  const [summary, ports, nodes, workers, dropped, all, panels] = asked.map(({ value }) => value ?? null);
  found();
  missing(failed);
  if (summary) showSummary(summary);
  if (nodes && ports) {
    picture.take(nodes.value.nodes, ports.value.ports, nodes.at);
    showPorts(ports);
  }
  if (dropped) drops.take(dropped.value.drops, dropped.at);
  if (workers) showWorkers(workers);
  if (all) showTables(all);
  if (panels) showPanels(panels);
  // What only changes in form is shown again without asking.
  latest = () => {
    if (nodes && ports) picture.redraw();
    if (dropped) drops.redraw();
    if (panels) showPanels(panels);
  };
}

let waiting = null;
async function run() {
  for (;;) {
    const begun = performance.now();
    try {
      await look();
    } catch (error) {
      if (error instanceof NeedsToken) {
        wantToken();
        await new Promise((entered) => (waiting = entered));
        continue;
      }
      lost(error);
    }
    await new Promise((over) => setTimeout(over, Math.max(100, EVERY_MS - (performance.now() - begun))));
  }
}

// ---- Events.

const heard = [];

function hear(event) {
  heard.unshift(event);
  heard.splice(EVENTS);
  const sign = { info: "\u25cb info", warning: "\u25b2 warning", error: "\u2715 error" };
  const rows = heard.map((e) => [
    new Date(e.time_ns / 1e6).toLocaleTimeString(), el("span", { class: `severity ${e.severity}` }, sign[e.severity] || e.severity), e.kind, e.about || "-", e.message,
  ]);
  fill(views.events, el("h2", {}, "Events"), table(`The last ${EVENTS} at most, the newest first`,
    ["time", "severity", "kind", "about", "~what happened"], rows, "nothing yet"));
}

async function follow() {
  // The number of the last event, and whose it is: another process counts anew.
  let [after, of] = [null, null];
  for (;;) {
    if (!byId("entry").hidden || byId("main").hidden) {
      await new Promise((over) => setTimeout(over, 200));
      continue;
    }
    try {
      const from = of === null ? "last=100" : `after=${after}&of=${encodeURIComponent(of)}`;
      for await (const event of lines(`/v1/events?${from}`, SILENCE_MS)) {
        after = event.seq;
        if (event.kind === "alive") of = event.about;
        else hear(event);
      }
    } catch { /* Whatever it is, the other loop says so. */ }
    await new Promise((over) => setTimeout(over, EVERY_MS));
  }
}

// ---- Beginning.

byId("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token").value = "";
  waiting?.();
});

tab("overview", "Overview", picture.root, drops.root);
tab("ports", "Ports", views.ports);
tab("workers", "Workers", views.workers);
tab("tables", "Tables and caches", views.tables);
tab("events", "Events", views.events);
fill(views.events, el("h2", {}, "Events"), el("p", { class: "note" }, "nothing yet"));

async function begin() {
  try {
    const verbs = await ask("/v1");
    if (verbs) {
      byId("name").textContent = verbs.value.service;
      document.title = `${verbs.value.service}: live`;
      byId("name").title = `version ${verbs.value.version}`;
    }
  } catch { /* asked again by and by */ }
}

run();
follow();
(async () => {
  while (byId("name").title === "") {
    if (byId("entry").hidden) await begin();
    await new Promise((over) => setTimeout(over, EVERY_MS));
  }
})();
