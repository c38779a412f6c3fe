// ErrorLine: the line of `explore` in which an error is told, above the result.

function render({ model, el }) {
  const bag = listeners(model, el);
  el.classList.add("pl-over");
  el.append(h("div", { className: "pl-view pl-bare" }, errorLine(model, bag)));
  return () => bag.close();
}

export default { render };
