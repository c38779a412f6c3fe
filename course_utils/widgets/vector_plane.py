"""VectorPlane: words as arrows in a plane, some of them dragged, and what a function makes of them."""

import functools

import numpy as np
import traitlets

from course_utils import plots
from course_utils.attention import softmax
from course_utils.widgets import vector_plane_figure
from course_utils.widgets.vector_plane_figure import ROLES, bar_role
from course_utils.widgets.view import View, floats, script

MOST_BARS = 20  # more rows would not be read


class VectorPlane(View):
    """Words in two dimensions; the arrows named in `drag` are moved by mouse, touch or arrow keys.

    VectorPlane(points, words) shows an (n, 2) array, one word a row. VectorPlane(function, words, points,
    drag={"query": (1.0, 1.5)}) adds an arrow to drag and calls `function(query)` with its vector, an array
    (2,), at the start and after each move. `drag` may also list names among the words, whose own arrows are
    then dragged. Several vectors are passed in the order of `drag`. Further keywords are sliders as in
    `explore` and reach the function by name. What it returns is shown beside the plane:

    - scores, one number a word: bars of the scores and of their softmax; (scores, weights): your own weights;
    - a dict: a number is a bar, a pair of numbers the place of the arrow of that name, a string a sentence;
    - a string: a sentence; an (n, 2) array: new places of the words (those under the hand stay).

    `colors` is one role or one a word, or a dict by name: "query", "key", "value", "added", "other".
    arrows=False draws points. `names` are the names of the axes, `span` (low, high) their ends. `limit`
    fixes the axis of the bars, which otherwise grows when a bar needs room; `title` stands above the bars of
    a dict (title="weights" makes them run from 0 to 1). `directions` {name: (x, y)}
    are steps that a button adds to or takes from the dragged arrow. With arrows, a click on a word (or the
    menu, or `against`) shows its dot product with the first dragged arrow, as a projection and in numbers.
    """

    _esm = script("vector_plane")
    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)  # every arrow: words, dragged, those a function adds
    roles = traitlets.List(traitlets.Unicode()).tag(sync=True)
    palette = traitlets.Dict(ROLES).tag(sync=True)
    points = traitlets.Bytes(b"").tag(sync=True)  # (len(labels), 2)
    moving = traitlets.List([]).tag(sync=True)  # which of the labels are dragged
    tips = traitlets.List([]).tag(sync=True)  # [x, y] of each of them
    start = traitlets.List([]).tag(sync=True)
    arrows = traitlets.Bool(True).tag(sync=True)
    grid = traitlets.Bool(True).tag(sync=True)
    axis_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    area = traitlets.List([-1.0, 1.0, -1.0, 1.0]).tag(sync=True)  # x low, x high, y low, y high
    step = traitlets.Float(0.1).tag(sync=True)  # one press of an arrow key
    directions = traitlets.List([]).tag(sync=True)  # [name, x, y]
    row_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    columns = traitlets.List([]).tag(sync=True)  # one group of bars each: [title, low, high, role]
    values = traitlets.Bytes(b"").tag(sync=True)  # (len(columns), len(row_names)); empty after an error
    against = traitlets.Unicode("").tag(sync=True)  # the word whose dot product is held
    hover = traitlets.Unicode("").tag(sync=True)
    detail = traitlets.Unicode("").tag(sync=True)
    marked = traitlets.List(list(plots.MARKED)).tag(sync=True)

    def __init__(
        self,
        first,
        words,
        points=None,
        *,
        drag=(),
        colors=None,
        arrows=True,
        names=("first number", "second number"),
        span=None,
        limit=None,
        grid=True,
        directions=None,
        against="",
        title="numbers",
        **controls,
    ):
        self._words = [str(word) for word in words]
        if not callable(first) and points is not None:
            raise ValueError("The words' places were given twice: the first argument is an array, and so is points.")
        places = points if callable(first) else first
        places = np.full((len(self._words), 2), np.nan) if places is None else self._checked_places(places)
        drag = [drag] if isinstance(drag, str) else drag
        starts = dict(drag) if isinstance(drag, dict) else dict.fromkeys(drag)  # no place: the word's own
        labels = self._words + [name for name in starts if name not in self._words]
        self._colors, self._arrows = colors, arrows
        tips = [_pair(places[labels.index(n)] if at is None else at, n) for n, at in _known(starts, self._words)]
        self._places = np.vstack([places, *(tips[i] for i, n in enumerate(starts) if n not in self._words)])
        self._limit, self._title, self._rows, self._bars, self._sentence = limit, str(title), [], [], ""
        super().__init__(
            self._calling(first) if callable(first) else places,
            controls,
            labels=labels,
            roles=self._roles(labels, list(starts)),
            moving=[labels.index(name) for name in starts],
            tips=[list(map(float, tip)) for tip in tips],
            start=[list(map(float, tip)) for tip in tips],
            arrows=arrows,
            grid=grid,
            axis_names=[str(name) for name in names],
            directions=[[str(name), *map(float, _pair(at, name))] for name, at in (directions or {}).items()],
        )
        self._set_area(span)
        if against and against not in self._others():
            raise ValueError(
                f"The dot product is between the first dragged arrow and another one: against={against!r} is not among "
                f"{', '.join(self._others()) or 'them, since nothing is dragged'}."
            )
        self.against = against
        self._tell()
        self.observe(self._moved, names="tips")
        self.observe(self._tell, names=["against", "hover"])

    def _calling(self, function):
        """`function` with the dragged vectors in front, so that only the controls are left to fill in."""

        @functools.wraps(function)
        def call(**values):
            return function(*self.vectors.values(), **values)

        return call

    def _roles(self, labels, dragged):
        plain = "key" if self._arrows else "other"
        roles = {name: "query" if name in dragged else plain for name in labels}
        given = self._colors
        if isinstance(given, str):
            given = dict.fromkeys((w for w in self._words if w not in dragged), given)
        elif given is not None and not isinstance(given, dict):
            if len(given) != len(self._words):
                raise ValueError(
                    f"There are {len(given)} colours for {len(self._words)} words: give one a word, or one."
                )
            given = dict(zip(self._words, given, strict=True))
        for name, role in (given or {}).items():
            if role not in ROLES:
                raise ValueError(f"A colour is named by its role, one of {', '.join(ROLES)}; {name!r} has {role!r}.")
            roles[name] = role
        self._colors = given or {}
        return [roles[name] for name in labels]

    def _set_area(self, span):
        """A square part of the plane with the origin, every arrow and room to drag; it stays as it is."""
        if span is not None:
            low, high = map(float, _pair(span, "span"))
            if not low < high:
                raise ValueError(f"The axes need low < high; span is {span!r}.")
            box = np.array([[low, low], [high, high]])
        else:
            places = self._all_places()
            steps = [[x, y] for _, x, y in self.directions]
            shown = np.vstack([places[np.isfinite(places).all(axis=1)], *steps, [0, 0]])
            if self.arrows:
                reach = max(1.0, np.ceil(2.7 * np.abs(shown).max()) / 2)
                box = np.array([[-reach, -reach], [reach, reach]])
            else:
                low, high = np.minimum(shown.min(0), 0), np.maximum(shown.max(0), 0)
                half = 0.62 * max(*(high - low), 1e-9)
                box = np.array([(low + high) / 2 - half, (low + high) / 2 + half])
        self.area = [float(box[0, 0]), float(box[1, 0]), float(box[0, 1]), float(box[1, 1])]
        self.step = float(10.0 ** np.floor(np.log10((box[1, 0] - box[0, 0]) / 20) + 1e-9))

    @property
    def vectors(self):
        """The dragged vectors by name, as arrays (2,)."""
        return {self.labels[i]: np.array(tip, dtype=float) for i, tip in zip(self.moving, self.tips, strict=True)}

    def move(self, name, vector):
        """Move a dragged arrow from code, as the hand would."""
        if name not in self.vectors:
            raise ValueError(f"{name!r} is not dragged here; {', '.join(self.vectors) or 'nothing'} is.")
        self.tips = [
            list(map(float, _pair(vector, name))) if self.labels[i] == name else tip
            for i, tip in zip(self.moving, self.tips, strict=True)
        ]

    @traitlets.validate("tips")
    def _checked_tips(self, proposal):
        return [list(map(float, _pair(tip, "a dragged arrow"))) for tip in proposal["value"]]

    def _moved(self, _change):
        with self.hold_sync():  # one message for all that follows from a move
            if self.driver:
                self.driver.update()
            self._tell()

    def show_value(self, value):
        """Show what a function returned, or an (n, 2) array; ValueError in words for anything else."""
        places, rows, bars, sentence = self._places, [], [], ""
        if isinstance(value, str):
            sentence = value
        elif isinstance(value, dict):
            places, rows, bars, sentence = self._read_dict(value)
        elif not isinstance(value, tuple) and plots.to_numpy(value).ndim == 2:
            places = self._places.copy()
            places[: len(self._words)] = self._checked_places(value)
        else:
            rows, bars = self._words, self._read_scores(value)
        if np.isnan(places[: len(self._words)]).any():
            raise ValueError("the words have no places yet: give points, or return an (n, 2) array.")
        self._places, self._rows, self._sentence = places, rows, sentence
        self._bars = [(title, *self._axis(k, title, numbers), numbers) for k, (title, numbers) in enumerate(bars)]
        with self.hold_sync():
            self.points = floats(self._places)
            if bars:  # the room of the bars stays when a later result has none
                self.row_names = list(rows)
                self.columns = [[title, low, high, bar_role(title)] for title, low, high, _ in self._bars]
            self.values = floats([numbers for *_, numbers in self._bars])
            self._tell()

    def _read_scores(self, value):
        if isinstance(value, tuple):
            if len(value) != 2:
                raise ValueError(
                    f"return scores, or the two arrays (scores, weights); it returned {len(value)} things."
                )
            return [(title, self._numbers(v, title)) for title, v in zip(("scores", "weights"), value, strict=True)]
        scores = self._numbers(value, "scores")
        return [("scores", scores), ("weights", softmax(scores))]

    def _numbers(self, value, title):
        numbers = plots.to_numpy(value)
        if numbers.dtype.kind not in "biuf":
            what = "nothing (end it with `return ...`)" if value is None else type(value).__name__
            raise ValueError(f"the view shows scores, a dict, a sentence or places; the function returned {what}.")
        if numbers.shape != (len(self._words),):
            raise ValueError(
                f"the {title} need one number for each of the {len(self._words)} words, shape ({len(self._words)},); "
                f"the function returned shape {numbers.shape}."
            )
        return _finite(numbers.astype(float), f"the {title}", self._words)

    def _read_dict(self, value):
        names, numbers, sentences, places = [], [], [], self._without_results()
        for name, item in ((str(name), item) for name, item in value.items()):
            if isinstance(item, str):
                sentences.append(f"{name}: {item}")
            elif plots.to_numpy(item).ndim == 0:
                names.append(name)
                numbers.append(float(item))
            else:
                places = self._with_arrow(places, name, _pair(item, name))
        numbers = _finite(np.array(numbers), "the dict", names)
        return places, names, [(self._title, numbers)] if names else [], "\n".join(sentences)

    def _with_arrow(self, places, name, tip):
        """The places with the arrow `name` at `tip`; a name not seen before becomes a new arrow."""
        if name in self.vectors:
            raise ValueError(f"{name!r} is dragged by hand, so the function cannot place it too.")
        if name not in self.labels:
            self._places = np.vstack([self._places, tip])  # on the page from now on
            with self.hold_sync():
                self.points = floats(self._places)
                self.roles = [*self.roles, self._colors.get(name, "added")]
                self.labels = [*self.labels, name]
            places = np.vstack([places, tip])
        places[self.labels.index(name)] = tip
        return places

    def _axis(self, k, title, numbers):
        """Ends of one axis of bars: fixed, or grown to the next round number and never back."""
        if title == "weights":
            return 0.0, 1.0
        before = self.columns[k][1:3] if k < len(self.columns) and self.columns[k][0] == title else [0.0, 0.0]
        need = max(np.abs(numbers).max(initial=0.0), before[1])
        high = float(self._limit or _round_up(need))
        return (-high if title == "scores" or numbers.min(initial=0.0) < 0 or before[0] < 0 else 0.0), high

    def _checked_places(self, value):
        places = plots.to_numpy(value)
        if places.shape != (len(self._words), 2) or places.dtype.kind not in "biuf":
            raise ValueError(
                f"A plane needs two numbers for each of the {len(self._words)} words, shape ({len(self._words)}, 2); "
                f"this array has shape {places.shape}."
            )
        return _finite(places.astype(float), "the places", self._words)

    def _without_results(self):
        """The places with NaN, which is not drawn, for the arrows that the function adds."""
        places = self._places.copy()
        for i in range(len(self._words), len(places)):
            if i not in self.moving:
                places[i] = np.nan
        return places

    def _all_places(self):
        places = self._places.copy()
        if self.moving:
            places[self.moving] = self.tips
        return places

    def _others(self):
        """The arrows whose dot product with the first dragged one can be shown."""
        return [name for i, name in enumerate(self.labels) if self.moving and self.arrows and i != self.moving[0]]

    def _complain(self, sentence):
        if sentence:  # what was shown belongs to an older place of the arrow
            self._bars, self._sentence, self.values = [], "", b""
            self._places = self._without_results()
            self.points = floats(self._places)
            at = ", ".join(f"{name} at {_spoken(vector)}" for name, vector in self.vectors.items())
            sentence += f" ({at})" if at else ""
        self.error = sentence

    def _tell(self, _change=None):
        self.detail = "\n".join(line for line in (self._sentence, self._product()) if line)

    def _product(self):
        """The dot product of the chosen word and the first dragged arrow, in numbers."""
        word = self.against or self.hover
        if word not in self._others():
            return ""
        place = self._all_places()
        name, q, k = self.labels[self.moving[0]], place[self.moving[0]], place[self.labels.index(word)]
        sum_ = f"{name} · {word} = {_in_sum(q[0])}·{_in_sum(k[0])} + {_in_sum(q[1])}·{_in_sum(k[1])} = {_two(q @ k)}"
        length = np.hypot(*q)
        if length == 0:
            return f"{sum_}\n{name} has length 0, so it points nowhere and every product is 0."
        shadow = _in_sum(q @ k / length)
        return f"{sum_}\nlength of {name} {length:.2f} × shadow of {word} on its line {shadow} = {_two(q @ k)}"

    def figure(self):
        """The plane and its bars as a matplotlib figure."""
        return vector_plane_figure.draw(self, self._all_places(), self._rows, self._bars)

    def alt(self):
        """What is dragged and where, and the numbers beside the plane."""
        words = [name for i, name in enumerate(self.labels) if i not in self.moving]
        kind = "arrows" if self.arrows else "points"
        said = [f"Plane with {len(words)} words as {kind}" + (f": {', '.join(words[:12])}" if words else "")]
        said += [f"{name} is at {_spoken(vector)}" for name, vector in self.vectors.items()]
        for title, _, _, numbers in self._bars:
            said.append(f"{title}: " + ", ".join(f"{n} {_two(v)}" for n, v in zip(self._rows, numbers, strict=True)))
        said += [line for line in (self.error or self.detail).split("\n") if line]
        return " ".join(f"{line.rstrip('.')}." for line in said)

    def __repr__(self):
        dragged = f", drag {', '.join(self.vectors)}" if self.moving else ""
        return f"VectorPlane({len(self._words)} words{dragged})"


