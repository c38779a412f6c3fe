"""From a key press on a slider to changed pixels in JupyterLab: three ways to draw an 11 x 11 grid with numbers.

    python benchmarks/slider_latency.py [--presses 40] [--json]

(a) `interact` around a new seaborn heat map, (b) one matplotlib figure that is reused and sent as PNG, (c) the
course's AttentionGrid. One run, the same data, the same browser; medians, 95th percentiles and ratios in ms.
Needs a Chromium and Playwright, as tests/browser does.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import nbformat

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "browser"))
import lab

DATA = """
import io
import ipywidgets, matplotlib.pyplot as plt, numpy as np, seaborn as sns
from course_utils import attention
from course_utils.widgets import AttentionGrid
words = "I just dropped my mechanical pencil I can't believe my lead".split()
scores = np.random.default_rng(0).normal(size=(11, 11))
def weights(beta=1.0): return attention.softmax(beta * scores)
def slider(): return ipywidgets.FloatSlider(1.0, min=0.0, max=10.0, step=0.1)
"""
INTERACT = """
def draw(beta):
    sns.heatmap(weights(beta), annot=True, fmt=".2f", xticklabels=words, yticklabels=words, vmin=0, vmax=1)
    plt.show()
control_a = slider()
ipywidgets.interact(draw, beta=control_a)
None
"""
REUSED = """
plt.ioff()
figure, ax = plt.subplots()
image = ax.imshow(weights(1.0), vmin=0, vmax=1)
numbers = [[ax.text(j, i, "", ha="center", va="center", fontsize=8) for j in range(11)] for i in range(11)]
shown, control_b = ipywidgets.Image(format="png"), slider()
def redraw(_=None):
    new = weights(control_b.value)
    image.set_data(new)
    for i in range(11):
        for j in range(11):
            numbers[i][j].set_text(f"{new[i, j]:.2f}")
    png = io.BytesIO(); figure.savefig(png, format="png"); shown.value = png.getvalue()
redraw()
control_b.observe(redraw, names="value")
ipywidgets.VBox([control_b, shown])
"""
VIEW = """
grid = AttentionGrid(weights, words, beta=(0.0, 10.0, 0.1))
grid
"""
# What the pixels are: for a picture its address once it has loaded, for a canvas a strip through one row of numbers,
# since to read all of a canvas back takes longer than to draw it.
SIGNATURE = """
(cell) => {
  const canvas = cell.querySelector(".jp-OutputArea canvas");
  window.__signature = () => {
    if (canvas) {
      const data = canvas.getContext("2d").getImageData(0, Math.round(0.6 * canvas.height), canvas.width, 40).data;
      let sum = 0;
      for (let i = 0; i < data.length; i += 37) sum = (sum * 31 + data[i]) % 1000000007;
      return sum;
    }
    const now = [...cell.querySelectorAll(".jp-OutputArea img")].pop();
    if (!now || !now.complete || !now.naturalWidth) return window.__before;
    return now.src.slice(0, 120) + now.src.length + now.src.slice(-2000);
  };
  window.__measure = () => new Promise((done) => {
    window.__before = window.__signature();
    let start = 0;
    addEventListener("keydown", () => { start = performance.now(); }, { once: true, capture: true });
    const look = () => {
      if (start && window.__signature() !== window.__before) { done(performance.now() - start); return; }
      if (start && performance.now() - start > 5000) { done(-1); return; }
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
}
"""


def measure(page, index, presses):
    """Milliseconds for each key press on the slider of code cell `index`."""
    cell = page.page.locator(".jp-Notebook .jp-CodeCell").nth(index)
    cell.scroll_into_view_if_needed()
    handle = cell.locator(".noUi-handle, .ui-slider-handle").first
    page.page.evaluate(f"({SIGNATURE})(document.querySelectorAll('.jp-Notebook .jp-CodeCell')[{index}])")
    times = []
    for press in range(presses + 3):
        handle.focus()
        page.page.evaluate("() => { window.__time = window.__measure() }")
        page.page.keyboard.press("ArrowRight" if press % 80 < 40 else "ArrowLeft")
        took = page.page.evaluate("() => window.__time")
        if took < 0:
            raise RuntimeError(f"no pixel changed within 5 s in cell {index}, press {press}")
        times.append(took)
        page.page.wait_for_timeout(120)
    return times[3:]  # the first presses warm the caches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presses", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="last line: one JSON object")
    arguments = parser.parse_args()
    cells = [nbformat.v4.new_code_cell(code.strip()) for code in (DATA, INTERACT, REUSED, VIEW)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), Path(folder) / "latency.ipynb")
        with lab.server(folder) as address, lab.browser() as browser:
            page = lab.Page(browser, address, "latency.ipynb")
            page.run_all()
            frame = page.page.evaluate(
                "() => new Promise(done => { const t = performance.now(); let n = 0; "
                "const go = () => ++n > 60 ? done((performance.now() - t) / 60) : requestAnimationFrame(go); go() })"
            )
            times = {name: measure(page, k, arguments.presses) for k, name in ((1, "a"), (2, "b"), (3, "c"))}
    medians = {name: statistics.median(values) for name, values in times.items()}
    p95 = {name: sorted(values)[int(0.95 * (len(values) - 1))] for name, values in times.items()}
    print(f"one frame of the screen takes {frame:.1f} ms; {arguments.presses} presses each")
    for name, words in (("a", "interact + seaborn"), ("b", "reused figure, PNG"), ("c", "AttentionGrid")):
        ratio = medians["a"] / medians[name]
        print(f"({name}) {words:20} median {medians[name]:6.1f} ms  p95 {p95[name]:6.1f} ms  {ratio:5.1f}x")
    if arguments.json:
        figures = {"interact_seaborn_ms": medians["a"], "reused_png_ms": medians["b"]}
        print(json.dumps(figures | {"view_ms": medians["c"], "view_p95_ms": p95["c"]}))


if __name__ == "__main__":
    main()
