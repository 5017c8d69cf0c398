"""vLLM's benchmark as far as it goes without vLLM: edits by function name, rows, sums, streams."""

import ast
import json

import pytest

from benchmarks.vllm_mix import at_start, graded, instead, mix
from benchmarks.vllm_peer import Row, row_of
from benchmarks.vllm_rate import spread
from benchmarks.vllm_server import Answer, _take
from benchmarks.vllm_trials import decided_per_hour, effects, missed

SOURCE = '''
class Sampler:
    def sample(self, logits):
        """Choose."""
        # the largest
        return max(logits)

    @staticmethod
    def plain(logits):
        @cached
        def inner():
            return 1
        return inner()
'''


def test_statements_go_after_the_docstring_and_before_the_first_one():
    changed = at_start({"a.py": SOURCE}, "a.py", "Sampler.sample", "x = 1\ny = 2")["a.py"]

    (cls,) = ast.parse(changed).body
    assert [ast.unparse(node) for node in cls.body[0].body[1:]] == [
        "x = 1",
        "y = 2",
        "return max(logits)",
    ]


def test_statements_go_before_a_decorated_first_one():
    changed = at_start({"a.py": SOURCE}, "a.py", "Sampler.plain", "x = 1")["a.py"]

    (cls,) = ast.parse(changed).body
    assert ast.unparse(cls.body[1].body[0]) == "x = 1"
    assert len(cls.body[1].body[1].decorator_list) == 1


def test_a_body_is_replaced_and_its_docstring_kept():
    changed = instead({"a.py": SOURCE}, "a.py", "Sampler.sample", "return 0")["a.py"]

    (cls,) = ast.parse(changed).body
    assert [ast.unparse(node) for node in cls.body[0].body] == ["'Choose.'", "return 0"]
    assert cls.body[1].name == "plain"


def test_a_function_that_is_not_there_is_named():
    with pytest.raises(LookupError, match=r"a\.py has no Sampler\.other"):
        at_start({"a.py": SOURCE}, "a.py", "Sampler.other", "pass")


@pytest.mark.vllm
@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_the_graded_mix_has_twenty_candidates_that_compile(mode):
    from benchmarks.vllm_mix import vllm_sources

    sources = vllm_sources()
    entries = graded(sources, mode)

    assert len(entries) == len({entry.label for entry in entries}) == 20
    for entry in entries:
        for path, text in entry.files.items():
            compile(text, path, "exec")
            assert text != sources[path]
    stream = mix(sources, mode)
    assert len({next(stream).label for _ in range(60)}) == 60


def test_a_control_s_candidates_are_spread_over_the_kinds():
    entries = list(range(20))

    assert spread(entries, 4) == [2, 7, 12, 17]
    assert spread(entries, 20) == entries
    assert len(spread(entries, 99)) == 20


def test_the_peer_s_word_follows_from_its_score_alone():
    told = {"wall_s": 9.0, "incorrect": 0.0, "first_tokens_s": 8.0}

    def word(**more):
        return row_of({"label": "x", **told, **more}, 100.0).word

    assert word(output_tok_s=110.0) == "faster"
    assert word(output_tok_s=101.0) == "no_gain"
    assert word(output_tok_s=90.0) == "slower"
    assert word(output_tok_s=200.0, incorrect=1.0) == "incorrect"
    assert word(error=1.0) == "invalid"


def test_only_decided_verdicts_count_and_all_time_does():
    rows = [Row("a", 1.0, "faster", 1.2), Row("b", 2.0, "inconclusive"), Row("c", 1.0, "invalid")]

    assert decided_per_hour(rows) == pytest.approx(900.0)
    assert decided_per_hour([]) == 0.0


def test_a_winner_of_the_control_that_we_refused_is_missed():
    ours = [Row("a", 1.0, "no_gain", 1.01), Row("b", 1.0, "faster", 1.3)]
    theirs = [
        Row("a", 9.0, "faster", 1.2),
        Row("b", 9.0, "faster", 1.3),
        Row("c", 9.0, "faster", 1.3),
    ]

    assert missed(ours, theirs, 0.05) == ["a"]
    assert [label for label, _, _ in effects(ours, theirs)] == ["a", "b"]


def test_a_stream_gives_first_and_last_time_and_the_server_s_own_count():
    answer = Answer()
    chunk = {"choices": [{"text": "x"}]}
    usage = {"choices": [], "usage": {"completion_tokens": 7}}
    for number, event in enumerate([chunk, chunk, usage]):
        _take(b"data: " + json.dumps(event).encode() + b"\n", answer, float(number))
    _take(b"data: [DONE]\n", answer, 9.0)
    _take(b"\n", answer, 9.0)

    assert (answer.first_s, answer.last_s, answer.tokens) == (0.0, 1.0, 7)
