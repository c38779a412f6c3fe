"""NextToken: what a model expects next, as bars, and what temperature, top-k and top-p make of it."""

import inspect

import numpy as np
import traitlets

from course_utils import plots
from course_utils.attention import softmax
from course_utils.widgets.text_box import TextView, sendable
from course_utils.widgets.view import floats, script

FILTERS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}  # where the sliders begin: nothing is changed
MOST_TOP_K = 50


class NextToken(TextView):
    """Bars of the next token's probabilities; what top-k and top-p cut off stays visible, hatched.

    NextToken(logits, words) takes logits (vocab_size,) and a word for each, and puts sliders for
    temperature, top_k (0: off) and top_p (1: off) above. NextToken(function, words, text="I just")
    gives the function what is typed into a box; its other arguments can have controls, as in `explore`.
    A function without `words` returns a dict from word to probability, and there is nothing to filter.

    `probs(logits, temperature, top_k, top_p)` makes the probabilities, such as
    `generate.next_token_probs` or the reader's own; without it `next_token_probs` below does. `top` bars are
    shown and the rest is summed. `filters=False` leaves the three sliders out.
    """

    _esm = script("next_token")
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)  # likeliest first; the rest is summed in the last
    others = traitlets.Bool(False).tag(sync=True)  # whether the last bar is such a sum
    final = traitlets.Bytes(b"").tag(sync=True)  # the probability that the next token is drawn with
    former = traitlets.Bytes(b"").tag(sync=True)  # before anything was cut off
    rows = traitlets.Int(0).tag(sync=True)  # room is kept for as many, so that the page does not jump
    summary = traitlets.Unicode("").tag(sync=True)
    chosen = traitlets.Int(-1).tag(sync=True)  # the bar that is held, counted from 0; -1: none
    details = traitlets.List(traitlets.Unicode()).tag(sync=True)  # a sentence for each bar
    scale = traitlets.Enum(["one", "largest"], "one").tag(sync=True)  # where the axis ends

    def __init__(
        self, first, words=None, *, text=None, probs=None, top=12, filters=True, scale="one", chosen=-1, **controls
    ):
        self._words = None if words is None else [sendable(str(word)) for word in words]
        self._probs, self._top, self._asked = probs or next_token_probs, top, None
        if not callable(first) and words is None and not isinstance(first, dict):
            raise ValueError(
                "Bars need names. Give a word for each logit, as in NextToken(logits, words), "
                "or a dict from word to probability."
            )
        self._filters = list(FILTERS) if filters and words is not None else []
        if self._filters:
            most = min(MOST_TOP_K, len(self._words))
            controls |= {"temperature": (0.0, 2.0, 0.05), "top_k": (0, most), "top_p": (0.05, 1.0, 0.05)}
        function = first if callable(first) else lambda: first
        rows = top + 1 if self._words is None else min(top + 1, len(self._words))
        super().__init__(self._filtered(function), text, controls, rows=rows, scale=scale, chosen=chosen)

    def _filtered(self, function):
        """The function with the filters' arguments beside its own; it is called again only when its own change."""
        own = inspect.signature(function).parameters.values()
        added = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=FILTERS[n]) for n in self._filters]

        def call(*text, **values):
            settings = {name: values.pop(name) for name in self._filters}
            if self._asked is None or self._asked[0] != (text, values):
                self._asked = None  # an error below leaves nothing that could be taken for an answer
                self._asked = (text, values), function(*text, **values)
            return self._asked[1], settings

        call.__name__ = getattr(function, "__name__", "function")
        rest = [p for p in own if p.kind is p.VAR_KEYWORD]
        call.__signature__ = inspect.Signature([*(p for p in own if p not in rest), *added, *rest])
        return call

    def show_value(self, value):
        """Show (logits or a dict, settings of the filters); ValueError in words if it is neither."""
        result, settings = value
        if self._words is None:
            words, final = _checked_dict(result)
            former, logits, order_by = final, None, final
        else:
            logits = order_by = _checked_logits(result, self._words)
            words = self._words
            used = {"temperature": settings.get("temperature", 1.0)}
            former = self._made_probs(result, **used, top_k=None, top_p=None)
            top_k, top_p = settings.get("top_k") or None, settings.get("top_p", 1.0)
            final = self._made_probs(result, **used, top_k=top_k, top_p=None if top_p == 1 else top_p)
        order = np.argsort(-order_by, kind="stable")
        shown, rest = order[: self._top], order[self._top :]
        if len(rest) == 1:  # a sum of one word is that word
            shown, rest = order, order[:0]
        details = [_detail(words[i], former[i], final[i], None if logits is None else logits[i]) for i in shown]
        names, sums = [words[i] for i in shown], [(former[shown], final[shown])]
        missing = 1 - final.sum() if logits is None else 0.0  # a dict may name the likeliest words only
        if len(rest) or missing > 0.0005:
            names.append("others")
            sums.append(([former[rest].sum() + missing], [final[rest].sum() + missing]))
            said = f"{len(rest):,} other words" if len(rest) else "words that are not named"
            details.append(_detail(said, sums[1][0][0], sums[1][1][0], None))
        kept = int((final > 0).sum())
        with self.hold_sync():
            self.names, self.others, self.details = names, len(names) > len(shown), details
            self.former, self.final = (floats(np.concatenate(part)) for part in zip(*sums, strict=True))
            self.rows = max(self.rows, len(names))
            self.summary = _summary(kept, len(words), former[final > 0].sum(), settings, missing)
            if self.chosen >= len(names):
                self.chosen = -1

    def _made_probs(self, logits, **settings):
        made = plots.to_numpy(self._probs(logits, **settings)).astype(float)
        if made.shape != (len(self._words),) or not np.isfinite(made).all() or abs(made.sum() - 1) > 1e-3:
            raise ValueError(
                f"the probabilities must be {len(self._words)} numbers that add up to 1. Look at the function given as "
                f"probs (it returned shape {made.shape} with sum {made.sum():.4g})"
            )
        return made

    def figure(self):
        """The bars as a matplotlib figure; cut-off ones hatched, with the probability they had."""
        final, former = (np.frombuffer(part, np.float32) for part in (self.final, self.former))
        limit = 1.0 if self.scale == "one" else max(final.max(initial=0), former.max(initial=0))
        names, title = [plots.drawable(name) for name in self.names], self.summary.rstrip(".").replace("; ", ";\n")
        highlight = names[self.chosen] if self.chosen >= 0 else None
        ax = plots.bars(final, names, highlight=highlight, limit=limit, title=title)
        for place, (now, before) in enumerate(zip(final, former, strict=True)):
            if before - now > 5e-4:
                ax.barh(place, before - now, left=now, height=0.72, fc=plots.HATCH, ec="#8A8A8A", hatch="///", lw=0)
                ax.texts[place].set_x(before + 0.015 * limit)
                ax.texts[place].set_text(f"{'cut off, ' if now == 0 else f'{now:.2f}, '}was {before:.2f}")
        return ax.figure

    def alt(self):
        """One sentence with the likeliest words and what is cut off."""
        final = np.frombuffer(self.final, np.float32)
        listed = [f"{plots.label(name)} {p:.2f}" for name, p in zip(self.names, final, strict=True) if p > 0]
        return f"Bars of the next token: {', '.join(listed[:6])}. {self.summary}".replace(r"\$", "$")

    def __repr__(self):
        count = "from a dict" if self._words is None else f"{len(self._words):,} words"
        return f"NextToken({count}, {len(self.names)} bars)"