def _known(starts, words):
    """The dragged names with their starting places; a name without a place must be one of the words."""
    for name, at in starts.items():
        if at is None and name not in words:
            raise ValueError(
                f"{name!r} is to be dragged but is not among the words ({', '.join(words)}). "
                f"Say where it starts, as in drag={{{name!r}: (1.0, 0.5)}}."
            )
        yield name, at


def _pair(value, name):
    """Two finite numbers as an array (2,); ValueError that names what they were for."""
    pair = plots.to_numpy(value)
    if pair.shape != (2,) or pair.dtype.kind not in "biuf" or not np.isfinite(pair).all():
        raise ValueError(f"{name!r} needs two numbers, such as (1.0, 0.5); it was given {value!r}.")
    return pair.astype(float)


def _finite(numbers, what, names):
    """The numbers, if a bar or a place can be drawn for each of them."""
    bad = [name for name, row in zip(names, numbers, strict=True) if not np.isfinite(row).all()]
    if bad:
        raise ValueError(f"{what} hold NaN or infinity for {', '.join(bad)}: look for 0/0, or the log of 0.")
    if len(names) > MOST_BARS and numbers.ndim == 1:
        raise ValueError(
            f"{what} have {len(names)} numbers and a reader sees {MOST_BARS} bars: return fewer in a dict."
        )
    return numbers


def _round_up(value):
    """The next of 1, 2, 5, 10, 20, ...

    >>> [_round_up(v) for v in (0.3, 1.2, 5.0, 5.1, 130)]
    [1.0, 2.0, 5.0, 10.0, 200.0]
    """
    scale = 1.0
    while value > 5 * scale:
        scale *= 10
        if value <= scale:
            return scale
    return next(scale * m for m in (1, 2, 5) if value <= scale * m)


def _two(value):
    return plots._number(value)


def _in_sum(value):
    return f"({_two(value)})" if _two(value).startswith("-") else _two(value)


def _spoken(vector):
    return f"({_two(vector[0])}, {_two(vector[1])})"
