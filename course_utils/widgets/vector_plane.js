// VectorPlane: where the arrows are and what the bars say is Python's; here it is drawn, and drags are sent back.

const EDGE = { left: 46, right: 20, top: 20, bottom: 40 };    // room around the plane in pixels: a handle fits
const LETTERS = "13px system-ui, sans-serif";
const HANDLE = 13, FINGER = 22;    // radius of a handle as seen, and as felt
const AROUND = [[1, 0], [1, -1], [0, -1], [-1, -1], [-1, 0], [-1, 1], [0, 1], [1, 1]];    // where a label may stand

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  put(node, attributes);
  node.append(...children);
  return node;
}

function put(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, typeof value === "number" ? value.toFixed(1) : value);
}

function render({ model, el }) {
  const bag = listeners(model, el);
  const back = svg("g"), guides = svg("g", { "aria-hidden": "true" }), front = svg("g");
  const plane = svg("svg", { role: "group", "aria-label": "Plane of arrows" }, back, guides, front);
  const chart = svg("svg", { "aria-hidden": "true" });
  plane.style.touchAction = chart.style.touchAction = "pan-y";    // a finger beside the handles scrolls the page
  const status = h("div", { className: "pl-status" });
  const spoken = h("div", { className: "pl-hidden", "aria-live": "polite" });
  const detail = h("div", { className: "pl-detail" });
  const below = h("div", {}, errorLine(model, bag), detail);    // an error takes the room of the words
  below.style.overflowY = "auto";
  const table = h("table", { className: "pl-hidden" });
  const menu = h("select", { className: "pl-button", "aria-label": "Dot product with" });
  const tools = h("div", { className: "pl-tools" });
  tools.style.alignItems = "center";
  const both = h("div", {}, plane, chart);
  both.style.cssText = "display: flex; flex-wrap: wrap; gap: 18px; align-items: flex-start";
  const root = h("div", { className: "pl-view", "data-lm-suppress-shortcuts": "true" }, both, table, spoken, status, below, tools);
  el.append(root);

  const measure = document.createElement("canvas").getContext("2d");
  let side = 380, wide = 300, shapes = [], rows = [], held = 0, dragging = null, notice = "";
  const clipName = `pl-${Math.random().toString(36).slice(2)}`;    // a page may hold many planes
  const labels = () => model.get("labels"), moving = () => model.get("moving");
  const tone = (role, letters) => model.get("palette")[role][(letters ? 2 : 0) + (theme(root).dark ? 1 : 0)];
  const font = (name) => `${model.get("marked").includes(name) ? "bold " : ""}${LETTERS}`;
  const places = () => {
    const flat = floats(model, "points"), all = labels().map((_, i) => [flat[2 * i], flat[2 * i + 1]]);
    moving().forEach((i, m) => { all[i] = model.get("tips")[m]; });
    return all;
  };

  // From the plane's numbers to pixels.
  const box = () => ({ x: EDGE.left, y: EDGE.top, size: side - EDGE.left - EDGE.right });
  const unit = () => box().size / (model.get("area")[1] - model.get("area")[0]);
  const at = ([x, y]) => {
    const [left, , , high] = model.get("area");
    return [EDGE.left + (x - left) * unit(), EDGE.top + (high - y) * unit()];
  };
  const inside = ([x, y]) => {
    const [left, right, low, high] = model.get("area");
    return x >= left - 1e-9 && x <= right + 1e-9 && y >= low - 1e-9 && y <= high + 1e-9;
  };
  const high = () => EDGE.top + EDGE.bottom + box().size;

  function drawGrid() {
    const [left, right, low, top] = model.get("area"), b = box();
    put(plane, { width: side, height: high() });
    const apart = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50].find((s) => s >= (right - left) / 9) || (right - left) / 5;
    const line = (from, to, axis) => svg("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], stroke: axis ? "currentColor" : "var(--pl-faint)",
      "stroke-opacity": axis ? "0.55" : "0.6" });
    const text = (x, y, words, more = {}) => svg("text", { x, y, fill: "currentColor", "text-anchor": "middle", style: "font: 12px system-ui, sans-serif", ...more }, words);
    const nodes = [svg("rect", { x: b.x, y: b.y, width: b.size, height: b.size, fill: "none", stroke: "var(--pl-faint)" })];
    const ticks = (from, to) => { const all = []; for (let n = Math.ceil(from / apart - 1e-9); n * apart <= to + 1e-9; n++) all.push(n * apart); return all; };
    const written = (value) => String(Number(value.toFixed(6))).replace("-", "−");
    for (const x of ticks(left, right)) {
      if (model.get("grid") || Math.abs(x) < 1e-9) nodes.push(line(at([x, low]), at([x, top]), Math.abs(x) < 1e-9));
      nodes.push(text(at([x, low])[0], b.y + b.size + 15, written(x)));
    }
    for (const y of ticks(low, top)) {
      if (model.get("grid") || Math.abs(y) < 1e-9) nodes.push(line(at([left, y]), at([right, y]), Math.abs(y) < 1e-9));
      nodes.push(text(b.x - 6, at([left, y])[1] + 4, written(y), { "text-anchor": "end" }));
    }
    const [across, up] = model.get("axis_names");
    nodes.push(text(b.x + b.size / 2, high() - 6, across));
    nodes.push(text(0, 0, up, { transform: `translate(12 ${b.y + b.size / 2}) rotate(-90)` }));
    for (const [name, x, y] of model.get("directions")) {
      const [from, to] = [at([0, 0]), at([x, y])];
      nodes.push(svg("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], stroke: tone("added"), "stroke-width": 2, "stroke-dasharray": "5 4" }));
      nodes.push(head(to, from, tone("added")));
      measure.font = `italic ${LETTERS}`;
      const half = measure.measureText(name).width / 2 + 3, middle = Math.max(b.x + half, Math.min(b.x + b.size - half, to[0]));
      nodes.push(text(middle, to[1] + (to[1] > from[1] + 9 ? 17 : -8), name, { fill: tone("added", true), style: `font: italic ${LETTERS}` }));
    }
    back.replaceChildren(...nodes);
  }

  // The head of an arrow: a triangle whose point is the tip.
  function corners(tip, from) {
    const length = Math.hypot(tip[0] - from[0], tip[1] - from[1]) || 1, size = Math.min(11, length);
    const [u, v] = [(tip[0] - from[0]) / length, (tip[1] - from[1]) / length];
    const [x, y] = [tip[0] - size * u, tip[1] - size * v];
    return [tip, [x - 0.45 * size * v, y + 0.45 * size * u], [x + 0.45 * size * v, y - 0.45 * size * u]].map((p) => p.map((c) => c.toFixed(1)).join()).join(" ");
  }
  const head = (tip, from, fill) => svg("polygon", { points: corners(tip, from), fill });

  // One group for each arrow, built once: dragging moves it, so that it keeps the keyboard and the finger.
  function build() {
    shapes = labels().map((name, i) => {
      const m = moving().indexOf(i), text = svg("text", { "text-anchor": "middle" }, visible(name));
      Object.assign(text.style, { font: font(name), paintOrder: "stroke", stroke: "var(--jp-layout-color0, var(--pl-back))", strokeWidth: "3px", pointerEvents: "none" });
      const shape = { i, m, text, line: svg("line", { "stroke-width": 2.5 }), tip: svg(model.get("arrows") ? "polygon" : "circle"), place: 0 };
      shape.group = svg("g", {}, shape.line, shape.tip);
      if (m >= 0) {
        shape.ring = svg("circle", { r: HANDLE + 4, fill: "none", stroke: "currentColor", "stroke-width": 2, visibility: "hidden" });
        shape.handle = svg("circle", { r: HANDLE, "fill-opacity": "0.22", "stroke-width": 2 });
        shape.felt = svg("circle", { r: FINGER, fill: "transparent" });
        shape.group.append(shape.ring, shape.handle, shape.felt);
        put(shape.group, { tabindex: "0", role: "slider", "aria-roledescription": "arrow to drag", "aria-label": name, class: "pl-handle" });
        Object.assign(shape.group.style, { cursor: "grab", outline: "none" });
        // touch-action does not reach into an SVG; without this a finger on the handle scrolls the page
        shape.group.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
        hold(shape);
      } else if (model.get("arrows") && moving().length) {
        shape.felt = svg("line", { stroke: "transparent", "stroke-width": 16 });
        shape.group.append(shape.felt);
        shape.group.style.cursor = "pointer";
        shape.group.onclick = () => choose(name);
        shape.group.onpointerenter = () => { if (!dragging) set("hover", name); };
        shape.group.onpointerleave = () => set("hover", "");
      }
      return shape;
    });
    const order = [...shapes].sort((a, b) => (a.m >= 0) - (b.m >= 0));    // handles lie on top
    front.replaceChildren(...order.map((s) => s.group), ...order.map((s) => s.text));
    buildTools();
  }

  function drawArrows() {
    const all = places(), origin = at([0, 0]), arrows = model.get("arrows");
    shapes.forEach((s) => {
      const tip = at(all[s.i]), shown = Number.isFinite(tip[0]), role = model.get("roles")[s.i], chosen = product() === labels()[s.i];
      s.group.style.display = s.text.style.display = shown ? "" : "none";
      s.at = shown ? tip : null;
      if (!shown) return;
      s.line.style.display = arrows ? "" : "none";
      const short = Math.hypot(tip[0] - origin[0], tip[1] - origin[1]), cut = Math.max(0, 1 - 8 / (short || 1));
      put(s.line, { x1: origin[0], y1: origin[1], x2: origin[0] + cut * (tip[0] - origin[0]), y2: origin[1] + cut * (tip[1] - origin[1]),
        stroke: tone(role), "stroke-width": chosen ? 4 : 2.5 });
      if (arrows) put(s.tip, { points: corners(tip, origin), fill: tone(role) });
      else put(s.tip, { cx: tip[0], cy: tip[1], r: 5, fill: tone(role) });
      if (s.m >= 0) {
        for (const circle of [s.ring, s.handle, s.felt]) put(circle, { cx: tip[0], cy: tip[1] });
        put(s.handle, { fill: tone(role), stroke: tone(role) });
        put(s.group, { "aria-valuetext": spokenAt(all[s.i]), "aria-valuenow": number(all[s.i][0]) });
      } else if (s.felt) put(s.felt, { x1: origin[0], y1: origin[1], x2: tip[0], y2: tip[1] });
      put(s.text, { fill: tone(role, true) });
    });
    placeLabels(origin, arrows);
    drawGuides(all);
  }

  // Each label takes the place around its tip that covers least, and keeps it while that is still good.
  function placeLabels(origin, arrows) {
    const shown = shapes.filter((s) => s.at), taken = [];
    const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
    for (const s of [...shown].sort((a, b) => (b.m >= 0) - (a.m >= 0))) {
      measure.font = s.text.style.font;
      const half = [measure.measureText(s.text.textContent).width / 2 + 2, 9];
      const away = [s.at[0] - origin[0], s.at[1] - origin[1]], length = Math.hypot(...away) || 1;
      const gap = s.m >= 0 ? HANDLE + 5 : arrows ? 4 : 7;
      let best = null;
      AROUND.forEach(([u, v], k) => {
        const long = Math.hypot(u, v), middle = [s.at[0] + u * (gap / long + half[0]), s.at[1] + v * (gap / long + half[1])];
        const area = [middle[0] - half[0], middle[1] - half[1], middle[0] + half[0], middle[1] + half[1]];
        let cost = arrows ? 1 - (u * away[0] + v * away[1]) / (long * length) : 0.1 * k;
        if (k === s.place) cost -= 0.5;
        if (area[0] < EDGE.left || area[1] < EDGE.top || area[2] > side - EDGE.right || area[3] > EDGE.top + box().size) cost += 12;
        for (const other of taken) if (overlap(area, other)) cost += 10;
        for (const other of shown) {
          const r = other.m >= 0 ? HANDLE : 6;
          if (other !== s && overlap(area, [other.at[0] - r, other.at[1] - r, other.at[0] + r, other.at[1] + r])) cost += 8;
          if (arrows) for (let t = 0.05; t < 1; t += 0.05) {
            const x = origin[0] + t * (other.at[0] - origin[0]), y = origin[1] + t * (other.at[1] - origin[1]);
            if (x > area[0] && x < area[2] && y > area[1] && y < area[3]) { cost += 3; break; }
          }
        }
        if (!best || cost < best.cost) best = { cost, k, middle, area };
      });
      s.place = best.k;
      taken.push(best.area);
      put(s.text, { x: best.middle[0], y: best.middle[1] + 4.5 });
    }
  }

  // The dot product as a projection: the query's line, and the foot of the perpendicular from the key's tip.
  const product = () => model.get("against") || model.get("hover");
  function drawGuides(all) {
    const k = all[labels().indexOf(product())], q = all[moving()[0]];
    const size = q && Math.hypot(...q);
    if (!k || !size || !Number.isFinite(k[0])) { guides.replaceChildren(); return; }
    const share = (q[0] * k[0] + q[1] * k[1]) / size / size, foot = at([q[0] * share, q[1] * share]);
    const [o, far, from] = [at([0, 0]), 2 * side, at(k)], [u, v] = [q[0] / size, -q[1] / size];
    const line = (a, b, more) => svg("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], stroke: "currentColor", ...more });
    const clip = svg("clipPath", { id: clipName }, svg("rect", { x: box().x, y: box().y, width: box().size, height: box().size }));
    const lines = svg("g", { "clip-path": `url(#${clipName})` },
      line([o[0] - far * u, o[1] - far * v], [o[0] + far * u, o[1] + far * v], { stroke: tone(model.get("roles")[moving()[0]]), "stroke-dasharray": "6 5", "stroke-width": 1.5 }),
      line([o[0] - far * v, o[1] + far * u], [o[0] + far * v, o[1] - far * u], { "stroke-dasharray": "1.5 5", "stroke-opacity": "0.7", "stroke-width": 1.5 }),
      line(from, foot, { "stroke-dasharray": "3 3", "stroke-width": 1.5 }),
      line(o, foot, { "stroke-width": 7, "stroke-opacity": "0.45", "stroke-linecap": "round" }));
    const [back_, side_] = [Math.sign(share) || 1, [from[0] - foot[0], from[1] - foot[1]]], long = Math.hypot(...side_);
    if (long > 16) {    // the right angle at the foot
      const [a, b] = [[-9 * u * back_, -9 * v * back_], [9 * side_[0] / long, 9 * side_[1] / long]];
      const way = [[foot[0] + a[0], foot[1] + a[1]], [foot[0] + a[0] + b[0], foot[1] + a[1] + b[1]], [foot[0] + b[0], foot[1] + b[1]]];
      lines.append(svg("polyline", { points: way.map((p) => p.join()).join(" "), fill: "none", stroke: "currentColor" }));
    }
    const end = 0.38 * box().size / Math.max(Math.abs(u), Math.abs(v));    // named on the line, as on a map
    const zero = svg("text", { x: o[0] - end * v, y: o[1] + end * u + 4, fill: "currentColor", "text-anchor": "middle",
      style: "font: 12px system-ui, sans-serif; paint-order: stroke; stroke: var(--jp-layout-color0, var(--pl-back)); stroke-width: 5px" }, "product 0");
    lines.append(zero);
    guides.replaceChildren(clip, lines);
  }

  // The bars: names and axes are built when they change, lengths and numbers at every move.
  function buildBars() {
    const names = model.get("row_names"), columns = model.get("columns");
    chart.style.display = columns.length ? "" : "none";
    if (!columns.length) { rows = []; chart.replaceChildren(); return; }
    measure.font = `bold ${LETTERS}`;
    const room = Math.min(110, Math.max(...names.map((n) => measure.measureText(visible(n)).width))) + 8;
    const row = Math.max(17, Math.min(26, (high() - 46 * columns.length) / (names.length * columns.length)));
    put(chart, { width: wide, height: columns.length * (names.length * row + 46) });
    rows = [];
    const nodes = [];
    const text = (x, y, words, more = {}) => svg("text", { x, y, fill: "currentColor", "text-anchor": "middle", style: "font: 12px system-ui, sans-serif", ...more }, words);
    columns.forEach(([title, low, top, role], c) => {
      const y = c * (names.length * row + 46) + 20, number = 46;
      const left = room + (low < 0 ? number : 0), right = wide - number, scale = (right - left) / (top - low), zero = left - low * scale;
      const end = y + names.length * row;
      nodes.push(svg("line", { x1: left, y1: end, x2: right, y2: end, stroke: "currentColor", "stroke-opacity": "0.3" }));
      nodes.push(text((left + right) / 2, y - 7, title, { style: "font: 600 13px system-ui, sans-serif" }));
      for (const value of low < 0 ? [low, 0, top] : [low, top]) {
        const x = zero + value * scale;
        nodes.push(svg("line", { x1: x, y1: value ? end : y, x2: x, y2: end + 4, stroke: "currentColor", "stroke-opacity": "0.6" }));
        nodes.push(text(x, end + 16, String(value).replace("-", "−")));
      }
      names.forEach((name, r) => {
        const middle = y + (r + 0.5) * row, held_ = svg("rect", { x: 0, y: y + r * row, width: wide, height: row, fill: "currentColor", "fill-opacity": "0.08" });
        const label = text(room - 8, middle + 4.5, clipped(name, room), { "text-anchor": "end", style: `font: ${font(name)}` });
        const bar = svg("rect", { y: middle - 0.36 * row, height: 0.72 * row, rx: 1.5 }), said = text(0, middle + 4.5, "", { style: "font: 12px system-ui, sans-serif; font-variant-numeric: tabular-nums" });
        nodes.push(held_, label, bar, said);
        rows.push({ name, bar, said, held: held_, zero, scale, low, top, role });
      });
    });
    chart.replaceChildren(...nodes);
  }

  function clipped(name, room) {
    let text = visible(name);
    while (text.length > 2 && measure.measureText(text).width > room) text = `${text.slice(0, -2)}…`;
    return text;
  }

  function drawBars() {
    const values = floats(model, "values");
    rows.forEach((r, n) => {
      const value = values[n], known = value !== undefined, length = known ? Math.max(r.low, Math.min(r.top, value)) * r.scale : 0;
      put(r.bar, { x: r.zero + Math.min(0, length), width: Math.abs(length), fill: tone(r.role) });
      put(r.said, { x: r.zero + length + (length < 0 ? -5 : 5), "text-anchor": length < 0 ? "end" : "start" });
      r.said.textContent = known ? number(value).replace("-", "−") : "–";
      r.held.style.display = r.name === product() ? "" : "none";
    });
  }

  const spokenAt = ([x, y]) => `(${number(x)}, ${number(y)})`.replaceAll("-", "−");
  const digits = () => Math.max(0, 1 - Math.round(Math.log10(model.get("step"))));    // a hand is read a tenth of a key press fine
  const set = (name, value) => {
    if (model.get(name) === value) return;
    model.set(name, value);
    model.save_changes();
  };
  const choose = (name) => set("against", model.get("against") === name ? "" : name);
  function go(m, [x, y]) {
    notice = "";
    const [left, right, low, top] = model.get("area"), round = (v) => Number(v.toFixed(digits()));
    const tip = [round(Math.max(left, Math.min(right, x))), round(Math.max(low, Math.min(top, y)))];
    if (tip.every((v, k) => v === model.get("tips")[m][k])) return;
    set("tips", model.get("tips").map((old, k) => (k === m ? tip : old)));
  }

  function hold(shape) {
    const { group, m } = shape, by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    group.onpointerdown = (event) => {
      if (event.button) return;
      event.preventDefault();
      group.focus({ preventScroll: true });
      group.setPointerCapture(event.pointerId);
      const corner = plane.getBoundingClientRect(), [x, y] = shape.at;
      dragging = { m, corner: [event.clientX - x, event.clientY - y], scroll: [corner.left, corner.top] };
      group.style.cursor = "grabbing";
    };
    group.onpointermove = (event) => {
      if (!dragging || dragging.m !== m) return;
      const corner = plane.getBoundingClientRect(), [left, , , top] = model.get("area");
      const x = event.clientX - dragging.corner[0] - (corner.left - dragging.scroll[0]);
      const y = event.clientY - dragging.corner[1] - (corner.top - dragging.scroll[1]);
      go(m, [left + (x - EDGE.left) / unit(), top - (y - EDGE.top) / unit()]);
    };
    group.onpointerup = group.onpointercancel = () => { dragging = null; group.style.cursor = "grab"; };
    group.onfocus = () => {
      held = m;
      put(shape.ring, { visibility: group.matches(":focus-visible") ? "visible" : "hidden" });
      tell();
    };
    group.onblur = () => put(shape.ring, { visibility: "hidden" });
    bag.dom(group, "keydown", (event) => {
      if (!by[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
      put(shape.ring, { visibility: "visible" });
      const size = model.get("step") * (event.shiftKey ? 5 : 1), [x, y] = model.get("tips")[m], [u, v] = by[event.key];
      go(m, [x + size * u, y + size * v]);
      event.preventDefault();
      event.stopPropagation();
    });
  }

  function buildTools() {
    const button = (textContent, onclick) => h("button", { className: "pl-button", textContent, onclick });
    const others = labels().filter((_, i) => i !== moving()[0]), parts = [];
    if (moving().length && model.get("arrows") && others.length) {
      menu.replaceChildren(...["", ...others].map((name) => h("option", { value: name, textContent: name ? visible(name) : "no word" })));
      parts.push(h("label", { className: "pl-status", textContent: "Dot product with " }, menu));
    }
    if (moving().length) {
      for (const [name, x, y] of model.get("directions")) for (const [sign, word] of [[1, "+"], [-1, "−"]]) {
        parts.push(button(`${word} ${name}`, () => {
          const tip = model.get("tips")[held], next = [tip[0] + sign * x, tip[1] + sign * y];
          if (inside(next)) go(held, next);
          else { notice = `${labels()[moving()[held]]} ${word} ${name} would leave the plane.`; tell(); }
        }));
      }
      parts.push(button("Start again", () => { notice = ""; set("tips", model.get("start").map((tip) => [...tip])); }));
    }
    tools.replaceChildren(...parts, ...save);
    status.style.minHeight = moving().length ? "2.9em" : "0";    // room kept, so that a longer sentence does not move the page
    below.style.height = moving().length ? "5.2em" : "2.9em";
  }

  const tell = () => {
    const name = labels()[moving()[held]], by = model.get("step"), words = product();
    status.textContent = notice || (name === undefined ? "" :
      `${visible(name)} is at ${spokenAt(model.get("tips")[held])}. Drag its round handle, or Tab to it and press arrow keys (${by}, with Shift ${Number((5 * by).toPrecision(3))}).` +
      (model.get("against") ? ` Held: ${visible(words)}. Esc or a second click lets go.` : menu.isConnected ? " Click another arrow for its dot product." : ""));
    detail.textContent = model.get("detail");
    detail.hidden = Boolean(model.get("error"));
    menu.value = model.get("against");
  };

  let reading = 0;
  const draw = onFrame(() => {
    drawArrows();
    drawBars();
    tell();
    clearTimeout(reading);
    reading = setTimeout(readAloud, 150);
  });

  // A real table behind the picture, and what is said aloud, renewed once the moves have ended.
  function readAloud() {
    const columns = model.get("columns"), names = model.get("row_names"), values = floats(model, "values"), cell = (t) => h("td", { textContent: t });
    const heads = ["arrow", ...model.get("axis_names"), ...columns.map((c) => c[0])].map((textContent) => h("th", { scope: "col", textContent }));
    const row = (name, cells) => h("tr", {}, h("th", { scope: "row", textContent: visible(name) }), ...cells.map(cell));
    const bars = (name) => columns.map((_, c) => { const v = values[c * names.length + names.indexOf(name)]; return v === undefined ? "" : number(v); });
    const all = places(), rest = names.filter((name) => !labels().includes(name));
    table.replaceChildren(h("caption", { textContent: "Arrows of the plane and the numbers beside it" }), h("tr", {}, ...heads),
      ...labels().map((name, i) => row(name, [...all[i].map((v) => (Number.isFinite(v) ? number(v) : "not shown")), ...bars(name)])),
      ...rest.map((name) => row(name, ["", "", ...bars(name)])));
    const said = moving().length ? `${labels()[moving()[held]]} at ${spokenAt(model.get("tips")[held])}. ${model.get("detail")}` : "";
    if (spoken.textContent !== said) spoken.textContent = said;
  }

  function fit() {    // the sizes follow the width of the page and nothing else, so that nothing jumps
    const room = root.clientWidth || 760, beside = room >= 540;
    side = Math.round(beside ? Math.max(300, Math.min(440, 0.56 * room)) : Math.min(440, room));
    wide = Math.round(beside ? Math.min(380, room - side - 18) : Math.min(440, room));
    again();
  }
  const again = () => { drawGrid(); buildBars(); draw(); };

  const save = saveButtons(model, bag);
  menu.onchange = () => set("against", menu.value);
  bag.dom(root, "keydown", (event) => { if (event.key === "Escape" && model.get("against")) { set("against", ""); event.stopPropagation(); } });
  bag.change(["labels", "moving"], () => { build(); draw(); });
  bag.change(["row_names", "columns"], () => { buildBars(); draw(); });
  bag.change(["area", "directions", "grid", "axis_names"], again);
  bag.change(["points", "tips", "roles", "values", "against", "hover", "detail", "error"], draw);
  watchTheme(bag, again);
  const watch = new ResizeObserver(onFrame(() => { if (root.clientWidth) fit(); }));
  watch.observe(root);
  build();
  fit();
  return () => { draw.cancel(); clearTimeout(reading); watch.disconnect(); bag.close(); };
}

export default { render };
