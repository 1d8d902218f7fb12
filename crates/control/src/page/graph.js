// The graph as a picture: where packets go, and how many. Ports that receive are on one side, those that send on the other.
//
// The layout is the usual one in layers: edges that lead back are set aside, each node stands behind all that lead to it, edges that pass
// layers get a place in each of them, and nodes move within their layers to where few edges cross.

import { Rates, el, exact, fill, pps, short, svg, table } from "./show.js";

const GAP = 26; // between neighbours in a layer
const HEIGHT = 44; // of a node
const READABLE = 0.85; // the picture goes downwards where it would have to be smaller than that to go to the right

/// The layers of a graph: `ids` in the order of their importance, `edges` as {from, to}. Returns each node's rank, which edges lead back, and the
/// layers: lists of nodes and of edges that pass.
export function layers(ids, edges, last) {
  const out = new Map(ids.map((id) => [id, []]));
  edges.forEach((edge, number) => out.get(edge.from)?.push({ ...edge, number }));
  const state = new Map();
  const back = new Set();
  const finished = [];
  const visit = (id) => {
    state.set(id, "open");
    for (const { to, number } of out.get(id)) {
      if (state.get(to) === "open") back.add(number);
      else if (!state.has(to) && out.has(to)) visit(to);
    }
    state.set(id, "done");
    finished.push(id);
  };
  ids.forEach((id) => state.has(id) || visit(id));
  const rank = new Map(ids.map((id) => [id, 0]));
  for (const id of finished.reverse()) {
    for (const { to, number } of out.get(id)) {
      if (!back.has(number)) rank.set(to, Math.max(rank.get(to), rank.get(id) + 1));
    }
  }
  const deepest = Math.max(0, ...rank.values());
  ids.filter(last).forEach((id) => rank.set(id, deepest));
  const list = Array.from({ length: deepest + 1 }, () => []);
  ids.forEach((id) => list[rank.get(id)].push({ id, ways: [] }));
  const place = new Map(list.flat().map((item) => [item.id, item]));
  const chains = edges.map((edge, number) => {
    if (back.has(number)) return [];
    const chain = [place.get(edge.from)];
    for (let at = rank.get(edge.from) + 1; at < rank.get(edge.to); at += 1) {
      const passing = { id: null, ways: [] };
      list[at].push(passing);
      chain.push(passing);
    }
    chain.push(place.get(edge.to));
    chain.slice(1).forEach((item, at) => {
      item.ways.push([chain[at], -1]);
      chain[at].ways.push([item, 1]);
    });
    return chain;
  });
  untangle(list);
  return { list, chains, back, place };
}

/// Moves items within their layers to where few edges cross.
function untangle(list) {
  const number = () => list.forEach((layer) => layer.forEach((item, at) => (item.at = at)));
  const crossings = () => {
    let count = 0;
    for (const layer of list) {
      const ways = layer.flatMap((item) => item.ways.filter(([, way]) => way === 1).map(([to]) => [item.at, to.at]));
      for (let a = 0; a < ways.length; a += 1) {
        for (let b = 0; b < a; b += 1) {
          if ((ways[a][0] - ways[b][0]) * (ways[a][1] - ways[b][1]) < 0) count += 1;
        }
      }
    }
    return count;
  };
  number();
  let best = [crossings(), list.map((layer) => [...layer])];
  for (let round = 0; round < 12 && best[0] > 0; round += 1) {
    const forth = round % 2 === 0;
    for (const layer of forth ? list : [...list].reverse()) {
      for (const item of layer) {
        const beside = item.ways.filter(([, way]) => way === (forth ? -1 : 1)).map(([other]) => other.at);
        item.wish = beside.length ? beside.reduce((a, b) => a + b, 0) / beside.length : item.at;
      }
      layer.sort((a, b) => a.wish - b.wish || a.at - b.at);
      layer.forEach((item, at) => (item.at = at));
    }
    const count = crossings();
    if (count < best[0]) best = [count, list.map((layer) => [...layer])];
  }
  best[1].forEach((layer, at) => (list[at] = layer));
  number();
}