def next_token_probs(logits, temperature=1.0, top_k=None, top_p=None):
    """NumPy's twin of `generate.next_token_probs`, for pages without torch: logits (vocab_size,) -> probabilities.

    >>> next_token_probs(np.log([3.0, 1.0]), temperature=0.5).round(3).tolist()
    [0.9, 0.1]
    """
    logits = plots.to_numpy(logits).astype(float)
    ranked = np.argsort(-logits, kind="stable")  # of equal ones the lower id counts as likelier
    if temperature == 0:
        return (np.arange(len(logits)) == ranked[0]).astype(float)
    cooled = (logits - logits.max()) / temperature
    cooled[ranked[top_k:] if top_k else []] = -np.inf
    if top_p:
        probs = softmax(cooled)[ranked]
        cooled[ranked[probs.cumsum() - probs >= top_p]] = -np.inf
    return softmax(cooled)


def _checked_logits(value, words):
    if isinstance(value, dict):
        raise ValueError("the function returned a dict, which has its own words: leave `words` out of NextToken(...)")
    logits = plots.to_numpy(value)
    if logits.dtype.kind not in "biuf" or logits.shape != (len(words),):
        raise ValueError(
            f"bars need one logit for each of the {len(words):,} words, shape ({len(words)},). Take one place of one "
            f"text, such as logits[0, -1] (here the shape is {logits.shape})"
        )
    if np.isnan(logits).any() or not np.isfinite(logits.max()):
        raise ValueError("the logits hold NaN or infinity: look for 0/0, or for a row in which all is masked")
    return logits.astype(float)


def _checked_dict(value):
    if not isinstance(value, dict):
        raise ValueError(
            "without `words`, the function returns a dict from word to probability. Return one, or give "
            f"NextToken(function, words) (it returned {'nothing' if value is None else type(value).__name__})"
        )
    words, probs = [sendable(str(word)) for word in value], np.array([float(p) for p in value.values()])
    if not words or not (probs >= 0).all() or probs.sum() > 1.001:
        raise ValueError(
            f"the dict must hold probabilities: from 0 to 1, with a sum of 1 at most. It has {len(words)} words, and "
            f"their sum is {probs.sum():.4g}"
        )
    return words, probs


def _detail(word, former, final, logit):
    """A sentence about one bar."""
    said = plots.label(word).replace(r"\$", "$")
    said += f": logit {logit:.3f}, probability" if logit is not None else ": probability"
    if final == 0 and former > 0:
        return f"{said} {former:.4f} before, now cut off: it cannot be drawn."
    return f"{said} {final:.4f}" + (f", before the cut {former:.4f}." if abs(final - former) > 5e-5 else ".")


def _summary(kept, count, share, settings, missing):
    """What the filters left, in a sentence."""
    if not settings:  # there is no filter whose work could be told
        rest = "; others, not named, can too" if missing > 0.0005 else ""
        return f"{kept:,} {'word' if kept == 1 else 'words'} can come next{rest}."
    if settings["temperature"] == 0:
        return "Temperature 0: the likeliest word, always."
    if kept == count:
        return f"Nothing is cut off: all {count:,} words can be drawn."
    return f"{kept:,} of {count:,} words can be drawn; together they had {share:.3f} before the cut."
