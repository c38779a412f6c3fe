"""TokenStrip: a typed text as coloured tokens with their ids, and how byte-pair encoding put one together."""

import re

import traitlets

from course_utils import plots
from course_utils.widgets.text_box import TextView, sendable
from course_utils.widgets.view import script

MOST_TOKENS = 200  # shown; the rest are counted
MOST_DRAWN = 60  # in the picture
MOST_LETTERS = 24  # of one token, shown
MOST_SPELLED = 16  # bytes of one token
MOST_BYTES = 40  # of a piece whose merges are shown: more would be no strip to read


class TokenStrip(TextView):
    """The tokens of whatever is typed into a text box, each with its id; a click or Enter holds one.

    TokenStrip(tokenizer, text="my lead broke") takes anything with `tokens(text)` and `encode(text)`. If it
    also has `merge_steps(piece)`, as `text.BPETokenizer` has, the merges that made the held token's piece are
    stepped through, one by one. TokenStrip(function, text="...", merges=(0, 10)) shows what
    `function(text, merges)` returns: a list of tokens, or (tokens, ids). `selected` counts from 0; -1 is
    none. What the tokenizer refuses is told in its own words. ValueError if `first` is neither.
    """

    _esm = script("token_strip")
    tokens = traitlets.List(traitlets.Unicode()).tag(sync=True)  # the first MOST_TOKENS of them
    ids = traitlets.List(traitlets.Int()).tag(sync=True)  # or nothing
    summary = traitlets.Unicode("").tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)
    detail = traitlets.Unicode("").tag(sync=True)
    mergeable = traitlets.Bool(False).tag(sync=True)  # whether the tokenizer has merges to show
    hint = traitlets.Unicode("").tag(sync=True)  # what to do for merges, or why there are none
    steps = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)  # of the held token's piece
    fresh = traitlets.List(traitlets.Int()).tag(sync=True)  # in each step, the place of the token just made
    notes = traitlets.List(traitlets.Unicode()).tag(sync=True)  # what each step did
    step = traitlets.Int(0).tag(sync=True)

    def __init__(self, first, text="I just dropped my mechanical pencil", *, selected=-1, **controls):
        self._tokenizer = first if hasattr(first, "tokens") and hasattr(first, "encode") else None
        if self._tokenizer is None and not callable(first):
            raise ValueError(
                "TokenStrip needs a tokenizer, with tokens(text) and encode(text), or a function from a text to its "
                f"tokens. Give one of the two (here it is of type {type(first).__name__})."
            )
        self._all, self._text = [], ""
        function = first if self._tokenizer is None else _reader(first)
        super().__init__(function, text, controls, selected=selected, mergeable=hasattr(first, "merge_steps"))
        self.observe(self._tell, names=["selected"])

    def show_value(self, value):
        """Show a list of tokens, or (tokens, ids); ValueError if they are no strings, or not one id for each."""
        tokens, ids = _checked(value)
        self._all, self._text = tokens, sendable(self.box.value)
        more = f"; the first {MOST_TOKENS} of them are shown" if len(tokens) > MOST_TOKENS else ""
        with self.hold_sync():
            self.tokens = [_short(token) for token in tokens[:MOST_TOKENS]]
            self.ids = ids[:MOST_TOKENS]
            self.summary = f"{_count(len(tokens), 'token')} for {_count(len(self._text), 'character')}{more}."
            if self.selected >= len(self.tokens):
                self.selected = -1
        self._tell()

    def _tell(self, _change=None):
        """What is known of the held token, and the merges of its piece."""
        steps, detail, hint = [], "", "Hold a token to step through the merges that made it."
        if 0 <= self.selected < len(self.tokens):
            detail = self._describe(self.selected)
            steps, hint = self._merge_steps(self.selected) if self.mergeable else ([], "")
        with self.hold_sync():
            if steps != self.steps:
                self.step = 0
            self.fresh = [-1, *map(_place_made, steps, steps[1:])] if steps else []
            self.notes = [_note(steps, k, self.fresh[k]) for k in range(len(steps))]
            self.steps, self.detail, self.hint = steps, detail, hint

    def _describe(self, index):
        token, data = self._all[index], token_bytes(self._all, self._text, index)
        named = f"token {index + 1}: {_seen(_short(token))}"
        number = f", id {self.ids[index]}" if self.ids else ""
        spelled = " ".join(f"{byte:02x}" for byte in data[:MOST_SPELLED]) + (" …" if len(data) > MOST_SPELLED else "")
        return f"{named}{number}, {_count(len(data), 'byte')}: {spelled}"

    def _merge_steps(self, index):
        """(the steps, or none; why there are none, or nothing) for the piece that token `index` is part of."""
        pieces = self._tokenizer.pieces(self._text) if hasattr(self._tokenizer, "pieces") else [self._text]
        piece, end = self._text, 0
        for piece in pieces:
            end += len(self._tokenizer.encode(piece))
            if index < end:
                break
        size = len(piece.encode("utf-8"))
        if size > MOST_BYTES:
            return [], f"Its piece has {size:,} bytes; merges are shown for pieces of up to {MOST_BYTES}."
        try:
            return self._tokenizer.merge_steps(piece), ""
        except ValueError as error:  # in the tokenizer's words
            return [], sendable(str(error))

    def figure(self):
        """The strip as a matplotlib figure; the held token has a frame and its merges stand above."""
        shown = [plots.drawable(token) for token in self.tokens[:MOST_DRAWN]]
        ax = plots.tokens(shown, self.ids[:MOST_DRAWN] or None, selected=self.selected)
        title = [self.summary.replace(f"first {MOST_TOKENS}", f"first {MOST_DRAWN}").rstrip(".")]
        if len(self.tokens) > MOST_DRAWN and len(self._all) <= MOST_TOKENS:
            title[0] += f"; the first {MOST_DRAWN} of them are shown"
        if self.steps:
            title.append(plots.drawable(self.notes[self.step]))
        ax.set_title("\n".join(title))
        return ax.figure

    def alt(self):
        """One sentence with the first tokens and their ids."""
        ids = [f" ({i})" for i in self.ids] or [""] * len(self.tokens)
        named = [_seen(token) + number for token, number in zip(self.tokens[:12], ids[:12], strict=True)]
        listed = f" They begin: {', '.join(named)}." if named else " The text is empty."
        held = f" Held: {self.detail}." if self.detail else ""
        return f"{self.summary}{listed}{held}"

    def __repr__(self):
        return f"TokenStrip({_count(len(self._all), 'token')}, selected={self.selected})"


