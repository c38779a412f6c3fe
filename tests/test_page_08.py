"""What page 08 defines, tried on sizes the page does not show; each check is proved able to fail."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course_utils import model, shifted_seed
from page_code import definitions, verdict

FEATURES = ["person", "thing", "part", "action", "by person", "by thing", "to person", "to thing"]
RULES = {
    "next": lambda q_pos, k_pos, q_tok, k_tok: k_pos == q_pos + 1,
    "a asks b": lambda q_pos, k_pos, q_tok, k_tok: q_tok == "a" and k_tok == "b",
}


@pytest.fixture(scope="module")
def page():
    names = definitions(
        "08", features=FEATURES, rules=RULES, sentence=["a", "b", "a"], four=["I", "dropped", "my", "pencil"]
    )
    names.update(X=torch.eye(8)[[0, 3, 1]], W_V=torch.eye(8)[:, :4], dropped=1)  # person, action, thing
    return names


def random(n, *shapes):
    generator = torch.Generator().manual_seed(shifted_seed(n))
    return [torch.randn(shape, generator=generator) for shape in shapes]


# -- one head and two --


def test_one_head_gets_two_answers_in_halves(page):
    one, who, what = page["looks_of_dropped"](who=12.0, what=12.0)
    exact = math.exp(6) / (2 * math.exp(6) + 1)  # two scores of 12 / sqrt(4), and one of 0
    torch.testing.assert_close(one, torch.tensor([exact, math.exp(0) / (2 * math.exp(6) + 1), exact]))
    assert who.argmax() == 0 and what.argmax() == 2 and min(who.max(), what.max()) > 0.99


def check_answers_stay_apart(output, exchanged):
    assert not torch.allclose(output, exchanged, atol=0.5)


def test_only_two_heads_keep_answers_apart(page):
    (one, two), (one_exchanged, two_exchanged) = page["heard"]("person", "thing"), page["heard"]("thing", "person")
    check_answers_stay_apart(two, two_exchanged)
    with pytest.raises(AssertionError):
        check_answers_stay_apart(one, one_exchanged)


def test_rule_heads(page):
    weights = page["rule_heads"](math.log(3))
    thirds = [1 / 3, 1 / 3, 1 / 3]
    torch.testing.assert_close(weights[0], torch.tensor([[0.2, 0.6, 0.2], [0.2, 0.2, 0.6], thirds]))
    torch.testing.assert_close(weights[1], torch.tensor([[0.2, 0.6, 0.2], thirds, [0.2, 0.6, 0.2]]))


# -- split and merge --


def check_split(split):
    assert split(torch.arange(8).view(1, 2, 4), 2).tolist() == [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    (x,) = random(1, (3, 5, 8))
    heads = split(x, 4)
    for b, j, t in np.ndindex(3, 4, 5):
        assert torch.equal(heads[b, j, t], x[b, t, 2 * j : 2 * j + 2])


def check_merge(merge):
    assert merge(torch.arange(8).view(1, 2, 2, 2)).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    (heads,) = random(2, (3, 4, 5, 2))
    assert torch.equal(merge(heads), torch.cat([heads[:, j] for j in range(4)], dim=-1))


def test_split_and_merge(page):
    check_split(page["split_heads"])
    check_merge(page["merge_heads"])


def test_the_two_wrong_ways_of_the_page_are_caught(page):
    with pytest.raises(AssertionError):
        check_split(page["split_without_transpose"])
    with pytest.raises(AssertionError):
        check_merge(page["merge_without_transpose"])


def test_the_wrong_merge_leaks(page):
    assert page["who_notices"](page["merge_heads"]) == ["pencil"]
    assert page["who_notices"](page["merge_without_transpose"]) == ["dropped", "pencil"]


def test_the_figures_count_the_foreign_rows():
    given = {"four": ["I", "dropped", "my", "pencil"], "tints": "Blues"}
    page = definitions("08", cells=10 * torch.arange(4)[:, None] + torch.arange(6), **given)
    page["ways"] = {"right": page["split_heads"], "wrong": page["split_without_transpose"]}
    page["merges"] = {"right": page["merge_heads"], "wrong": page["merge_without_transpose"]}
    for show, right, wrong in (("show_split", "0 of 12", "8 of 12"), ("show_merge", "0 of 4", "4 of 4")):
        assert right in page[show]("right", 3).alt and wrong in page[show]("wrong", 3).alt


# -- all heads --


def their_attention(x, W_Q, W_K, W_V, W_O, n_heads, mask):
    judge = nn.MultiheadAttention(x.shape[-1], n_heads, bias=False, batch_first=True)
    with torch.no_grad():
        judge.in_proj_weight.copy_(torch.cat([W_Q.T, W_K.T, W_V.T]))
        judge.out_proj.weight.copy_(W_O.T)
        blocked = None if mask is None else ~mask
        return judge(x, x, x, attn_mask=blocked, average_attn_weights=False)


def check_multi_head(multi_head):
    x, *matrices = random(3, (2, 7, 8), *[(8, 8)] * 4)
    for mask in (None, torch.ones(7, 7).tril().bool()):
        output, weights = multi_head(x, *matrices, 4, mask)
        expected, expected_weights = their_attention(x, *matrices, 4, mask)
        torch.testing.assert_close(output, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(weights, expected_weights, atol=1e-4, rtol=1e-4)


def test_multi_head_equals_pytorch(page):
    check_multi_head(page["multi_head"])


def test_wrong_multi_heads_are_caught(page):
    def inverted(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
        return page["multi_head"](x, W_Q, W_K, W_V, W_O, n_heads, None if mask is None else ~mask)

    def one_wide_head(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
        return page["multi_head"](x, W_Q, W_K, W_V, W_O, 1, mask)

    split_by_view = definitions("08")
    split_by_view["split_heads"] = split_by_view["split_without_transpose"]
    merged_by_reshape = definitions("08")
    merged_by_reshape["merge_heads"] = merged_by_reshape["merge_without_transpose"]
    for wrong in (inverted, one_wide_head, split_by_view["multi_head"], merged_by_reshape["multi_head"]):
        with pytest.raises(AssertionError):
            check_multi_head(wrong)


def test_the_loop_and_the_einsum_equal_multi_head(page):
    x, *matrices = random(4, (3, 4, 6), *[(6, 6)] * 4)
    causal = torch.ones(4, 4).tril().bool()
    expected = page["multi_head"](x, *matrices, 2, causal)[0]
    torch.testing.assert_close(page["loop_over_heads"](x, *matrices, 2, causal), expected, atol=1e-4, rtol=1e-4)
    unmasked = page["multi_head"](x, *matrices, 2)[0]
    torch.testing.assert_close(page["multi_head_einsum"](x, *matrices, 2), unmasked, atol=1e-4, rtol=1e-4)


def check_cost(cost):
    for n_heads, T in ((1, 10), (4, 10), (8, 33)):
        layer = model.MultiHeadAttention(24, n_heads, bias=False)
        counted = cost(n_heads, T, d_model=24)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            _, weights = layer(torch.zeros(1, T, 24))
        assert counter.get_total_flops() == 2 * counted["multiply-adds"]  # it counts both halves of a multiply-add
        assert weights.numel() == counted["weights"] and layer.n_heads * counted["d_k"] == 24
        assert sum(p.numel() for p in layer.parameters()) == counted["parameters"]


def test_cost_equals_what_torch_counts(page):
    check_cost(page["cost"])


def test_a_cost_that_grows_with_the_heads_is_caught(page):
    def wrong(n_heads, T, d_model):
        counted = page["cost"](n_heads, T, d_model)
        return counted | {"multiply-adds": n_heads * counted["multiply-adds"]}

    with pytest.raises(AssertionError):
        check_cost(wrong)


def test_compared_with_one_head(page):
    assert list(page["compared"](16, 512).values()) == [1, 1, 16, 1 / 16]


# -- einsum --


RIGHT = [("ab,bc->ac", (2, 3), (3, 4)), ("ij->ji", (2, 5)), ("ii->i", (3, 3)), ("abc,abc->", (2, 3, 4), (2, 3, 4))]
RIGHT += [("bhqk,bhkd,hdm->bqm", (2, 3, 5, 7), (2, 3, 7, 4), (3, 4, 12)), ("a b, c -> c b a", (2, 3), (4,))]
WRONG = [
    ("ab,bc->ac", [(2, 3), (4, 5)], "the letter b has two sizes, 3 and 4"),
    ("ii->i", [(2, 3)], "the letter i has two sizes, 2 and 3"),
    ("abc,bc->a", [(2, 3), (3, 4)], "'abc' has 3 letters, and its array has 2 axes"),
    ("ab,b->ac", [(2, 3), (3,)], "the letter c comes out, but it is in no array"),
    ("ab->aa", [(2, 2)], "the letter a comes out twice"),
    ("ab,bc->ac", [(2, 3)], "2 groups of letters for 1 arrays"),
    ("ab", [(2, 3)], "one -> before what comes out"),
    ("ab->a->b", [(2, 3)], "one -> before what comes out"),
    ("...ab->ab", [(2, 3)], "write letters"),
    ("", [(2, 3)], "write letters"),
]


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case[0])
def test_check_einsum_agrees_with_pytorch(page, case):
    pattern, *shapes = case
    assert page["check_einsum"](pattern, *shapes) == tuple(torch.einsum(pattern, *map(torch.zeros, shapes)).shape)


@pytest.mark.parametrize(("pattern", "shapes", "words"), WRONG, ids=lambda value: str(value)[:12])
def test_check_einsum_says_what_is_wrong(page, pattern, shapes, words):
    with pytest.raises(ValueError, match="^") as caught:
        page["check_einsum"](pattern, *shapes)
    assert words in str(caught.value)
    if pattern not in ("ab", "...ab->ab"):  # these torch understands; the page asks for the plain form
        with pytest.raises(RuntimeError):
            torch.einsum(pattern, *map(torch.zeros, shapes))


def test_the_text_box(page):
    say = page["try_einsum"]
    assert say("bhqd,bhkd->bhqk", "2, 3, 5, 4", "2 3 7 4") == "(2, 3, 5, 7): what scores of heads need"
    assert say("bhqd,bhkd->bqk", "2 3 5 4", "2 3 7 4") == "(2, 5, 7): allowed, but scores of heads need (2, 3, 5, 7)"
    assert say("bhqd,bhkd->bhqk", "2 3 5 4", "2 3 7 6").startswith("wrong: the letter d has two sizes, 4 and 6")
    for typed in ("", "2 x", "-1 2", "2.5"):
        assert say("ab,b->a", typed, "3").startswith("wrong: sizes are whole numbers")
    assert say("a,b->ab", "2", "3").startswith("(2, 3): allowed")


# -- softmax in pieces --


def check_pieces(in_pieces):
    query, keys, values = random(5, (6,), (11, 6), (11, 3))
    expected = F.scaled_dot_product_attention(query[None], keys, values)[0]
    for size in (1, 2, 4, 11, 50):
        torch.testing.assert_close(in_pieces(query, keys, values, size), expected)
    torch.testing.assert_close(in_pieces(1000 * query, keys, values, 3), values[(keys @ query).argmax()])


def test_in_pieces_equals_pytorch(page):
    check_pieces(page["in_pieces"])


def test_pieces_averaged_without_their_totals_are_caught():
    def wrong(query, keys, values, size):
        pieces = range(0, len(keys), size)
        parts = [
            F.scaled_dot_product_attention(query[None], keys[s : s + size], values[s : s + size])[0] for s in pieces
        ]
        return torch.stack(parts).mean(0)

    with pytest.raises(AssertionError):
        check_pieces(wrong)


# -- exercises --


SOLUTIONS = {
    "split": lambda x, n: x.view(x.shape[0], n, -1).transpose(0, 1),
    "merge": lambda heads: heads.transpose(0, 1).flatten(1),
    "write": lambda heads, W_O, j: heads[j] @ W_O.view(len(heads), -1, W_O.shape[1])[j],
    "push": lambda heads, W, direction: torch.einsum("htd,hdm,m->ht", heads, W, direction),
}
MISTAKES = {
    "split": lambda x, n: x.view(n, x.shape[0], -1),
    "merge": lambda heads: heads.reshape(heads.shape[1], -1),
    "write": lambda heads, W_O, j: heads[j] @ W_O.view(-1, len(heads), W_O.shape[1])[:, j],
    "push": lambda heads, W, direction: torch.einsum("htd,hdm,m->th", heads, W, direction),
}


@pytest.mark.parametrize("exercise", SOLUTIONS)
def test_exercises(page, exercise):
    heads, x, W_O, direction = random(6, (3, 5, 2), (5, 6), (6, 7), (7,))
    inputs = {
        "split": (x, 3),
        "merge": (heads,),
        "write": (heads, W_O, 2),
        "push": (heads, W_O.view(3, 2, 7), direction),
    }
    slow, case = page[f"{exercise}_slow"], inputs[exercise]
    assert f"equal to {exercise}_slow" in verdict(SOLUTIONS[exercise], slow, case)
    assert "not written yet" in verdict(page[f"my_{exercise}"], slow, case)
    assert "equal" not in verdict(MISTAKES[exercise], slow, case)
