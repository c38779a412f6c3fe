"""The functions that page 11 defines, on sizes it does not show; each check is proved able to fail."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from course_utils import data, model, shifted_seed
from course_utils.text import WordTokenizer
from page_code import definitions

STORIES = data.PencilStories()
WORDS = STORIES.tokenizer.vocabulary
TINY = WordTokenizer(["my lead broke I can't"], specials=("<start>", "<end>"))


class Parrot(torch.nn.Module):
    """Stands in for a trained model: after token i it expects token i + 1, with logit 2 against 0 for the others."""

    def __init__(self, vocab_size):
        super().__init__()
        self.vocab_size = vocab_size

    def forward(self, ids):
        return 2.0 * torch.nn.functional.one_hot((ids + 1) % self.vocab_size, self.vocab_size).float()


def page(**given):
    names = dict(
        stories=STORIES,
        tokenizer=STORIES.tokenizer,
        model=Parrot(len(WORDS)),
        history=None,
        rows=None,
        nexts=None,
        sentence_ids=torch.tensor([[0]]),
    )
    return definitions("11", **(names | given))


PAGE = page()


# -- lessons --


def check_lessons(to_lessons):
    inputs, targets = to_lessons([[7, 8, 9], [5], []], 5, start_id=0, end_id=1)
    np.testing.assert_array_equal(inputs, [[0, 7, 8, 9, 1], [0, 5, 1, 1, 1], [0, 1, 1, 1, 1]])
    np.testing.assert_array_equal(targets, [[7, 8, 9, 1, -100], [5, 1, -100, -100, -100], [1, *[-100] * 4]])


def test_lessons():
    check_lessons(PAGE["to_lessons"])
    texts = STORIES.held_out()[::400]
    for ours, theirs in zip(
        PAGE["to_lessons"]([STORIES.tokenizer.encode(t) for t in texts], STORIES.max_len),
        STORIES.arrays(texts),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


def unshifted(sentences, width, start_id=0, end_id=1):
    inputs, targets = PAGE["to_lessons"](sentences, width, start_id, end_id)
    return np.where(targets == -100, inputs, targets), targets  # the answer stands in the question


def padding_is_scored(sentences, width, start_id=0, end_id=1):
    inputs, targets = PAGE["to_lessons"](sentences, width, start_id, end_id)
    return inputs, np.where(targets == -100, end_id, targets)


@pytest.mark.parametrize("wrong", [unshifted, padding_is_scored])
def test_wrong_lessons_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_lessons(wrong)


# -- windows --


def check_windows(cut_windows):
    inputs, targets = cut_windows(np.arange(10, 18), T=3, stride=2)
    np.testing.assert_array_equal(inputs, [[10, 11, 12], [12, 13, 14], [14, 15, 16]])
    np.testing.assert_array_equal(targets, [[11, 12, 13], [13, 14, 15], [15, 16, 17]])
    assert cut_windows(np.arange(4), T=3, stride=5)[0].shape == (1, 3)
    assert sorted(cut_windows(np.arange(22), T=7, stride=7)[1].ravel()) == list(range(1, 22))


def test_windows():
    check_windows(PAGE["cut_windows"])


def last_window_lost(ids, T, stride):
    inputs, targets = PAGE["cut_windows"](ids, T, stride)
    return (inputs[:-1], targets[:-1]) if len(inputs) > 1 else (inputs, targets)


@pytest.mark.parametrize("wrong", [last_window_lost, lambda ids, T, stride: PAGE["cut_windows"](ids, T, T)])
def test_wrong_windows_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_windows(wrong)


def test_the_picture_counts_how_often_pencil_is_a_target():
    drawn = page(line="I just dropped my mechanical pencil I can't believe my lead broke".split())["show_windows"]
    assert "pencil is a target 5 times" in drawn(T=5, stride=1).alt
    assert "1 windows of 8 tokens, stride 8; pencil is a target 1 times" in drawn(T=8, stride=8).alt


# -- measures --


def check_paired_difference(paired_difference):
    gap, error = paired_difference(np.array([3.0, 5.0, 1.0]), np.array([2.0, 3.0, 1.0]), np.array([10, 10, 20]))
    assert gap == pytest.approx(3 / 40)  # 1 + 2 + 0 nats on 40 tokens
    spread = np.std([1 - 0.75, 2 - 0.75, 0 - 1.5], ddof=1)  # what each story differs from its share
    assert error == pytest.approx(spread / np.sqrt(3) / (40 / 3))


def test_paired_difference():
    check_paired_difference(PAGE["paired_difference"])


def test_a_mean_over_stories_instead_of_tokens_is_caught():
    with pytest.raises(AssertionError):
        check_paired_difference(lambda ours, true, n: (((ours - true) / n).mean(), 0.0))


def test_the_luck_of_the_draw_cancels():
    rng = np.random.default_rng(shifted_seed(4))
    luck = rng.normal(8, 3, size=4000)
    gap, error = PAGE["paired_difference"](luck + 0.05 + rng.normal(0, 0.01, 4000), luck, np.full(4000, 10))
    assert abs(gap - 0.005) < 5 * error and error < 1e-4


def check_total_variation(total_variation):
    assert total_variation([1.0, 0.0], [0.0, 1.0]) == 1 and total_variation([0.3, 0.7], [0.3, 0.7]) == 0
    assert total_variation([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]) == pytest.approx(0.3)


def test_total_variation():
    check_total_variation(PAGE["total_variation"])


def test_a_forgotten_half_is_caught():
    with pytest.raises(AssertionError):
        check_total_variation(lambda p, q: 2 * PAGE["total_variation"](p, q))


def check_loss_per_story(loss_per_story):
    torch.manual_seed(shifted_seed(0))
    gpt = model.GPT(model.GPTConfig(vocab_size=6, d_model=8, max_len=4))
    inputs, targets = np.array([[0, 2, 3, 1], [0, 5, 1, 1]]), np.array([[2, 3, 1, -100], [5, 1, -100, -100]])
    logp = gpt(torch.tensor(inputs)).log_softmax(-1).detach().numpy()
    by_hand = [-(logp[0, 0, 2] + logp[0, 1, 3] + logp[0, 2, 1]), -(logp[1, 0, 5] + logp[1, 1, 1])]
    np.testing.assert_allclose(loss_per_story(gpt, inputs, targets), by_hand, rtol=1e-5)


def test_loss_per_story():
    check_loss_per_story(PAGE["loss_per_story"])


def test_a_loss_on_the_padding_is_caught():
    with pytest.raises(AssertionError):
        check_loss_per_story(lambda gpt, x, y: PAGE["loss_per_story"](gpt, x, np.where(y == -100, 1, y)))


def test_first_step():
    assert PAGE["first_step"]([1, 10, 20, 30], [False, False, True, False]) == 20


# -- what is asked of the model --


def test_the_beginnings_stop_before_the_outcome():
    until = PAGE["until_outcome"]
    assert until("I just walked my dog and of course its bark woke the neighbours") == (
        "I just walked my dog and of course its bark"
    )
    for story in STORIES.held_out()[::97]:
        beginning = until(story)
        outcome = story[len(beginning) :].split()[0]
        assert story.startswith(beginning + " ") and len(STORIES.next_word(beginning, held_out=True)) > 1
        assert outcome in STORIES.next_word(beginning, held_out=True)


def test_the_grammars_probabilities_as_one_row():
    probs = PAGE["grammar_probs"]("I just dropped my mechanical pencil I can't believe my lead")
    assert probs.sum() == pytest.approx(1) and probs[WORDS.index("broke")] == pytest.approx(0.6)


def test_next_probs_and_model_probs_look_at_the_last_token():
    probs = PAGE["next_probs"](Parrot(5), torch.tensor([[0, 3, 1]]))
    assert probs.argmax() == 2 and probs.sum().item() == pytest.approx(1)
    assert probs[2].item() == pytest.approx(np.exp(2) / (np.exp(2) + 4))
    assert PAGE["model_probs"]("my lead").argmax() == WORDS.index("lead") + 1


def test_probe_reads_the_row_of_lead_and_the_three_words():
    ids = torch.tensor([[0, 3, 4, 2]])
    torch.manual_seed(shifted_seed(1))
    gpt = model.GPT(model.GPTConfig(vocab_size=len(WORDS), d_model=8, max_len=4))
    names = page(sentence_ids=ids, outcomes=["broke", "quit"], lead=3)
    seen = names["probe"](gpt)
    assert seen["row"].shape == (2, 4) and torch.allclose(seen["row"].sum(-1), torch.ones(2))
    expected = gpt(ids)[0, -1].softmax(-1)[[WORDS.index("broke"), WORDS.index("quit")]]
    np.testing.assert_allclose(seen["next"], expected.detach(), rtol=1e-5)


def test_the_moment_shows_the_nearest_record():
    history = SimpleNamespace(step=[1, 10, 20], val_loss=[5.0, 2.0, 1.0])
    rows, nexts = np.full((3, 2, 2), 0.5), np.array([[0.1, 0.1, 0.1], [0.2, 0.1, 0.1], [0.6, 0.3, 0.1]])
    rows[1] = [[0.9, 0.1], [0.3, 0.7]]
    names = page(
        history=history,
        rows=rows,
        nexts=nexts,
        floors={"3 back": 1.5, "all": 0.9},
        outcomes=["broke", "snapped", "crumbled"],
    )
    assert [names["record_at"](step) for step in (0, 5, 13, 16, 800)] == [0, 0, 1, 2, 2]
    np.testing.assert_array_equal(names["row_of_lead"](13), rows[1])
    shown = names["words_and_loss"](13)
    assert "Step 10: loss 2.00" in shown.alt and "broke 0.20, snapped 0.10" in shown.alt
    assert not plt.get_fignums()


# -- the reader's text --


def check_read_beginning(read):
    assert read("", TINY, 4).tolist() == [[0]]
    assert read("my lead", TINY, 4).tolist() == [[0, 2, 3]]
    assert read("I can’t", TINY, 4).tolist() == [[0, *TINY.encode("I can't")]]
    for typed, told in [
        ("my pen", "no word 'pen'"),
        ("my 🙂", "no word '🙂'"),
        ("x" * 10_000, f"no word '{'x' * 20}'"),
        ("my my my my", "at most 3 words, and this text has 4"),
    ]:
        with pytest.raises(ValueError) as error:
            read(typed, TINY, 4)
        assert told in str(error.value) and len(str(error.value)) < 200


def test_read_beginning():
    check_read_beginning(PAGE["read_beginning"])


def test_a_reader_that_cuts_in_silence_is_caught():
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_read_beginning(lambda text, tokenizer, room: PAGE["read_beginning"](text[:3], tokenizer, room))


def test_your_story_answers_with_probabilities_or_says_why_not():
    answer = PAGE["your_story"]
    for typed in ("my lead", ""):
        probs = answer(typed)
        assert list(probs) == WORDS and sum(probs.values()) == pytest.approx(1, abs=1e-5)
    probs = answer("my lead")
    assert WORDS[WORDS.index("lead") + 1] in sorted(probs, key=probs.get)[-2:]
    for typed in ("my eraser", "🙂", "my " * 5000, "x" * 10_000):
        with pytest.raises(ValueError) as problem:
            answer(typed)
        assert len(str(problem.value)) < 200


# -- heads, stories, files --


def test_probability_without_a_head_differs_from_head_to_head():
    torch.manual_seed(shifted_seed(2))
    gpt = model.GPT(model.GPTConfig(vocab_size=len(WORDS), d_model=8, max_len=4))
    with torch.no_grad():
        for weight in gpt.parameters():
            weight.mul_(8)
    ids = torch.tensor([[0, 3, 4]])
    names = page(model=gpt, sentence_ids=ids)
    whole = gpt(ids)[0, -1].softmax(-1)[WORDS.index("broke")].item()
    seen = [names["probability_without"](head) for head in (0, 1)]
    assert len({round(p, 7) for p in [whole, *seen]}) == 3
    assert gpt(ids)[0, -1].softmax(-1)[WORDS.index("broke")].item() == pytest.approx(whole)


def test_possible():
    possible = PAGE["possible"]
    assert all(possible(story) for story in STORIES.sample(20))
    assert not possible("") and not possible("I just dropped my pencil") and not possible("my lead broke again again")


def test_a_file_that_is_no_text_is_named_and_replaced(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(data, "installed_docs", lambda: "the docs")
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("my lead", encoding="utf-8")
    bad.write_bytes(b"\xff\xfe\x00")
    text_or_docs = PAGE["text_or_docs"]
    assert text_or_docs("") == "the docs" and text_or_docs(good) == "my lead" and not capsys.readouterr().out
    assert text_or_docs(bad) == "the docs" and "not plain text in UTF-8" in capsys.readouterr().out
