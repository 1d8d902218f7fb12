// Drops by reason over time: areas on top of each other, told apart by pattern, label and colour.

import { Rates, el, exact, fill, pps, short, svg, table } from "./show.js";

const SECONDS = 120; // two minutes
const [H, LEFT, RIGHT, TOP, BOTTOM] = [260, 58, 8, 12, 26];
// Okabe and Ito's colours with a pattern each; the last is for all others. tests/live/colours.rs has how far apart they are without red, green or blue.
const LOOKS = [
  ["#e69f00", "M0 0H8"], ["#56b4e9", "M0 8L8 0"], ["#009e73", "M0 0L8 8"], ["#cc79a7", "M4 0V8"],
  ["#d55e00", "M0 4H8M4 0V8"], ["#0072b2", "M0 0L8 8M0 8L8 0"], ["#555555", ""],
];

function swatch(id, [colour, lines]) {
  return svg("pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
    svg("rect", { width: 8, height: 8, fill: colour }), svg("path", { d: lines, stroke: "#000", "stroke-opacity": .5, "stroke-width": 1.4 }));
}

/// The next round number: 1, 2 or 5 and zeros.
export function round(value) {
  const size = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * size).find((step) => step >= value) ?? 10 * size;
}

export class Drops {
  #rates = new Rates(true);
  #history = []; // {at, rates: Map of reason to drops a second}
  #order = []; // reasons, as they were first seen
  #chart = el("div", { id: "chart" });
  #legend = el("ul", { id: "legend", "aria-label": "Legend: drops by reason, now" });
  #list = el("div");
  #latest = null;

  constructor() {
    this.root = el("section", { "aria-labelledby": "drops-title" },
      el("div", { class: "row" }, el("h2", { id: "drops-title" }, "Drops by reason")),
      el("div", { class: "drops" }, this.#chart, this.#legend), this.#list);
  }

  forget() {
    [this.#history, this.#order, this.#rates] = [[], [], new Rates(true)];
  }

  /// Draws again what is known, after something about the window has changed.
  redraw() {
    if (this.#latest) this.#draw(this.#latest);
  }

  take(drops, at) {
    this.#latest = drops;
    const sums = new Map();
    for (const { reason, count } of drops) sums.set(reason, (sums.get(reason) || 0) + count);
    sums.forEach((_, reason) => this.#order.includes(reason) || this.#order.push(reason));
    this.#rates.take(sums, at);
    const rates = new Map([...sums.keys()].map((reason) => [reason, this.#rates.of(reason) ?? 0]));
    this.#history.push({ at, rates });
    // By time: after a lost connection, or in a tab that was asleep, there are fewer samples. One that is older is the chart's left edge.
    const kept = this.#history.findIndex((sample) => sample.at >= at - SECONDS * 1000);
    this.#history.splice(0, Math.max(0, kept));
    this.#draw(drops);
  }

  /// The reasons with most drops in what is shown have an area of their own; the rest is one.
  #shown() {
    const sum = (reason) => this.#history.reduce((all, { rates }) => all + (rates.get(reason) || 0), 0);
    const some = this.#order.map((reason) => [reason, sum(reason)]).filter(([, drops]) => drops > 0);
    const most = some.sort((a, b) => b[1] - a[1]).slice(0, LOOKS.length - 1).map(([reason]) => reason);
    const kept = this.#order.filter((reason) => most.includes(reason));
    const rest = some.map(([reason]) => reason).filter((reason) => !most.includes(reason));
    const series = kept.map((reason) => ({ name: reason, reasons: [reason], look: this.#order.indexOf(reason) % (LOOKS.length - 1) }));
    // No two of those that are shown look the same.
    const taken = new Set();
    for (const one of series) {
      while (taken.has(one.look)) one.look = (one.look + 1) % (LOOKS.length - 1);
      taken.add(one.look);
    }
    if (rest.length) series.push({ name: `${rest.length} others`, reasons: rest, look: LOOKS.length - 1 });
    return series;
  }

  #draw(drops) {
    const W = Math.max(280, this.#chart.clientWidth);
    const series = this.#shown();
    const now = this.#history.at(-1).at;
    const value = ({ rates }, { reasons }) => reasons.reduce((sum, reason) => sum + (rates.get(reason) || 0), 0);
    const most = round(Math.max(1, ...this.#history.map((one) => series.reduce((sum, s) => sum + value(one, s), 0))));
    const x = (at) => W - RIGHT - ((now - at) / 1000 / SECONDS) * (W - LEFT - RIGHT);
    const y = (rate) => H - BOTTOM - (rate / most) * (H - TOP - BOTTOM);
    const root = svg("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": this.#said(series) });
    root.append(svg("defs", {}, ...LOOKS.map((look, at) => swatch(`look-${at}`, look))));
    for (const part of [0, .5, 1]) {
      root.append(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(most * part), y2: y(most * part) }),
        svg("text", { x: LEFT - 6, y: y(most * part) + 4, "text-anchor": "end" }, `${short(most * part)}/s`));
    }
    for (const [seconds, text, anchor] of [[SECONDS, "2 minutes ago", "start"], [SECONDS / 2, "1 minute", "middle"], [0, "now", "end"]]) {
      root.append(svg("text", { x: x(now - seconds * 1000), y: H - 8, "text-anchor": anchor }, text));
    }
    const ground = this.#history.map(() => 0);
    const labels = [];
    for (const one of series) {
      const under = [...ground];
      this.#history.forEach((sample, at) => (ground[at] += value(sample, one)));
      const points = (heights) => this.#history.map(({ at }, n) => `${x(at).toFixed(1)} ${y(heights[n]).toFixed(1)}`);
      const [upper, lower] = [points(ground), points(under).reverse()];
      root.append(svg("path", { d: `M${upper.join("L")}L${lower.join("L")}Z`, fill: `url(#look-${one.look})` }),
        svg("path", { class: "top", d: `M${upper.join("L")}` }));
      const [high, low] = [y(ground.at(-1)), y(under.at(-1))];
      if (low - high > 15) labels.push(svg("text", { class: "label", x: W - RIGHT - 6, y: (high + low) / 2 + 4 }, one.name));
    }
    root.append(...labels);
    this.#chart.replaceChildren(root);
    const last = this.#history.at(-1);
    const entry = (one) => el("li", {},
      svg("svg", { viewBox: "0 0 28 16", "aria-hidden": "true" }, svg("rect", { width: 28, height: 16, fill: `url(#look-${one.look})`, stroke: "currentColor" })),
      el("span", {}, one.name), el("b", {}, pps(value(last, one))));
    const nothing = el("li", { class: "note" }, "nothing has been dropped in these two minutes");
    this.#legend.replaceChildren(...(series.length ? series.toReversed().map(entry) : [nothing]));
    const rows = [...drops].sort((a, b) => b.count - a.count).slice(0, 50)
      .map(({ reason, at, count, help }) => [reason, at, exact(count), help]);
    fill(this.#list, table("Since the start, by reason and place", ["reason", "at", ">packets", "~what it means"], rows, "nothing has been dropped", true));
  }

  #said(series) {
    const last = this.#history.at(-1).rates;
    const parts = series.map(({ name, reasons }) => `${name} ${pps(reasons.reduce((sum, reason) => sum + (last.get(reason) || 0), 0))}`);
    return parts.length ? `Drops over the last two minutes; now: ${parts.join(", ")}` : "No drops in the last two minutes";
  }
}
