// NextToken: bars of probabilities as Python made them. What is cut off stays, hatched, with what it had.

const ROW = 26;    // pixels

function render({ model, el }) {
  const bag = listeners(model, el);
  const summary = h("div", { className: "pl-summary" });
  summary.setAttribute("aria-live", "polite");
  const list = h("div", { className: "pl-bars", role: "group", "aria-label": "Next tokens, likeliest first" });
  const axis = h("div", { className: "pl-axis", "aria-hidden": "true" });
  const hint = h("div", { className: "pl-status pl-two" });
  const detail = h("div", { className: "pl-token-detail" });
  detail.setAttribute("aria-live", "polite");
  const table = h("table", { className: "pl-hidden" });
  const root = h("div", { className: "pl-view", "data-lm-suppress-shortcuts": "true" },
    summary, errorLine(model, bag), list, axis, table, hint, detail,
    h("div", { className: "pl-tools" },
      switchButton(model, bag, "scale", ["one", "largest"], ["Axis to the largest bar", "Axis from 0 to 1"]), ...saveButtons(model, bag)));
  el.append(root);
  const rows = [];    // made once and changed in place, so that focus stays
  let at = 0, over = -1;

  const set = (name, value) => {
    if (model.get(name) === value) return;
    model.set(name, value);
    model.save_changes();
  };

  function row(i) {
    const name = h("bdi", { className: "pl-bar-name" });
    const was = h("span", { className: "pl-bar-was" }), now = h("span", { className: "pl-bar-now" }), line = h("span", { className: "pl-bar-line" });
    const said = h("span", { className: "pl-bar-said" });
    const button = h("button", { className: "pl-bar", type: "button" }, name, h("span", { className: "pl-bar-track" }, was, now, line, said));
    bag.dom(button, "pointerenter", () => { over = i; tell(); });
    bag.dom(button, "pointerleave", () => { over = -1; tell(); });
    return { button, name, was, now, line, said };
  }

  const draw = onFrame(() => {
    const names = model.get("names"), final = floats(model, "final"), former = floats(model, "former");
    while (rows.length < names.length) { rows.push(row(rows.length)); list.append(rows.at(-1).button); }
    const biggest = Math.max(1e-9, ...final, ...former);
    const end = model.get("scale") === "one" ? 1 : biggest;
    const share = (value) => `${(82 * value) / end}%`;    // the rest of the track is for the number
    rows.forEach((r, i) => {
      r.button.hidden = i >= names.length;
      if (r.button.hidden) return;
      const cut = former[i] - final[i] > 5e-4, gone = cut && final[i] === 0;
      const others = i === names.length - 1 && model.get("others");
      r.name.textContent = others ? "others" : visible(names[i]);
      r.name.classList.toggle("pl-bar-others", others);
      r.now.style.width = share(final[i]);
      r.was.style.width = share(cut ? former[i] : 0);
      r.line.style.left = share(former[i]);
      r.line.hidden = cut || final[i] - former[i] < 2e-3;
      r.said.style.left = share(Math.max(final[i], former[i]));
      r.said.textContent = gone ? `cut off, was ${number(former[i])}` : cut ? `${number(final[i])}, was ${number(former[i])}` : number(final[i]);
      r.button.setAttribute("aria-label", `${r.name.textContent}: ${r.said.textContent}`);
    });
    list.style.height = `${ROW * model.get("rows")}px`;
    axis.replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map((part) => {
      const tick = h("span", { textContent: (part * end).toFixed(end < 0.1 ? 3 : 2) });
      tick.style.left = `${82 * part}%`;
      return tick;
    }));
    at = Math.max(0, Math.min(at, names.length - 1));
    mark();
    table.replaceChildren(h("caption", { textContent: model.get("summary") }),
      h("tr", {}, ...["token", "probability", "before the cut"].map((text) => h("th", { scope: "col", textContent: text }))),
      ...names.map((name, i) => h("tr", {}, ...[visible(name), final[i].toFixed(4), former[i].toFixed(4)].map((text) => h("td", { textContent: text })))));
  });

  function mark() {
    rows.forEach((r, i) => {
      r.button.setAttribute("aria-pressed", i === model.get("chosen"));
      r.button.tabIndex = i === at ? 0 : -1;
    });
  }

  function tell() {
    const held = model.get("chosen"), details = model.get("details");
    summary.textContent = model.get("error") ? "Below: the last answer there was." : model.get("summary");
    const how = held >= 0 ? "Held: Esc or a second click lets go." : "Point at a bar to read it; click or Enter holds it, arrow keys move.";
    const shown = held >= 0 ? held : over;
    const cut = floats(model, "former").some((before, i) => before - floats(model, "final")[i] > 5e-4);
    hint.textContent = `${cut ? "Hatched: cut off. Mark in a bar: before the cut. " : ""}${how}`;
    detail.textContent = shown >= 0 ? details[shown] ?? "" : "";
  }

  const hold = (i) => set("chosen", i === model.get("chosen") ? -1 : i);
  function move(to) {
    at = Math.max(0, Math.min(model.get("names").length - 1, to));
    mark();
    over = at;
    rows[at]?.button.focus();
    if (model.get("chosen") >= 0) set("chosen", at);
    tell();
  }
  bag.dom(list, "click", (event) => {
    const i = rows.findIndex((r) => r.button.contains(event.target));
    if (i < 0) return;
    at = i;
    mark();
    hold(i);
  });
  bag.dom(list, "keydown", (event) => {
    const keys = {
      ArrowDown: () => move(at + 1), ArrowUp: () => move(at - 1), Home: () => move(0), End: () => move(model.get("names").length - 1),
      Enter: () => hold(at), " ": () => hold(at), Escape: () => set("chosen", -1),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  bag.dom(list, "focusin", () => { over = at; tell(); });
  bag.dom(list, "focusout", () => { over = -1; tell(); });

  bag.change(["names", "others", "final", "former", "scale", "rows"], draw);
  bag.change(["chosen"], mark);
  bag.change(["chosen", "details", "summary", "error", "final"], tell);
  draw();
  tell();
  return () => { draw.cancel(); bag.close(); };
}

export default { render };
