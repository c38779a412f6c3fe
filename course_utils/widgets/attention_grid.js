// AttentionGrid: the state is Python's; here it is drawn, and hovered or held cells are sent back.

const LABEL_FONT = "13px system-ui, sans-serif";
const MOST_NUMBERS = 16;    // beyond this many tokens: no numbers
const MOST_ROWS_READ = 40;  // beyond this many rows: no table for the screen reader

function render({ model, el }) {
  const bag = listeners(model, el);
  const canvas = h("canvas", { tabIndex: 0, role: "application" });
  const status = h("div", { className: "pl-status" });
  status.setAttribute("aria-live", "polite");
  const detail = h("div", { className: "pl-detail" });
  const strip = h("div", { className: "pl-strip" });
  strip.setAttribute("aria-hidden", "true");
  const table = h("table", { className: "pl-hidden" });
  // JupyterLab would move its own cells with the arrow keys
  const root = h("div", { className: "pl-view", "data-lm-suppress-shortcuts": "true" },
    errorLine(model, bag), h("div", { className: "pl-scroll" }, canvas), table, strip, status, detail,
    h("div", { className: "pl-tools" },
      switchButton(model, bag, "look", ["numbers", "blobs"], ["Show blobs", "Show numbers"]),
      switchButton(model, bag, "layout_name", ["rows", "article"], ["Queries across the top", "Queries down the side"]),
      ...saveButtons(model, bag)));
  el.append(root);
  let box = null;    // where the cells stand, as drawn last

  const turned = () => model.get("layout_name") === "article";
  const held = () => (model.get("cell").length ? model.get("cell") : model.get("hover"));

  function measure() {
    const [T_q, T_k] = model.get("shape");
    const [down, across] = turned() ? [model.get("key_names"), model.get("query_names")] : [model.get("query_names"), model.get("key_names")];
    const [rows, columns] = turned() ? [T_k, T_q] : [T_q, T_k];
    const most = Math.max(rows, columns);
    const text = canvas.getContext("2d");
    text.font = `bold ${LABEL_FONT}`;
    const width = (names) => Math.min(130, Math.max(10, ...names.slice(0, 200).map((t) => text.measureText(visible(t)).width)));
    const left = 30 + width(down);
    const room = Math.max(320, (root.clientWidth || 760) - left - 30);
    let wide = Math.max(1, Math.floor(620 / most)), high = wide;
    if (most <= MOST_NUMBERS) {
      wide = Math.min(58, Math.max(34, room / columns));
      high = model.get("look") === "blobs" ? Math.min(wide, 44) : 32;
      if (model.get("look") === "blobs") wide = high;
    }
    const flat = width(across) <= wide - 6;
    const top = 26 + (flat ? 18 : 12 + 0.71 * width(across));
    const right = flat ? 12 : 12 + 0.71 * width(across);
    return { rows, columns, wide, high, left, top, right, flat, down, across, most };
  }

  function paintCells(context, b) {
    const values = floats(model, "values"), hidden = bytes(model, "hidden");
    const colors = bytes(model, "colors");
    const weights = model.get("kind") === "weights", limit = model.get("limit");
    const at = (row, column) => (turned() ? column * b.rows + row : row * b.columns + column);
    const shade = (value) => {
      const share = weights ? value : (value / limit + 1) / 2;
      return 3 * Math.max(0, Math.min(255, Math.round(255 * share)));
    };
    const blobs = model.get("look") === "blobs", dark = theme(root).dark;
    if (b.most > 64 && !blobs) {    // one pixel a cell, then stretched: 512 tokens draw in one go
      const image = new ImageData(b.columns, b.rows);
      for (let r = 0; r < b.rows; r++) for (let c = 0; c < b.columns; c++) {
        const k = shade(values[at(r, c)]), to = 4 * (r * b.columns + c), off = hidden[at(r, c)];
        for (let p = 0; p < 3; p++) image.data[to + p] = off ? 221 : colors[k + p];
        image.data[to + 3] = 255;
      }
      const small = new OffscreenCanvas(b.columns, b.rows);
      small.getContext("2d").putImageData(image, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, b.left, b.top, b.columns * b.wide, b.rows * b.high);
      return;
    }
    const gap = b.high > 12 ? 1 : 0;
    let biggest = 1e-12;
    if (blobs) for (const value of values) biggest = Math.max(biggest, Math.abs(value));
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = "12px system-ui, sans-serif";
    for (let r = 0; r < b.rows; r++) for (let c = 0; c < b.columns; c++) {
      const x = b.left + c * b.wide, y = b.top + r * b.high, value = values[at(r, c)];
      if (hidden[at(r, c)]) { hatch(context, x, y, b.wide - gap, b.high - gap, dark); continue; }
      const k = shade(value), ink = `rgb(${colors[k]},${colors[k + 1]},${colors[k + 2]})`;
      if (blobs) {
        context.strokeStyle = "rgba(128,128,128,0.25)";
        context.lineWidth = 1;
        context.strokeRect(x, y, b.wide, b.high);
        context.fillStyle = value < 0 ? "#7A7A7A" : dark ? "#56B4E9" : "#0072B2";
        context.beginPath();
        context.arc(x + b.wide / 2, y + b.high / 2, 0.46 * b.high * Math.sqrt(Math.abs(value) / biggest), 0, 7);
        context.fill();
        continue;
      }
      context.fillStyle = ink;
      context.fillRect(x, y, b.wide - gap, b.high - gap);
      if (b.most <= MOST_NUMBERS) {
        const light = 0.299 * colors[k] + 0.587 * colors[k + 1] + 0.114 * colors[k + 2];
        context.fillStyle = light > 140 ? "#222" : "#fff";
        context.fillText(number(value), x + b.wide / 2, y + b.high / 2);
      }
    }
  }

  function hatch(context, x, y, wide, high, dark) {
    context.fillStyle = dark ? "#3A3A3A" : "#DDDDDD";
    context.fillRect(x, y, wide, high);
    if (high < 6) return;
    context.save();
    context.beginPath();
    context.rect(x, y, wide, high);
    context.clip();
    context.strokeStyle = dark ? "#777777" : "#9A9A9A";
    context.lineWidth = 0.8;
    for (let d = -high; d < wide; d += 7) {
      context.beginPath();
      context.moveTo(x + d, y + high);
      context.lineTo(x + d + high, y);
      context.stroke();
    }
    context.restore();
  }

  function paintLabels(context, b, colors) {
    const marked = model.get("marked");
    const each = Math.max(1, Math.ceil(16 / b.high));    // with many tokens only every n-th is named
    const font = (token) => `${marked.includes(token.trim()) ? "bold " : ""}${LABEL_FONT}`;
    context.fillStyle = colors.ink;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (let r = 0; r < b.rows; r += each) {
      context.font = font(b.down[r]);
      context.fillText(clip(context, visible(b.down[r])), b.left - 8, b.top + (r + 0.5) * b.high);
    }
    for (let c = 0; c < b.columns; c += each) {
      context.font = font(b.across[c]);
      context.save();
      context.translate(b.left + (c + 0.5) * b.wide, b.top - 8);
      if (!b.flat) context.rotate(-Math.PI / 4);
      context.textAlign = b.flat ? "center" : "left";
      context.fillText(clip(context, visible(b.across[c])), 0, b.flat ? -4 : 0);
      context.restore();
    }
    const names = [["query: looks", colors.dark ? "#6BB7E8" : "#0072B2"], ["key: looked at", colors.dark ? "#E69F00" : "#8A5F00"]];
    const [side, above] = turned() ? [names[1], names[0]] : names;
    context.font = LABEL_FONT;
    context.textAlign = "center";
    context.fillStyle = above[1];
    context.fillText(above[0], b.left + (b.columns * b.wide) / 2, 10);
    context.fillStyle = side[1];
    if (context.measureText(side[0]).width > b.rows * b.high) {    // too few rows to stand beside: it lies in the corner
      context.textAlign = "right";
      context.fillText(side[0], b.left - 8, 10);
      return;
    }
    context.save();
    context.translate(10, b.top + (b.rows * b.high) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(side[0], 0, 0);
    context.restore();
  }

  function clip(context, text) {
    if (context.measureText(text).width <= 130) return text;
    while (text.length > 1 && context.measureText(text + "…").width > 130) text = text.slice(0, -1);
    return text + "…";
  }

  function paintChoice(context, b) {
    const where = held();
    if (!where.length) return;
    const [row, column] = turned() ? [where[1], where[0]] : where;
    context.strokeStyle = "#0072B2";
    context.lineWidth = 1.5;
    if (turned()) context.strokeRect(b.left + column * b.wide, b.top, b.wide, b.rows * b.high);
    else context.strokeRect(b.left, b.top + row * b.high, b.columns * b.wide, b.high);
    context.strokeStyle = "#D55E00";
    context.lineWidth = model.get("cell").length ? 3 : 2;
    context.strokeRect(b.left + column * b.wide, b.top + row * b.high, b.wide, b.high);
  }

  const draw = onFrame(() => {
    box = box || measure();    // to measure makes the browser lay the page out: not for each new number
    const context = sized(canvas, box.left + box.columns * box.wide + box.right, box.top + box.rows * box.high + 4);
    paintCells(context, box);
    paintLabels(context, box, theme(root));
    paintChoice(context, box);
    paintStrip();
    readAloud();
  });

  // The tokens coloured by how much the chosen query gives them.
  function paintStrip() {
    const where = held(), [T_q, T_k] = model.get("shape");
    const show = where.length && model.get("kind") === "weights" && T_k <= 64;
    if (!show) {
      if (strip.childElementCount !== 1) strip.replaceChildren(h("span", { className: "pl-token", textContent: "\u00a0" }));
      return;
    }
    const row = floats(model, "values").subarray(where[0] * T_k, (where[0] + 1) * T_k);
    strip.replaceChildren(...model.get("key_names").map((token, j) => {
      const span = h("span", { className: "pl-token", textContent: visible(token) });
      span.style.background = `rgba(0,114,178,${(0.85 * row[j]).toFixed(3)})`;
      if (row[j] > 0.5) span.style.color = "#fff";
      return span;
    }));
  }

  let reading = 0;
  function readAloud() {    // a real table behind the picture, renewed once the moves have ended
    clearTimeout(reading);
    reading = setTimeout(() => {
      const [T_q, T_k] = model.get("shape");
      if (T_q > MOST_ROWS_READ || T_k > MOST_ROWS_READ) {
        table.replaceChildren(h("caption", { textContent: `Grid of ${T_q} queries by ${T_k} keys, too large to read out.` }));
        return;
      }
      const values = floats(model, "values"), hidden = bytes(model, "hidden");
      const head = h("tr", {}, h("th", { textContent: "query \\ key" }), ...model.get("key_names").map((k) => h("th", { scope: "col", textContent: visible(k) })));
      const body = model.get("query_names").map((q, i) => h("tr", {}, h("th", { scope: "row", textContent: visible(q) }),
        ...model.get("key_names").map((_, j) => h("td", { textContent: hidden[i * T_k + j] ? "masked" : number(values[i * T_k + j]) }))));
      table.replaceChildren(h("caption", { textContent: `${model.get("kind")}: rows are queries, columns are keys` }), head, ...body);
    }, 120);
  }

  const tell = () => {
    const where = model.get("cell");
    status.textContent = where.length
      ? `Held: query ${model.get("query_names")[where[0]]}, key ${model.get("key_names")[where[1]]}. Esc or a second click lets go.`
      : "Point at a cell to read it; click or Enter holds it, arrow keys move.";
    detail.textContent = model.get("detail");
    canvas.setAttribute("aria-label", `Attention grid. ${status.textContent} ${detail.textContent}`);
  };

  function under(event) {
    if (!box) return [];
    const area = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - area.left - box.left) / box.wide);
    const row = Math.floor((event.clientY - area.top - box.top) / box.high);
    if (row < 0 || column < 0 || row >= box.rows || column >= box.columns) return [];
    return turned() ? [column, row] : [row, column];
  }
  const same = (a, b) => a.length === b.length && a.every((value, i) => value === b[i]);
  const set = (name, value) => {
    if (same(model.get(name), value)) return;
    model.set(name, value);
    model.save_changes();
  };
  bag.dom(canvas, "pointermove", (event) => set("hover", under(event)));
  bag.dom(canvas, "pointerleave", () => set("hover", []));
  bag.dom(canvas, "click", (event) => set("cell", same(under(event), model.get("cell")) ? [] : under(event)));
  bag.dom(canvas, "keydown", (event) => {
    const [T_q, T_k] = model.get("shape");
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Escape") set("cell", []);
    else if (event.key === "Enter" || event.key === " ") set("cell", model.get("cell").length ? [] : model.get("hover"));
    else if (steps[event.key]) {
      const [down, right] = turned() ? [steps[event.key][1], steps[event.key][0]] : steps[event.key];
      const [i, j] = held().length ? held() : [0, 0];
      const next = [Math.max(0, Math.min(T_q - 1, i + down)), Math.max(0, Math.min(T_k - 1, j + right))];
      set(model.get("cell").length ? "cell" : "hover", held().length ? next : [0, 0]);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  const drawAnew = () => { box = null; draw(); };
  bag.change(["values", "cell", "hover", "hidden", "limit"], draw);
  bag.change(["shape", "look", "layout_name", "query_names", "key_names"], drawAnew);
  let width = 0;
  const resized = new ResizeObserver(() => { if (root.clientWidth !== width) { width = root.clientWidth; drawAnew(); } });
  resized.observe(root);
  bag.also(() => resized.disconnect());
  bag.change(["detail", "cell"], tell);
  watchTheme(bag, draw);
  tell();
  draw();
  return () => { draw.cancel(); clearTimeout(reading); bag.close(); };
}

export default { render };