def token_bytes(tokens, text, index):
    """The bytes of text that tokens[index] stands for.

    Tokenizers show a byte that is no whole character as `\\\\xe2`. Whether that is one byte or four letters is
    in the text itself, so the tokens are laid along it. Where they do not fit (words without their spaces),
    a token is its own UTF-8.

    >>> token_bytes(["\\\\xe2", "\\\\x9c\\\\x8f"], "✏", 1)
    b'\\x9c\\x8f'
    """
    rest = text.encode("utf-8")
    for token in tokens[: index + 1]:
        literal = sendable(token).encode("utf-8")
        escaped = re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), literal)
        data = next((data for data in (literal, escaped) if rest.startswith(data)), None)
        if data is None:
            return sendable(tokens[index]).encode("utf-8")
        rest = rest[len(data) :]
    return data


def _reader(tokenizer):
    def read(text):
        return tokenizer.tokens(text), tokenizer.encode(text)

    read.__name__ = type(tokenizer).__name__
    return read


def _checked(value):
    """(tokens, ids or nothing) of what a function returned."""
    paired = isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], str)
    tokens, ids = value if paired else (value, [])
    if not isinstance(tokens, (list, tuple)) or not all(isinstance(token, str) for token in tokens):
        raise ValueError(
            "a strip shows a list of strings, or (tokens, ids). Return the pieces of the text "
            f"(here it is {'nothing' if value is None else repr(value)[:80]})"
        )
    numbers = plots.to_numpy(ids)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise ValueError(f"ids are whole numbers, one for each token; look for NaN or fractions (here: {ids!r:.80})")
    ids = numbers.tolist()
    if paired and len(ids) != len(tokens):
        raise ValueError(f"there are {len(tokens)} tokens and {len(ids)} ids; return one id for each token")
    return list(tokens), ids


def _place_made(before, after):
    """Where in `after` the token stands that the merge made: the first place that differs."""
    return next(i for i, token in enumerate(after) if token != before[i])


def _note(steps, k, place):
    if len(steps) == 1:
        return "Nothing to merge in this piece."
    if k == 0:
        return f"Before any merge: {_count(len(steps[0]), 'byte')}, each a token of its own."
    left, right = map(_seen, steps[k - 1][place : place + 2])
    return f"Merge {k} of {len(steps) - 1}: {left} + {right} → {_seen(steps[k][place])}"


def _count(n, noun):
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _short(token):
    token = sendable(token)
    return token if len(token) <= MOST_LETTERS else token[: MOST_LETTERS - 1] + "…"


def _seen(token):
    """A token in a sentence: its spaces visible. `plots.label` also escapes $, for matplotlib alone."""
    return plots.label(token).replace(r"\$", "$")
