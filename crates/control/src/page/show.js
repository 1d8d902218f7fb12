// Elements, numbers and tables: what every part of the page is made of.

const SVG = "http://www.w3.org/2000/svg";

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  // Texts are texts: nothing that a service says is ever read as HTML.
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const el = (name, attributes = {}, ...children) => made(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) => made(document.createElementNS(SVG, name), attributes, children);
export const byId = (id) => document.getElementById(id);

// Three digits, and never a power of ten.
const three = (number) => number.toFixed(Math.abs(number) >= 100 ? 0 : Math.abs(number) >= 10 ? 1 : 2);

/// A count in few characters: 1234567 is 1.23 M.
export function short(number) {
  if (!Number.isFinite(number)) return "-";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(number) >= size) return `${three(number / size)} ${unit}`;
  }
  if (number !== 0 && Math.abs(number) < 10 && !Number.isInteger(number)) return number.toFixed(1);
  return String(Math.round(number));
}

/// A count with all its digits, in groups.
export const exact = (number) =>
  Number.isInteger(number) || Math.abs(number) >= 1000
    ? String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, "\u202f")
    : number.toPrecision(4);

export const pps = (rate) => (rate === null ? "-" : `${short(rate)}/s`);

export function bytes(count) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (count >= size) return `${three(count / size)} ${unit}`;
  }
  return `${count} B`;
}

export function span(seconds) {
  const s = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const days = Math.floor(s / 86400);
  const clock = `${two(Math.floor(s / 3600) % 24)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
  return days > 0 ? `${days} d ${clock}` : clock;
}

/// How full or busy something is, as a bar with its number beside it.
export function bar(part, whole, text) {
  const inner = el("i");
  inner.style.width = `${whole > 0 ? Math.min(100, (100 * part) / whole) : 0}%`;
  return el("span", {}, el("span", { class: "bar", "aria-hidden": "true" }, inner), text);
}

/// A table in a box that scrolls by itself. Columns whose name begins with ">" are numbers, with "~" long texts; cells are texts or elements.
/// On a phone a row of one that `stacks` is a small block.
export function table(caption, columns, rows, nothing, stacks = columns.length > 4) {
  const kinds = columns.map((column) => ({ ">": "n", "~": "wide" })[column[0]] ?? null);
  const names = columns.map((column) => column.replace(/^[>~]/, ""));
  const head = names.map((name, at) => el("th", { class: kinds[at], scope: "col" }, name));
  const cell = (content, at) => el("td", { class: kinds[at], "data-label": names[at] }, content);
  const body = rows.length
    ? rows.map((row) => el("tr", {}, ...row.map(cell)))
    : [el("tr", {}, el("td", { colspan: columns.length, class: "note" }, nothing))];
  return el("div", { class: "scroll" },
    el("table", { class: stacks ? "stack" : null }, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)));
}

/// Puts new children in the place of the old ones. Boxes that were scrolled or had the focus still are and have.
export function fill(element, ...children) {
  const boxes = () => [...element.querySelectorAll(".scroll")];
  const before = boxes().map((box) => [box.scrollLeft, box.scrollTop, box === document.activeElement]);
  element.replaceChildren(...children);
  boxes().forEach((box, at) => {
    const [left, top, focused] = before[at] || [0, 0, false];
    if (left || top) box.scrollTo(left, top);
    if (focused) box.focus({ preventScroll: true });
  });
}

/// Rates of counters by name: what has been added since the last time, per second.
export class Rates {
  #before = new Map();
  #now = new Map();
  #at = null;
  #over = null;
  #fromZero;

  /// `fromZero`: a counter that is there only once it has counted something began at 0.
  constructor(fromZero = false) {
    this.#fromZero = fromZero;
  }

  /// Takes new counts, of one moment in milliseconds.
  take(counts, at) {
    this.#before = this.#now;
    this.#over = this.#at === null ? null : (at - this.#at) / 1000;
    [this.#now, this.#at] = [counts, at];
  }

  /// Per second; null before there are two moments, or where a counter is new.
  of(name) {
    const [before, now] = [this.#before.get(name) ?? (this.#fromZero ? 0 : undefined), this.#now.get(name)];
    if (!(this.#over > 0) || before === undefined || now === undefined || now < before) return null;
    return (now - before) / this.#over;
  }
}