/// Places for everything: `width(id)` is a node's, `down` says whether ranks follow each other downwards.
export function layout(ids, edges, last, width, down) {
  const { list, chains, back, place } = layers(ids, edges, last);
  const across = (item) => (item.id === null ? 10 : down ? width(item.id) : HEIGHT);
  const along = (item) => (item.id === null ? 0 : down ? HEIGHT : width(item.id));
  // Across: where the neighbours are, in order and without touching.
  const spread = (layer) => {
    let end = -Infinity;
    let moved = 0;
    for (const item of layer) {
      const want = item.wish - across(item) / 2;
      const from = Math.max(want, end + GAP);
      moved += from - want;
      item.c = from + across(item) / 2;
      end = from + across(item);
    }
    layer.forEach((item) => (item.c -= moved / layer.length));
  };
  list.forEach((layer) => {
    let at = 0;
    layer.forEach((item) => {
      item.wish = at + across(item) / 2;
      at += across(item) + GAP;
    });
    layer.forEach((item) => (item.wish -= at / 2));
    spread(layer);
  });
  for (let round = 0; round < 16; round += 1) {
    for (const layer of round % 2 ? [...list].reverse() : list) {
      for (const item of layer) {
        const beside = item.ways.map(([other]) => other.c);
        item.wish = beside.length ? beside.reduce((a, b) => a + b, 0) / beside.length : item.c;
      }
      spread(layer);
    }
  }
  const least = Math.min(...list.flat().map((item) => item.c - across(item) / 2));
  const most = Math.max(...list.flat().map((item) => item.c + across(item) / 2));
  const margin = back.size ? 40 : 24; // room for ways back, and for what is said below a node
  let at = 12;
  for (const layer of list) {
    const deep = Math.max(...layer.map(along), 0);
    layer.forEach((item) => ([item.m, item.l] = [at + deep / 2, deep]));
    at += deep + (down ? 56 : 76);
  }
  const length = at - (down ? 56 : 76) + 14;
  const point = (m, c) => (down ? [c - least + margin, m] : [m, c - least + margin]);
  const boxes = new Map([...place].map(([id, item]) => {
    const [x, y] = point(item.m, item.c);
    return [id, { x, y, w: width(id), h: HEIGHT }];
  }));
  const whole = most - least + 2 * margin;
  return {
    width: down ? whole : length,
    height: down ? length : whole,
    boxes,
    paths: edges.map((edge, number) =>
      back.has(number) ? around(boxes.get(edge.from), boxes.get(edge.to), down) : through(chains[number], point, along, down)),
    back,
  };
}

/// A way from layer to layer, and where its label goes.
function through(chain, point, along, down) {
  const stops = chain.map((item, at) => {
    const half = item.id === null ? 0 : along(item) / 2;
    const ends = at === 0 ? [half] : at === chain.length - 1 ? [-half - 7] : [0];
    return ends.map((end) => point(item.m + end, item.c))[0];
  });
  const bend = ([x, y], [u, v]) =>
    down ? `C${x} ${(y + v) / 2} ${u} ${(y + v) / 2} ${u} ${v}` : `C${(x + u) / 2} ${y} ${(x + u) / 2} ${v} ${u} ${v}`;
  const d = stops.slice(1).reduce((text, stop, at) => text + bend(stops[at], stop), `M${stops[0][0]} ${stops[0][1]}`);
  const middle = Math.floor((stops.length - 1) / 2);
  const [a, b] = [stops[middle], stops[middle + 1]];
  return { d, tip: stops.at(-1), turn: down ? 90 : 0, label: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2] };
}

/// A way back, along the outside.
function around(from, to, down) {
  if (down) {
    const far = Math.max(from.x + from.w / 2, to.x + to.w / 2) + 26;
    const [a, b] = [[from.x + from.w / 2, from.y], [to.x + to.w / 2 + 7, to.y]];
    return { d: `M${a[0]} ${a[1]}C${far} ${a[1]} ${far} ${b[1]} ${b[0]} ${b[1]}`, tip: b, turn: 180, label: [far - 10, (a[1] + b[1]) / 2] };
  }
  const far = Math.max(from.y, to.y) + 22 + 26;
  const [a, b] = [[from.x, from.y + 22], [to.x, to.y + 22 + 7]];
  return { d: `M${a[0]} ${a[1]}C${a[0]} ${far} ${b[0]} ${far} ${b[0]} ${b[1]}`, tip: b, turn: -90, label: [(a[0] + b[0]) / 2, far - 12] };
}

