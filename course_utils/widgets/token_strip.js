// TokenStrip: Python cuts the text; here tokens are shown, held and their merges stepped through.

const TINTS = 5;

function render({ model, el }) {
  const bag = listeners(model, el);
  const summary = h("div", { className: "pl-status" });
  summary.setAttribute("aria-live", "polite");
  const strip = h("div", { className: "pl-tokens", role: "group", "aria-label": "Tokens" });
  const detail = h("div", { className: "pl-token-detail" });
  const made = h("div", { className: "pl-tokens pl-made", "aria-hidden": "true" });
  const note = h("div", { className: "pl-status" });
  note.setAttribute("aria-live", "polite");
  const slider = h("input", { type: "range", min: "0", step: "1", "aria-label": "Merges done" });
  const less = h("button", { className: "pl-button", textContent: "◀ Undo merge" });
  const more = h("button", { className: "pl-button", textContent: "Merge ▶" });
  const merges = h("div", { className: "pl-merges" }, h("div", { className: "pl-steps" }, less, slider, more, note), made);
  const table = h("table", { className: "pl-hidden" });
  const root = h("div", { className: "pl-view", "data-lm-suppress-shortcuts": "true" },
    summary, errorLine(model, bag), strip, table, detail, merges,
    h("div", { className: "pl-tools" }, ...saveButtons(model, bag)));
  el.append(root);
  let at = 0;    // the token that Tab comes to

  const set = (name, value) => {
    if (model.get(name) === value) return;
    model.set(name, value);
    model.save_changes();
  };
  const buttons = () => [...strip.children];
  const spoken = (token) => visible(token).replaceAll("␣", "space ").replaceAll("⏎", "new line ");

  function chip(tag, token, id, tint) {
    const parts = [h("bdi", { className: "pl-piece", textContent: visible(token) })];
    if (id !== undefined) parts.push(h("span", { className: "pl-id", textContent: String(id) }));
    return h(tag, { className: `pl-chip pl-tint${tint % TINTS}` }, ...parts);
  }

  const build = onFrame(() => {
    const tokens = model.get("tokens"), ids = model.get("ids");
    const focused = strip.contains(document.activeElement);
    strip.replaceChildren(...tokens.map((token, i) => {
      const button = chip("button", token, ids[i], i);
      button.type = "button";
      button.setAttribute("aria-label", `token ${i + 1}: ${spoken(token)}${ids.length ? `, id ${ids[i]}` : ""}`);
      return button;
    }));
    at = Math.max(0, Math.min(at, tokens.length - 1));
    if (focused && tokens.length) buttons()[at].focus();
    mark();
    const head = h("tr", {}, ...["place", "token", ...(ids.length ? ["id"] : [])].map((name) => h("th", { scope: "col", textContent: name })));
    table.replaceChildren(h("caption", { textContent: model.get("summary") }), head, ...tokens.map((token, i) =>
      h("tr", {}, ...[String(i + 1), spoken(token), ...(ids.length ? [String(ids[i])] : [])].map((text) => h("td", { textContent: text })))));
  });

  function mark() {
    const held = model.get("selected");
    buttons().forEach((button, i) => {
      button.setAttribute("aria-pressed", i === held);
      button.tabIndex = i === at ? 0 : -1;
    });
  }

  function tell() {
    const held = model.get("selected"), empty = !model.get("tokens").length;
    const how = empty ? "Type a word into the box."
      : held >= 0 ? "Held: Esc or a second click lets go." : "Click a token, or press Enter on it, to hold it.";
    summary.textContent = model.get("error") ? "Below: the last text that could be read." : `${model.get("summary")} ${how}`;
    detail.textContent = model.get("detail");
  }

  function showStep() {
    const steps = model.get("steps"), k = Math.min(model.get("step"), steps.length - 1);
    merges.hidden = !model.get("mergeable");
    slider.max = String(Math.max(0, steps.length - 1));
    slider.value = String(Math.max(0, k));
    slider.disabled = steps.length < 2;
    less.disabled = k <= 0;
    more.disabled = k >= steps.length - 1;
    if (!steps.length) { made.replaceChildren(); note.textContent = model.get("hint"); return; }
    note.textContent = model.get("notes")[k] ?? "";
    slider.setAttribute("aria-valuetext", note.textContent);
    const fresh = model.get("fresh")[k];
    made.replaceChildren(...steps[k].map((token, i) => {
      const piece = chip("span", token, undefined, i === fresh ? 1 : 4);
      piece.classList.toggle("pl-fresh", i === fresh);
      return piece;
    }));
  }

  function move(to) {
    at = Math.max(0, Math.min(buttons().length - 1, to));
    mark();
    buttons()[at]?.focus();
  }
  function otherRow(down) {    // the nearest token of the row below or above
    const all = buttons(), here = all[at];
    const rows = all.filter((b) => (down ? b.offsetTop > here.offsetTop : b.offsetTop < here.offsetTop));
    if (!rows.length) return at;
    const row = down ? rows[0].offsetTop : rows.at(-1).offsetTop;
    const away = (b) => Math.abs(b.offsetLeft - here.offsetLeft);
    return all.indexOf(rows.filter((b) => b.offsetTop === row).reduce((a, b) => (away(b) < away(a) ? b : a)));
  }
  const hold = (i) => set("selected", i === model.get("selected") ? -1 : i);

  bag.dom(strip, "click", (event) => {
    const i = buttons().indexOf(event.target.closest("button"));
    if (i < 0) return;
    move(i);
    hold(i);
  });
  bag.dom(strip, "keydown", (event) => {
    const keys = {
      ArrowRight: () => move(at + 1), ArrowLeft: () => move(at - 1), Home: () => move(0), End: () => move(buttons().length - 1),
      ArrowDown: () => move(otherRow(true)), ArrowUp: () => move(otherRow(false)),
      Enter: () => hold(at), " ": () => hold(at), Escape: () => set("selected", -1),
    };
    if (!keys[event.key] || !buttons().length) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  bag.dom(slider, "input", () => set("step", Number(slider.value)));
  bag.dom(less, "click", () => set("step", Math.max(0, model.get("step") - 1)));
  bag.dom(more, "click", () => set("step", Math.min(model.get("steps").length - 1, model.get("step") + 1)));
  bag.dom(merges, "keydown", (event) => event.stopPropagation());

  const steps = onFrame(showStep);
  bag.change(["tokens", "ids"], build);
  bag.change(["selected"], mark);
  bag.change(["summary", "detail", "selected", "error", "tokens"], tell);
  bag.change(["steps", "step", "notes", "fresh", "hint"], steps);
  build();
  tell();
  showStep();
  return () => { build.cancel(); steps.cancel(); bag.close(); };
}

export default { render };
