"""The stand-in for GitHub's expressions says what a runner would say, or that it does not know."""

import pytest
from expressions import ExpressionError, evaluate, fill, runs

CONTEXTS = {
    "github": {"event": {"label": {"name": "perf-gate:h200"}}},
    "inputs": {},
    "steps": {"a": {"outputs": {"o": "PASS"}}},
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("'it''s'", "it's"),
        ("steps.a.outputs.o == 'PASS'", True),
        ("steps.a.outputs.o == 'pass'", True),
        ("steps.a.outputs.o != 'PASS'", False),
        ("steps.b.outputs.o == ''", True),
        ("inputs.card || 'h200'", "h200"),
        ("startsWith(github.event.label.name, 'perf-gate:') && !failure()", True),
        ("(false || true) && contains('abc', 'B')", True),
    ],
)
def test_an_expression_has_the_value_that_github_documents(source, value):
    assert evaluate(source, CONTEXTS) == value


@pytest.mark.parametrize("source", ["secrets.TOKEN", "hashFiles('x')", "'a' == ", "1 2", "a ? b"])
def test_what_is_not_known_is_refused(source):
    with pytest.raises(ExpressionError):
        evaluate(source, CONTEXTS)


def test_unset_values_fill_in_as_nothing():
    assert fill("x-${{ inputs.card }}-${{ github.event.label.name }}", CONTEXTS) == "x--perf-gate:h200"


@pytest.mark.parametrize(
    ("condition", "status", "ran"),
    [
        (None, "success", True),
        (None, "failure", False),
        ("always()", "failure", True),
        ("steps.a.outputs.o == 'PASS'", "success", True),
        ("steps.a.outputs.o == 'PASS'", "failure", False),
        ("failure()", "failure", True),
        ("${{ failure() }}", "success", False),
    ],
)
def test_a_condition_without_a_status_function_means_after_success(condition, status, ran):
    assert runs(condition, CONTEXTS, status) is ran