/// Nodes and edges of what the service says, with counts of packets.
export function described(nodes, ports) {
  const vertices = new Map();
  const edges = new Map();
  const lead = (from, to, name, packets) => {
    const key = `${from} -> ${to}`;
    const edge = edges.get(key) || { key, from, to, names: [], packets: 0 };
    edge.names.push(name);
    edge.packets += packets;
    edges.set(key, edge);
  };
  const known = new Set([...nodes.map((node) => node.name), ...ports.map((port) => `port:${port.name}`)]);
  for (const port of ports) {
    if (!known.has(port.to)) continue;
    vertices.set(`in:${port.name}`, { title: port.name, kind: "port", packets: port.rx.packets, port });
    lead(`in:${port.name}`, port.to, "rx", port.rx.packets);
  }
  for (const node of nodes) {
    const dropped = Object.values(node.dropped).reduce((a, b) => a + b, 0);
    vertices.set(node.name, { title: node.name, kind: "node", packets: node.packets, dropped, node });
    for (const output of node.outputs) if (known.has(output.to)) lead(node.name, output.to, output.name, output.packets);
  }
  for (const port of ports) {
    vertices.set(`port:${port.name}`, { title: port.name, kind: "port", packets: port.tx.packets, port });
  }
  return { vertices, edges: [...edges.values()] };
}

/// The picture, with what there is to say about the node that is chosen.
export class Picture {
  #rates = new Rates();
  #box = el("div", { id: "graph", class: "scroll", tabindex: "0", role: "group", "aria-label": "The graph; it can be scrolled" });
  #about = el("div", { id: "about-node", "aria-live": "polite" });
  #idle = el("input", { type: "checkbox", id: "idle-too", onchange: () => this.#draw() });
  #drawn = null;
  #chosen = null;
  #data = null;

