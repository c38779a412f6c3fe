// What all views share. Each view's own script follows in the same module.

// An element with properties and children; text goes in as text, never as HTML.
function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on") || name === "className" || name === "textContent" || name === "tabIndex") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// A token as a reader sees it: spaces at its edges and line breaks get visible marks.
function visible(token) {
  const marks = { "\n": "⏎", "\t": "⇥", "\r": "␍" };
  return token
    .replace(/[\n\t\r]/g, (c) => marks[c])
    .replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length)) || "(empty)";
}

// What Python sent as bytes, and as the bytes of float32 numbers.
function bytes(model, name) {
  const view = model.get(name);
  if (!view || !view.byteLength) return new Uint8Array(0);
  return new Uint8Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

function floats(model, name) {
  return new Float32Array(bytes(model, name).buffer);
}

function number(value) {
  const text = value.toFixed(2);
  return text === "-0.00" ? "0.00" : text;
}

// Many changes, at most one drawing for each frame of the screen: the last state is the one drawn. The first change
// after a pause is drawn at once (after all changes that came with it), so that it is on the screen in the next frame.
function onFrame(draw) {
  let waiting = 0, last = 0, open = true;
  const run = () => { waiting = 0; if (open) { last = performance.now(); draw(); } };
  const schedule = () => {
    if (waiting) return;
    if (performance.now() - last > 16) { waiting = -1; queueMicrotask(run); }
    else waiting = requestAnimationFrame(run);
  };
  schedule.cancel = () => { open = false; if (waiting > 0) cancelAnimationFrame(waiting); };
  return schedule;
}

// What arrow keys and their like move, among core widgets of ipywidgets 8 and 7.
const MOVED_BY_KEYS = ".noUi-handle, .ui-slider-handle, select, input[type=radio]";
const MOVING_KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];

// Notebook 7 takes keys at the document, before the slider in focus sees them. Those that move a slider or a menu beside
// this view are marked as the slider's (Lumino's own mark); with any other key, such as Shift+Enter, the mark goes.
function keepMovingKeys(el, removals) {
  const mark = (event) => {
    if (!event.target.matches?.(MOVED_BY_KEYS) || !el.closest(".jp-OutputArea")?.contains(event.target)) return;
    const moves = MOVING_KEYS.includes(event.key) && !event.ctrlKey && !event.altKey && !event.metaKey;
    event.target.toggleAttribute("data-lm-suppress-shortcuts", moves);
  };
  window.addEventListener("keydown", mark, true);
  removals.push(() => window.removeEventListener("keydown", mark, true));
}

// Listeners that are all removed when the view closes.
function listeners(model, el) {
  const removals = [];
  keepMovingKeys(el, removals);
  return {
    change(names, callback) {
      for (const name of names) {
        model.on(`change:${name}`, callback);
        removals.push(() => model.off(`change:${name}`, callback));
      }
    },
    message(callback) {
      model.on("msg:custom", callback);
      removals.push(() => model.off("msg:custom", callback));
    },
    dom(target, name, callback, options) {
      if (name === "keydown") {    // Notebook 7 takes keys at the document, on their way down: be there before it
        const inside = (event) => { if (target.contains(event.target)) callback(event); };
        window.addEventListener(name, inside, true);
        removals.push(() => window.removeEventListener(name, inside, true));
        return;
      }
      target.addEventListener(name, callback, options);
      removals.push(() => target.removeEventListener(name, callback, options));
    },
    also(removal) { removals.push(removal); },
    close() { removals.splice(0).forEach((remove) => remove()); },
  };
}

// Colours of the page's theme, read when drawing; `changed` runs when the reader switches the theme.
function theme(el) {
  const style = getComputedStyle(el);
  const dark = document.body.dataset.jpThemeLight === "false";
  return { ink: style.color, faint: style.getPropertyValue("--pl-faint").trim(), dark };
}

function watchTheme(bag, changed) {
  const observer = new MutationObserver(changed);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  bag.also(() => observer.disconnect());
}

// The line in which an error of the reader's function is told. It lies over what follows, which is faded meanwhile and
// belongs to the last good value: it takes no room, so that the page stays still under the hand that moves a slider.
function errorLine(model, bag) {
  const line = h("div", { className: "pl-error", role: "alert" });
  const place = h("div", { className: "pl-error-place" }, line);
  const show = () => {
    line.textContent = model.get("error");
    line.hidden = !model.get("error");
    place.classList.toggle("pl-wrong", !line.hidden);
  };
  bag.change(["error"], show);
  show();
  return place;
}

// Buttons that save the view as it stands. Python draws the file, so that it equals `view.save(...)`.
function saveButtons(model, bag) {
  const ask = (kind) => h("button", {
    className: "pl-button", title: `Save this view as a picture (.${kind})`, textContent: `Save ${kind.toUpperCase()}`,
    onclick: () => model.send({ save: kind }),
  });
  bag.message((content, buffers) => {
    if (!content.saved) return;
    const types = { svg: "image/svg+xml", png: "image/png" };
    const address = URL.createObjectURL(new Blob([buffers[0]], { type: types[content.saved] }));
    h("a", { href: address, download: `${content.name}.${content.saved}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  return [ask("svg"), ask("png")];
}

// A button that switches between two or more values of one trait.
function switchButton(model, bag, trait, values, words) {
  const button = h("button", { className: "pl-button" });
  const show = () => { button.textContent = words[values.indexOf(model.get(trait))]; };
  button.onclick = () => {
    model.set(trait, values[(values.indexOf(model.get(trait)) + 1) % values.length]);
    model.save_changes();
  };
  bag.change([trait], show);
  show();
  return button;
}

// A canvas of this size in CSS pixels, sharp on dense screens; returns its context, cleared.
function sized(canvas, width, height) {
  const dense = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(dense, 0, 0, dense, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// A text that is too wide for its place, cut with an ellipsis.
function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  while (text.length > 1 && context.measureText(`${text}…`).width > width) text = text.slice(0, -1);
  return `${text}…`;
}
