"""vectors: the toy plane, the real table, cosines, neighbours, analogies, and the script that made the file."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from course_utils import vectors

ROOT = Path(__file__).parents[1]
MAN_WOMAN = ("man", "woman")
PERSONS = ["man", "woman", "boy", "girl"]
OCCUPATIONS = ["doctor", "nurse", "teacher", "engineer", "lawyer", "farmer"]


@pytest.fixture
def maker():
    spec = importlib.util.spec_from_file_location("make_word_vectors", ROOT / "tools" / "make_word_vectors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The real table


def test_load_gives_float32_rows_of_real_words():
    words, table = vectors.load()
    assert isinstance(words, list) and 380 <= len(words) == len(set(words)) <= 450
    assert table.shape == (len(words), 384) and table.dtype == np.float32
    assert np.isfinite(table).all()
    lengths = np.linalg.norm(table, axis=1)
    assert 0.8 < lengths.min() and lengths.max() < 1.5
    np.testing.assert_array_equal(vectors.vector("pencil"), table[words.index("pencil")])
    np.testing.assert_array_equal(vectors.vector("Pencil"), vectors.vector("pencil"))


def test_load_is_cached_and_callers_cannot_spoil_it():
    words, table = vectors.load()
    words.clear()
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0] = 5
    again, same = vectors.load()
    assert again and same is table


def test_words_of_the_course_are_there():
    words = set(vectors.load()[0])
    assert words >= set("i just dropped my mechanical pencil lead broke".split())
    assert words >= set("lead bark bat bow crane key mouse nail palm ring seal spring trunk".split())


def test_numpy_is_enough():
    code = (
        "import sys; from course_utils import vectors; vectors.load(); print({'torch', 'matplotlib'} & {*sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8")
    assert run.stdout == "set()\n"


@pytest.mark.parametrize("word, close", [("pensil", "pencil"), ("quen", "queen"), ("Waitres", "waitress")])
def test_unknown_word_is_named_with_close_spellings(word, close):
    with pytest.raises(ValueError) as caught:
        vectors.vector(word)
    message = str(caught.value)
    assert repr(word) in message and close in message and str(len(vectors.load()[0])) in message


@pytest.mark.parametrize("word", ["", "zzzzzz", "🙂", 7])
def test_unknown_word_without_close_spelling(word):
    with pytest.raises(ValueError, match="Choose one of"):
        vectors.vector(word)


# Cosine and neighbours


def check_cosine(cosine):
    np.testing.assert_allclose(cosine([3.0, 4.0], [4.0, 3.0]), 0.96, atol=1e-12)
    np.testing.assert_allclose(cosine([3.0, 4.0], [[6.0, 8.0], [-4.0, 3.0]]), [1.0, 0.0], atol=1e-12)
    assert isinstance(cosine([1.0, 2.0], [2.0, 1.0]), float)


def test_cosine():
    check_cosine(vectors.cosine)


def test_dot_product_and_half_a_cosine_are_caught():
    with pytest.raises(AssertionError):
        check_cosine(lambda a, b: np.dot(b, a))
    with pytest.raises(AssertionError):
        check_cosine(lambda a, b: np.dot(b, a) / np.linalg.norm(a) ** 2)


def test_cosine_of_bad_vectors():
    with pytest.raises(ValueError, match="zeros has no direction"):
        vectors.cosine([0, 0], [1, 2])
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        vectors.cosine([1, 2, 3], [1, 2])


def check_nearest(nearest):
    words, table = vectors.load()
    target = table[words.index("car")] * 7  # a cosine does not see the 7
    found = nearest(target, 3, exclude=["car"], candidates=["cat", "house", "car", "money", "the"])
    assert [word for word, _ in found] == ["house", "cat", "money"]
    np.testing.assert_allclose(found[0][1], 0.327, atol=5e-4)


def test_nearest():
    check_nearest(vectors.nearest)


def test_nearest_by_dot_product_or_with_the_word_itself_is_caught():
    def by_dot(target, k, exclude, candidates):
        pairs = [(word, float(vectors.vector(word) @ target)) for word in candidates if word not in exclude]
        return sorted(pairs, key=lambda pair: -pair[1])[:k]

    with pytest.raises(AssertionError):
        check_nearest(by_dot)  # 'cat' is longer than 'house', so it wins
    with pytest.raises(AssertionError):
        check_nearest(lambda target, k, exclude, candidates: vectors.nearest(target, k, candidates=candidates))
    with pytest.raises(AssertionError):
        check_nearest(lambda target, k, exclude, candidates: vectors.nearest(target, k, exclude=exclude))


def test_nearest_agrees_with_a_slow_loop():
    words, table = vectors.load()
    target = vectors.vector("lead").astype(float)
    slow = [(float(row @ target / np.sqrt(row @ row) / np.sqrt(target @ target)), word) for row, word in
            zip(table.astype(float), words, strict=True)]  # fmt: skip
    slow = sorted(slow, reverse=True)[:20]
    found = vectors.nearest(target, 20)
    assert [word for word, _ in found] == [word for _, word in slow]
    np.testing.assert_allclose([value for _, value in found], [value for value, _ in slow], atol=1e-12)


def test_nearest_when_few_words_are_left():
    lead = vectors.vector("lead")
    assert len(vectors.nearest(lead, 10_000)) == len(vectors.load()[0])
    assert vectors.nearest(lead, 3, exclude=["lead"], candidates=["lead"]) == []
    assert len(vectors.nearest(lead, 3, candidates=["pencil", "pencil"])) == 1
    with pytest.raises(ValueError, match="k=0"):
        vectors.nearest(lead, 0)
    with pytest.raises(ValueError, match="'pensil'"):
        vectors.nearest(lead, 3, exclude=["pensil"])


def test_lead_and_bank_have_one_vector_for_all_their_meanings():
    for word, meanings in [("lead", {"copper", "pencil"}), ("bank", {"money", "river"})]:
        assert meanings <= {other for other, _ in vectors.nearest(vectors.vector(word), 8)}


# Analogies

TRUE_ANALOGIES = [
    ("king", *MAN_WOMAN, "queen"),
    ("actor", *MAN_WOMAN, "actress"),
    ("waiter", *MAN_WOMAN, "waitress"),
    ("paris", "france", "germany", "berlin"),
    ("went", "go", "come", "came"),
    ("better", "good", "bad", "worse"),
    ("faster", "fast", "slow", "slower"),
    ("broke", "break", "drop", "dropped"),
]


def check_analogies(analogy):
    for a, b, c, answer in TRUE_ANALOGIES:
        assert analogy(a, b, c)[0][0] == answer


def test_analogies():
    check_analogies(vectors.analogy)


def test_analogy_with_a_wrong_sign_or_the_inputs_kept_is_caught():
    with pytest.raises(AssertionError):
        check_analogies(lambda a, b, c: vectors.analogy(b, a, c))
    with pytest.raises(AssertionError):
        check_analogies(lambda a, b, c: vectors.analogy(a, b, c, exclude_inputs=False))
    with pytest.raises(AssertionError):  # the step from b to c left out
        check_analogies(lambda a, b, c: vectors.nearest(vectors.vector(a), exclude=(a, b, c)))


def test_analogy_falls_back_on_an_input_when_they_are_not_excluded():
    found = vectors.analogy("king", *MAN_WOMAN, exclude_inputs=False)
    assert [word for word, _ in found[:2]] == ["king", "queen"]
    for a, b, c, _ in TRUE_ANALOGIES:
        assert vectors.analogy(a, b, c, exclude_inputs=False)[0][0] in (a, c)


def test_analogy_returns_pairs_best_first():
    found = vectors.analogy("king", *MAN_WOMAN, k=4)
    assert len(found) == 4 and all(isinstance(word, str) and isinstance(value, float) for word, value in found)
    target = vectors.vector("king") - vectors.vector("man") + vectors.vector("woman")
    np.testing.assert_allclose(found[0][1], vectors.cosine(target, vectors.vector("queen")), atol=1e-12)
    assert sorted((value for _, value in found), reverse=True) == [value for _, value in found]
    with pytest.raises(ValueError, match="'kinq'"):
        vectors.analogy("kinq", *MAN_WOMAN)


def test_analogies_are_easier_among_few_words():
    """father - man + woman finds mother among five words, and dad among all."""
    few = ["pencil", "dog", "mother", "river", "red"]
    assert vectors.analogy("father", *MAN_WOMAN, candidates=few)[0][0] == "mother"
    assert vectors.analogy("father", *MAN_WOMAN)[0][0] == "dad"


def test_the_commonest_words_come_first():
    words = vectors.load()[0]
    assert {"the", "of", "and"} <= set(words[:10])
    assert max(words.index("the"), words.index("queen")) < words.index("waitress")


# The two planes


def test_toy_plane_is_exact():
    words, points = vectors.toy_plane()
    assert points.shape == (len(words), 2) and points.dtype == float
    assert len({tuple(point) for point in points}) == len(words)
    at = dict(zip(words, points, strict=True))
    for he, she in [("king", "queen"), ("actor", "actress"), ("waiter", "waitress")]:
        np.testing.assert_array_equal(at[he] - at["man"] + at["woman"], at[she])
    np.testing.assert_array_equal(at["actor"] - at["waiter"], at["actress"] - at["waitress"])
    assert at["doctor"][0] == at["nurse"][0] == 0


def check_plane(plane):
    (x, y), (x2, _) = plane(["queen", "king"], ("he", "she"), (PERSONS, OCCUPATIONS))
    rows = {word: vectors.vector(word).astype(float) for word in ["he", "she", "queen", *PERSONS, *OCCUPATIONS]}
    step = rows["she"] - rows["he"]
    np.testing.assert_allclose(x, rows["queen"] @ step / np.sqrt(step @ step), atol=1e-12)
    step = sum(rows[word] for word in OCCUPATIONS) / 6 - sum(rows[word] for word in PERSONS) / 4
    np.testing.assert_allclose(y, rows["queen"] @ step / np.sqrt(step @ step), atol=1e-12)
    assert x2 < x


def test_plane():
    check_plane(vectors.plane)


def test_plane_with_a_wrong_direction_is_caught():
    with pytest.raises(AssertionError):
        check_plane(lambda words, x_pair, y_pair: vectors.plane(words, x_pair[::-1], y_pair))
    with pytest.raises(AssertionError):
        check_plane(lambda words, x_pair, y_pair: vectors.plane(words, y_pair, x_pair))
    with pytest.raises(AssertionError):  # a direction whose length is not 1
        check_plane(lambda words, x_pair, y_pair: vectors.plane(words, x_pair, y_pair) * [0.937, 1])


def test_real_plane_orders_pairs_as_the_toy_does():
    toy_words, toy = vectors.toy_plane()
    real = vectors.plane(toy_words, ("he", "she"), (PERSONS, OCCUPATIONS))
    at = dict(zip(toy_words, real, strict=True))
    for he, she in [MAN_WOMAN, ("king", "queen"), ("actor", "actress"), ("waiter", "waitress")]:
        assert at[he][0] < 0 < at[she][0]
    assert max(at["man"][1], at["woman"][1]) < min(y for word, (_, y) in at.items() if word not in MAN_WOMAN) - 0.4


def test_real_plane_is_not_exact_and_carries_bias():
    x = dict(zip(OCCUPATIONS, vectors.plane(OCCUPATIONS, ("he", "she"), MAN_WOMAN)[:, 0], strict=True))
    assert x["engineer"] < -0.1 < 0.1 < x["teacher"] < x["nurse"]
    assert abs(x["doctor"]) < 0.1


@pytest.mark.parametrize("pair", [("he", "he"), ("he", ["He"]), ("he", []), ([], "she")])
def test_plane_needs_two_ends(pair):
    with pytest.raises(ValueError, match="two different ends"):
        vectors.plane(["king"], pair, MAN_WOMAN)


def test_plane_of_no_words_and_of_an_unknown_word():
    assert vectors.plane([], ("he", "she"), MAN_WOMAN).shape == (0, 2)
    with pytest.raises(ValueError, match="'kinq'"):
        vectors.plane(["kinq"], ("he", "she"), MAN_WOMAN)


# The script


def test_script_and_asset_hold_the_same_words(maker):
    assert sorted(vectors.load()[0]) == sorted(maker.WORDS)


def test_script_takes_each_word_its_own_row(maker, tmp_path, monkeypatch):
    vocab = {word: 2 * i + 3 for i, word in enumerate(sorted(maker.WORDS))}
    table = np.random.default_rng(0).normal(size=(2 * len(vocab) + 3, 6)).astype(np.float32)
    save_file({"embeddings.word_embeddings.weight": table}, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}), encoding="utf-8")
    monkeypatch.setattr(maker, "ASSET", tmp_path / "out.npz")
    maker.main(tmp_path)
    with np.load(tmp_path / "out.npz") as file:
        words, stored = file["words"].tolist(), file["vectors"]
    assert words == sorted(maker.WORDS) and stored.dtype == np.float16
    np.testing.assert_array_equal(stored[words.index("pencil")], table[vocab["pencil"]].astype(np.float16))
    assert np.abs(stored[5] - table[13]).max() < 2e-3


def test_script_stops_at_a_word_in_pieces(maker, tmp_path):
    vocab = {word: i for i, word in enumerate(maker.WORDS) if word not in ("pencil", "queen")}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}), encoding="utf-8")
    with pytest.raises(SystemExit, match="pencil, queen"):
        maker.main(tmp_path)