  constructor() {
    this.root = el("section", { "aria-labelledby": "graph-title" },
      el("div", { class: "row" },
        el("h2", { id: "graph-title" }, "Graph"),
        el("label", {}, this.#idle, " nodes that have seen no packet too")),
      this.#box, this.#about);
    let timer;
    addEventListener("resize", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#draw(), 150);
    });
  }

  take(nodes, ports, at) {
    this.#data = described(nodes, ports);
    const { vertices, edges } = this.#data;
    const counts = new Map([...vertices].map(([id, vertex]) => [id, vertex.packets]));
    edges.forEach((edge) => counts.set(edge.key, edge.packets));
    vertices.forEach((vertex, id) => counts.set(`drop ${id}`, vertex.dropped || 0));
    this.#rates.take(counts, at);
    this.#draw();
  }

  /// Draws again what is known, after something about the window has changed.
  redraw() {
    this.#draw();
  }

  #draw() {
    if (!this.#data || !this.#box.clientWidth) return;
    const { vertices, edges } = this.#data;
    const all = this.#idle.checked || !edges.some((edge) => edge.packets > 0);
    const shown = edges.filter((edge) => all || edge.packets > 0);
    const wanted = new Set(shown.flatMap((edge) => [edge.from, edge.to]));
    const ids = [...vertices.keys()].filter((id) => wanted.has(id) || vertices.get(id).packets > 0);
    const form = JSON.stringify([ids, shown.map((edge) => edge.key), Math.round(this.#box.clientWidth / 20)]);
    if (this.#drawn?.form !== form) this.#drawn = this.#build(ids, shown, form);
    this.#update(shown);
  }

  #build(ids, edges, form) {
    const { vertices } = this.#data;
    const width = (id) => Math.max(84, 7.6 * vertices.get(id).title.length + 20);
    const place = (down) => layout(ids, edges, (id) => id.startsWith("port:"), width, down);
    const room = this.#box.clientWidth - 4;
    const right = place(false);
    const places = room / right.width >= READABLE ? right : place(true);
    const parts = { form, nodes: new Map(), edges: new Map() };
    // Not smaller than can be read, and not larger than life: beyond that the box scrolls.
    const scale = Math.min(1, Math.max(0.75, room / places.width));
    const root = svg("svg", {
      viewBox: `0 0 ${places.width} ${places.height}`, width: places.width * scale, height: places.height * scale,
      role: "group", "aria-label": `Packets go through ${ids.length} nodes by ${edges.length} ways`,
    });
    const labels = svg("g");
    edges.forEach((edge, number) => {
      const path = places.paths[number];
      const title = svg("title");
      const line = svg("path", { d: path.d, class: places.back.has(number) ? "edge back" : "edge" }, title);
      const label = svg("text", { class: "on-edge", x: path.label[0], y: path.label[1] + 4, "data-edge": edge.key });
      const plate = svg("rect", { class: "plate", y: path.label[1] - 7, height: 14, rx: 3 });
      const [x, y] = path.tip;
      root.append(line, svg("path", { class: "tip", d: "M0 -5L8 0L0 5Z", transform: `translate(${x} ${y}) rotate(${path.turn})` }));
      labels.append(plate, label);
      parts.edges.set(edge.key, { line, label, plate, title, x: path.label[0] });
    });
    for (const id of ids) {
      const { x, y, w, h } = places.boxes.get(id);
      const vertex = vertices.get(id);
      const rate = svg("text", { class: "rate", y: 15, "data-node": id });
      const group = svg("g", {
        class: `node ${vertex.kind}`, transform: `translate(${x} ${y})`, tabindex: "0", role: "button",
        onclick: () => this.#choose(id),
        onkeydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          this.#choose(id);
        },
      },
      svg("rect", { x: -w / 2, y: -h / 2, width: w, height: h, rx: vertex.kind === "port" ? 20 : 6 }),
      svg("text", { class: "name", y: -3 }, vertex.title), rate);
      const drops = svg("text", { class: "dropping", x, y: y + h / 2 + 13 });
      root.append(group);
      labels.append(drops);
      parts.nodes.set(id, { group, rate, drops });
    }
    root.append(labels);
    const had = this.#drawn && [...this.#drawn.nodes].find(([, { group }]) => group === document.activeElement)?.[0];
    this.#box.replaceChildren(root);
    // Where it does not fit, one begins where packets come in.
    const first = places.boxes.get(ids[0]);
    this.#box.scrollLeft = first.x * scale - room / 2;
    if (had) parts.nodes.get(had)?.group.focus();
    return parts;
  }

  #update(edges) {
    const { vertices } = this.#data;
    for (const edge of edges) {
      const { line, label, plate, title, x } = this.#drawn.edges.get(edge.key);
      const rate = this.#rates.of(edge.key) ?? 0;
      line.classList.toggle("idle", rate === 0);
      line.setAttribute("stroke-width", 1.3 + Math.max(0, Math.log10(rate + 1)) * 0.8);
      label.textContent = rate > 0 ? short(rate) : "";
      // The line does not go through its number.
      const wide = label.textContent.length * 7.2;
      plate.setAttribute("x", x - wide / 2);
      plate.setAttribute("width", wide);
      title.textContent = `${edge.key} (${edge.names.join(", ")}): ${exact(edge.packets)} packets, ${pps(rate)}`;
    }
    for (const [id, { group, rate, drops }] of this.#drawn.nodes) {
      const vertex = vertices.get(id);
      const [now, dropping] = [this.#rates.of(id), this.#rates.of(`drop ${id}`)];
      const sense = vertex.kind === "node" ? "" : id.startsWith("in:") ? "in " : "out ";
      rate.textContent = sense + pps(now);
      drops.textContent = dropping > 0 ? `\u2715 ${short(dropping)}` : "";
      group.classList.toggle("drops", dropping > 0);
      group.classList.toggle("chosen", id === this.#chosen);
      group.setAttribute("aria-pressed", id === this.#chosen);
      const said = dropping > 0 ? `, drops ${pps(dropping)}` : "";
      group.setAttribute("aria-label", `${vertex.kind} ${vertex.title}: ${sense}${pps(now)}${said}`);
    }
    this.#tell();
  }

  #choose(id) {
    this.#chosen = this.#chosen === id ? null : id;
    this.#draw();
  }

  #tell() {
    const vertex = this.#chosen && this.#data.vertices.get(this.#chosen);
    if (!vertex) return fill(this.#about);
    const rows = [];
    const row = (what, count, key) => rows.push([what, exact(count), pps(key ? this.#rates.of(key) : null)]);
    if (vertex.kind === "port") {
      const side = this.#chosen.startsWith("in:") ? "rx" : "tx";
      row(side === "rx" ? "received" : "sent", vertex.packets, this.#chosen);
      Object.entries(vertex.port[side].dropped).forEach(([reason, count]) => row(`dropped: ${reason}`, count));
    } else {
      row("packets", vertex.packets, this.#chosen);
      Object.entries(vertex.node.dropped).forEach(([reason, count]) => row(`dropped: ${reason}`, count));
      if (vertex.node.made) row("made", vertex.node.made);
      if (vertex.node.consumed) row("consumed", vertex.node.consumed);
    }
    this.#data.edges.filter((edge) => edge.from === this.#chosen)
      .forEach((edge) => row(`to ${edge.to.replace("port:", "port ")} (${edge.names.join(", ")})`, edge.packets, edge.key));
    const cost = vertex.node && vertex.packets ? `, ${vertex.node.ns_per_packet.toFixed(1)} ns a packet` : "";
    fill(this.#about, table(`${vertex.kind} ${vertex.title}${cost}`, ["", ">packets", ">now"], rows, "nothing yet"));
  }
}
