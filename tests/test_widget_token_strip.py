"""TokenStrip: what is typed as tokens with ids and bytes, and the merges that made them."""

import html

import pytest

from course_utils.text import BPETokenizer, CharTokenizer, WordTokenizer
from course_utils.widgets.text_box import TextBox, sendable
from course_utils.widgets.token_strip import TokenStrip, token_bytes

SENTENCE = "I just dropped my mechanical pencil I can't believe my lead"
HALF = "pen" + chr(0xD83D)  # half an emoji


@pytest.fixture(scope="module")
def gpt2():
    return BPETokenizer.gpt2()


def type_text(view, text):
    view.box.value = text


def test_tokens_ids_and_words_for_them(gpt2):
    view = TokenStrip(gpt2, SENTENCE)
    assert view.tokens[5] == " pencil" and view.ids[5] == 21613
    assert view.summary == "12 tokens for 59 characters."
    assert repr(view) == "TokenStrip(12 tokens, selected=-1)"
    assert "␣just (655)" in view.alt()


def test_the_held_token_is_told_with_its_id_and_bytes(gpt2):
    view = TokenStrip(gpt2, SENTENCE)
    assert view.detail == ""
    view.selected = 5
    assert view.detail == "token 6: ␣pencil, id 21613, 7 bytes: 20 70 65 6e 63 69 6c"
    type_text(view, "I just")  # the sixth token is gone
    assert (view.selected, view.detail) == (-1, "")


def check_bytes(tokens_bytes, tokenizer):
    r"""Every text is the sum of its tokens' bytes; `\xf0` may be four letters or one byte."""
    for text in (r"a\xf0b", "🙂", "é ✏" + r"\x9c", "I just"):
        tokens = tokenizer.tokens(text)
        assert b"".join(tokens_bytes(tokens, text, i) for i in range(len(tokens))) == text.encode("utf-8")


def test_bytes_of_tokens(gpt2):
    check_bytes(token_bytes, gpt2)
    assert token_bytes(["my", "lead"], "my lead", 1) == b"lead"  # words without their spaces do not add up to the text


def test_bytes_of_the_shown_letters_are_caught(gpt2):
    with pytest.raises(AssertionError):
        check_bytes(lambda tokens, text, index: tokens[index].encode("utf-8"), gpt2)


def check_notes(view):
    """Each note names the two tokens that stand where the step's new token stands, one step earlier."""
    for before, after, place, note in zip(view.steps, view.steps[1:], view.fresh[1:], view.notes[1:], strict=False):
        assert after == [*before[:place], before[place] + before[place + 1], *before[place + 2 :]]
        assert note.endswith(f"→ {after[place].replace(' ', '␣')}")


def test_merges_of_the_piece_of_the_held_token(gpt2):
    view = TokenStrip(gpt2, SENTENCE + " leadleadlead")
    assert view.mergeable and view.steps == [] and view.hint.startswith("Hold a token")
    view.selected = 11
    assert view.steps == gpt2.merge_steps(" lead")
    assert view.notes[-1] == "Merge 4 of 4: ␣le + ad → ␣lead"
    check_notes(view)
    view.step = 2
    view.selected = len(view.tokens) - 1  # a part of the piece " leadleadlead"
    assert view.step == 0 and "".join(view.steps[0]) == " leadleadlead"
    check_notes(view)


def test_a_wrong_place_of_the_new_token_is_caught(gpt2):
    view = TokenStrip(gpt2, SENTENCE, selected=4)
    view.fresh = [place + 1 for place in view.fresh]
    with pytest.raises((AssertionError, IndexError)):
        check_notes(view)


def test_a_long_piece_has_no_merges_but_a_reason(gpt2):
    view = TokenStrip(gpt2, "a" * 10_000, selected=0)
    assert len(view.tokens) == 200
    assert view.summary == "2,500 tokens for 10,000 characters; the first 200 of them are shown."
    assert view.steps == [] and "10,000 bytes" in view.hint


def test_what_a_tokenizer_cannot_merge_is_told_in_its_words():
    class Refuses:
        def tokens(self, text):
            return text.split()

        def encode(self, text):
            return list(range(len(text.split())))

        def merge_steps(self, piece):
            raise ValueError("one word at a time, please")

    assert TokenStrip(Refuses(), "my lead", selected=1).hint == "one word at a time, please"


@pytest.mark.parametrize("text", ["", "\n\n 🙂 ✏ $x$ \\alpha", "<script>alert(1)</script>"])
def test_any_text_has_a_picture_and_a_sentence(gpt2, text):
    view = TokenStrip(gpt2, text, selected=0 if text else -1)
    assert view.error == ""
    assert "<script>" not in view.still_html()
    assert html.escape(view.alt().split(" They")[0].split(" The text")[0]) in view.still_html()


def test_half_a_character_is_told_and_the_next_text_recovers(gpt2):
    view = TokenStrip(gpt2, "my lead")
    type_text(view, HALF)
    assert view.error.startswith("BPETokenizer: The text holds half a character")
    assert "Move a control" not in view.error  # there is none
    assert view.tokens == ["my", " lead"]
    type_text(view, "my pencil")
    assert view.error == "" and view.tokens == ["my", " pencil"]


def test_half_a_character_can_be_sent():
    state = TextBox(HALF).get_state("value")
    assert state["value"] == sendable(HALF) == "pen\ufffd"
    view = TokenStrip(lambda text: list(text), HALF)
    assert view.tokens == ["p", "e", "n", "\ufffd"]
    view.get_state()["tokens"][-1].encode("utf-8")  # would raise


def test_other_tokenizers_and_functions():
    assert TokenStrip(CharTokenizer("pencil"), "lip").ids == [5, 4, 0]
    view = TokenStrip(WordTokenizer(["my lead broke"]), "my pencil")
    assert "'pencil' is not among the 3" in view.error
    view = TokenStrip(str.split, "my  lead")
    assert (view.tokens, view.ids, view.mergeable) == (["my", "lead"], [], False)


def test_a_function_may_have_controls():
    def cut(text, size=2):
        return [text[i : i + size] for i in range(0, len(text), size)], range(0, len(text), size)

    view = TokenStrip(cut, "pencil", size=(1, 4))
    assert (view.tokens, view.ids) == (["pe", "nc", "il"], [0, 2, 4])
    view.controls["size"].value = 4
    assert (view.tokens, view.ids) == (["penc", "il"], [0, 4])
    assert list(view.controls) == ["text", "size"]
    assert "a text box, size=4" in view.still_html()


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "it is nothing"),
        ([1, 2], "list of strings"),
        ((["a"], [1, 2]), "1 tokens and 2 ids"),
        ((["a"], [1.5]), "whole numbers"),
        (7, "it is 7"),
    ],
)
def test_a_wrong_result_is_told_and_recovers(result, words):
    view = TokenStrip(lambda text: result if text == "bad" else text.split(), "my lead")
    type_text(view, "bad")
    assert words in view.error
    type_text(view, "my pencil")
    assert view.error == "" and view.tokens == ["my", "pencil"]


def test_an_error_in_the_function_is_told_with_its_kind():
    view = TokenStrip(lambda text: text.split()[9], "my lead")
    assert "IndexError" in view.error


def test_something_that_cuts_no_text_is_refused():
    with pytest.raises(ValueError, match=r"needs a tokenizer.*type list"):
        TokenStrip(["my", "lead"])


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_save(gpt2, tmp_path, ending):
    view = TokenStrip(gpt2, SENTENCE, selected=4)
    view.step = 3
    view.save(tmp_path / f"strip.{ending}")
    assert (tmp_path / f"strip.{ending}").stat().st_size > 3000
