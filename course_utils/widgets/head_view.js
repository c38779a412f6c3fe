// HeadView: small grids to choose a head from, and its lines between two sentences, as Python chose them.

const BLUE = "0,114,178", LIGHT_BLUE = "107,183,232";    // the query's colour, on light and on dark
const TOKEN_FONT = "13px system-ui, sans-serif";
const LABEL_WIDTH = 128;

function render({ model, el }) {
  const bag = listeners(model, el);
  const heads = h("canvas", { tabIndex: 0, role: "application" });
  const canvas = h("canvas", { tabIndex: 0, role: "application" });
  const status = h("div", { className: "pl-status pl-two" });
  status.setAttribute("aria-live", "polite");
  const detail = h("div", { className: "pl-head-detail" });
  const table = h("table", { className: "pl-hidden" });
  const root = h("div", { className: "pl-view", "data-lm-suppress-shortcuts": "true" },
    errorLine(model, bag), h("div", { className: "pl-heads" }, h("div", { className: "pl-scroll" }, heads), h("div", { className: "pl-scroll" }, canvas)),
    table, status, detail, h("div", { className: "pl-tools" }, ...saveButtons(model, bag)));
  el.append(root);
  let grid = null, box = null;    // where things stand, as drawn last

  const chosen = () => (model.get("held").length ? model.get("held") : model.get("hover"));
  const namesOf = (side) => model.get(side === "query" ? "query_names" : "key_names");
  const other = (side) => (side === "query" ? "key" : "query");
  const same = (a, b) => a.length === b.length && a.every((value, i) => value === b[i]);
  const set = (changes) => {
    let any = false;
    for (const [name, value] of Object.entries(changes)) {
      const old = model.get(name);
      if (Array.isArray(value) ? same(old, value) : old === value) continue;
      model.set(name, value);
      any = true;
    }
    if (any) model.save_changes();
  };

  function paintHeads() {
    const [n_layers, n_heads, rows, columns] = model.get("small_shape");
    const cell = Math.floor(Math.max(13, Math.min(92, 270 / n_heads, 330 / n_layers)));
    grid = { n_layers, n_heads, cell, step: cell + 4, left: 44, top: 40 };
    const context = sized(heads, grid.left + n_heads * grid.step + 4, grid.top + n_layers * grid.step + 4);
    const small = bytes(model, "small"), colors = bytes(model, "colors"), palette = theme(root);
    if (!small.length) return;
    const image = new ImageData(columns, rows * n_layers * n_heads);    // all grids one below the other
    small.forEach((value, i) => {
      for (let p = 0; p < 3; p++) image.data[4 * i + p] = colors[3 * value + p];
      image.data[4 * i + 3] = 255;
    });
    const source = new OffscreenCanvas(image.width, image.height);
    source.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.font = TOKEN_FONT;
    context.fillStyle = palette.ink;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const each = grid.step < 18 ? 2 : 1;
    for (let l = 0; l < n_layers; l++) for (let k = 0; k < n_heads; k++) {
      const x = grid.left + k * grid.step, y = grid.top + l * grid.step;
      context.drawImage(source, 0, (l * n_heads + k) * rows, columns, rows, x, y, cell, cell);
      if (l === 0 && k % each === 0) context.fillText(String(k), x + cell / 2, grid.top - 10);
      if (k === 0 && l % each === 0) context.fillText(String(l), grid.left - 13, y + cell / 2);
    }
    context.textAlign = "left";
    context.fillText("head →", grid.left, 9);
    context.save();
    context.translate(9, grid.top);
    context.rotate(-Math.PI / 2);
    context.textAlign = "right";
    context.fillText("← layer", 0, 0);
    context.restore();
    context.strokeStyle = "#D55E00";
    context.lineWidth = 3;
    context.strokeRect(grid.left + model.get("head") * grid.step - 1.5, grid.top + model.get("layer") * grid.step - 1.5, cell + 3, cell + 3);
  }

  function paintLines() {
    const queries = model.get("query_names"), keys = model.get("key_names");
    const most = Math.max(queries.length, keys.length, 1), roomy = most <= model.get("room");
    const high = roomy ? Math.min(24, Math.max(20, 300 / most)) : 640 / most;
    const free = (root.clientWidth || 760) - (grid.left + grid.n_heads * grid.step + 40);
    const width = Math.max(360, Math.min(600, free));
    box = { high, top: 30, left: LABEL_WIDTH + 12, right: width - LABEL_WIDTH - 12, width, roomy };
    const context = sized(canvas, width, box.top + most * high + 4);
    const palette = theme(root), lines = floats(model, "lines");
    context.font = TOKEN_FONT;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillStyle = palette.dark ? "#6BB7E8" : "#0072B2";
    context.fillText("query: looks", box.left - 6, 11);
    context.textAlign = "left";
    context.fillStyle = palette.dark ? "#E69F00" : "#8A5F00";
    context.fillText("key: looked at", box.right + 6, 11);
    const ink = palette.dark ? LIGHT_BLUE : BLUE, middle = (box.left + box.right) / 2;
    for (let n = 0; n < lines.length; n += 3) {
      const from = box.top + (lines[n] + 0.5) * high, to = box.top + (lines[n + 1] + 0.5) * high, weight = lines[n + 2];
      context.strokeStyle = `rgba(${ink},${Math.min(1, Math.max(0.06, weight)).toFixed(3)})`;
      context.lineWidth = 1.2 + 1.8 * weight;
      context.beginPath();
      context.moveTo(box.left, from);
      context.bezierCurveTo(middle, from, middle, to, box.right, to);
      context.stroke();
    }
    for (const side of ["query", "key"]) paintTokens(context, side, palette);
  }

  // The tokens of one side: the chosen one solid, those of the other side coloured by their weight.
  function paintTokens(context, side, palette) {
    const names = namesOf(side), where = chosen(), marked = model.get("marked");
    const given = where.length && where[0] !== side ? floats(model, "given") : null;
    const high = box.high, x = side === "query" ? box.left : box.right, out = side === "query" ? -1 : 1;
    const middle = (i) => box.top + (i + 0.5) * high;
    const isChosen = (i) => where[0] === side && where[1] === i;
    const plate = Math.max(2, Math.min(19, high - 1));
    const edge = out < 0 ? x - LABEL_WIDTH - 4 : x;
    names.forEach((_, i) => {
      const weight = isChosen(i) ? 1 : given ? given[i] : 0;
      if (weight < 0.005) return;
      context.fillStyle = isChosen(i) ? `rgb(${BLUE})` : `rgba(${palette.dark ? LIGHT_BLUE : BLUE},${((palette.dark ? 0.62 : 0.85) * weight).toFixed(3)})`;
      context.fillRect(edge, middle(i) - plate / 2, LABEL_WIDTH + 4, plate);
    });
    let order = names.map((_, i) => i);
    if (!box.roomy) {    // no room for all: the chosen ones first, then what fits between
      if (given) order = order.filter((i) => given[i] >= 0.01).sort((a, b) => given[b] - given[a]);
      order = [...order.filter(isChosen), ...order.filter((i) => !isChosen(i))];
    }
    const taken = [];
    for (const i of order) {
      const y = middle(i);
      if (!box.roomy && taken.some((t) => Math.abs(t - y) < 15)) continue;
      taken.push(y);
      const told = given && given[i] >= 0.01 && box.roomy;    // the weight stands at the far end of the token's plate
      const solid = isChosen(i) || (given && given[i] > 0.5);
      context.font = `${marked.includes(names[i].trim()) || isChosen(i) ? "bold " : ""}${TOKEN_FONT}`;
      if (isChosen(i) && !box.roomy) {
        context.fillStyle = `rgb(${BLUE})`;
        context.fillRect(edge, y - 9, LABEL_WIDTH + 4, 18);
      }
      context.fillStyle = solid && (box.roomy || isChosen(i)) ? "#fff" : palette.ink;
      context.textAlign = out < 0 ? "right" : "left";
      context.fillText(shortened(context, visible(names[i]), LABEL_WIDTH - (told ? 46 : 8)), x + out * 7, y);
      if (!told) continue;
      context.font = TOKEN_FONT;
      context.textAlign = out < 0 ? "left" : "right";
      context.fillText(number(given[i]), x + out * (LABEL_WIDTH - 2), y);
    }
  }

  const draw = onFrame(() => { paintHeads(); paintLines(); readAloud(); });

  let reading = 0;
  function readAloud() {    // a real table behind the picture, renewed once the moves have ended
    clearTimeout(reading);
    reading = setTimeout(() => {
      const where = chosen(), lines = floats(model, "lines"), rows = [];
      if (where.length) {
        const names = namesOf(other(where[0]));
        floats(model, "given").forEach((weight, i) => rows.push([visible(names[i]), number(weight)]));
      } else {
        for (let n = lines.length - 3; n >= 0 && rows.length < 40; n -= 3) {
          rows.push([`${visible(namesOf("query")[lines[n]])} to ${visible(namesOf("key")[lines[n + 1]])}`, number(lines[n + 2])]);
        }
      }
      const head = h("tr", {}, ...[where.length ? other(where[0]) : "query to key", "weight"].map((text) => h("th", { scope: "col", textContent: text })));
      table.replaceChildren(h("caption", { textContent: model.get("detail") }), head,
        ...rows.map((row) => h("tr", {}, ...row.map((text) => h("td", { textContent: text })))));
    }, 120);
  }

  function tell() {
    const held = model.get("held");
    status.textContent = held.length
      ? `Held: ${held[0]} ${visible(namesOf(held[0])[held[1]])}. Esc or a second click lets go.`
      : "A small grid is a head: rows are queries, columns keys, dark is much. Click one, or point at a token; " +
        "a click or Enter holds it, arrow keys move.";
    detail.textContent = model.get("detail");
    heads.setAttribute("aria-label", `Heads: layers down, heads across. Layer ${model.get("layer")}, head ${model.get("head")} is chosen. Arrow keys choose.`);
    canvas.setAttribute("aria-label", `Lines between queries and keys. ${status.textContent} ${detail.textContent}`);
  }

  function under(event) {
    if (!box) return [];
    const area = canvas.getBoundingClientRect(), x = event.clientX - area.left;
    const side = x < box.left + 8 ? "query" : x > box.right - 8 ? "key" : "";
    const i = Math.floor((event.clientY - area.top - box.top) / box.high);
    return side && i >= 0 && i < namesOf(side).length ? [side, i] : [];
  }
  bag.dom(canvas, "pointermove", (event) => set({ hover: under(event) }));
  bag.dom(canvas, "pointerleave", () => set({ hover: [] }));
  bag.dom(canvas, "click", (event) => set({ held: same(under(event), model.get("held")) ? [] : under(event) }));
  bag.dom(canvas, "keydown", (event) => {
    const where = chosen(), trait = model.get("held").length ? "held" : "hover";
    const [side, i] = where.length ? where : ["query", -1];
    const to = (s, n) => set({ [trait]: [s, Math.max(0, Math.min(namesOf(s).length - 1, n))] });
    const keys = {
      ArrowDown: () => to(side, i + 1), ArrowUp: () => to(side, i - 1), PageDown: () => to(side, i + 10), PageUp: () => to(side, i - 10),
      Home: () => to(side, 0), End: () => to(side, namesOf(side).length - 1), ArrowLeft: () => to("query", i), ArrowRight: () => to("key", i),
      Enter: () => set({ held: model.get("held").length ? [] : where }), Escape: () => set({ held: [], hover: [] }),
    };
    keys[" "] = keys.Enter;
    act(event, keys);
  });
  bag.dom(heads, "pointermove", (event) => { heads.style.cursor = smallUnder(event) ? "pointer" : ""; });
  bag.dom(heads, "click", (event) => { const place = smallUnder(event); if (place) set(place); });
  bag.dom(heads, "keydown", (event) => {
    const to = (down, right) => set({
      layer: Math.max(0, Math.min(grid.n_layers - 1, model.get("layer") + down)),
      head: Math.max(0, Math.min(grid.n_heads - 1, model.get("head") + right)),
    });
    act(event, { ArrowDown: () => to(1, 0), ArrowUp: () => to(-1, 0), ArrowLeft: () => to(0, -1), ArrowRight: () => to(0, 1) });
  });
  function smallUnder(event) {
    if (!grid) return null;
    const area = heads.getBoundingClientRect();
    const head = Math.floor((event.clientX - area.left - grid.left) / grid.step);
    const layer = Math.floor((event.clientY - area.top - grid.top) / grid.step);
    return head < 0 || layer < 0 || head >= grid.n_heads || layer >= grid.n_layers ? null : { layer, head };
  }
  function act(event, keys) {
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }

  bag.change(["small", "small_shape", "layer", "head", "held", "hover", "lines", "given", "query_names", "key_names"], draw);
  bag.change(["detail", "held"], tell);
  watchTheme(bag, draw);
  const resized = new ResizeObserver(draw);
  resized.observe(root);
  bag.also(() => resized.disconnect());
  tell();
  draw();
  return () => { draw.cancel(); clearTimeout(reading); bag.close(); };
}

export default { render };
