"""PromQL, read by a real parser: which figures an expression asks for, and which labels its answer keeps.

Written for the expressions of the dashboard: what none of them uses is refused rather than guessed at.
"""

from collections import Counter

import promql_parser as promql
from promql_parser import AggModifierType, LabelModifierType

# What Prometheus adds to each figure that it fetches.
OF_PROMETHEUS = frozenset({"instance", "job"})
# Aggregations that answer with some of their samples as they were.
CHOOSING = frozenset({"topk", "bottomk", "limitk"})
# Functions of a series whose answer keeps its labels.
KEEPING = frozenset({"rate", "increase", "irate"})
BUCKET = "le"


def parse(text, *, interval="5m"):
    """The expression, with an interval in the place of Grafana's.

    Raises:
        ValueError: it is no PromQL.
    """
    return promql.parse(text.replace("$__rate_interval", interval))


def selected(expression):
    """The names of the figures that are asked for."""
    return {node.name for node in _nodes(expression, promql.VectorSelector)}


def selected_as_they_stand(expression):
    """Those that are asked for at one moment, rather than how they changed."""
    changing = Counter(node.vector_selector.name for node in _nodes(expression, promql.MatrixSelector))
    # A walk comes to the selector within a range as well.
    return set(Counter(node.name for node in _nodes(expression, promql.VectorSelector)) - changing)


def _nodes(expression, kind):
    found = []
    promql.walk(expression, found.append)
    return [node for node in found if isinstance(node, kind)]


def labels_of(node, known):
    """The labels that tell the samples of the answer apart; none for a number.

    `known` gives each figure's labels. Fails where a figure is not among them, or a label is asked for by name that
    there is none of at that place.
    """
    match node:
        case promql.VectorSelector() | promql.MatrixSelector():
            return _of_selector(getattr(node, "vector_selector", node), known)
        case promql.ParenExpr() | promql.UnaryExpr():
            return labels_of(node.expr, known)
        case promql.AggregateExpr():
            return _of_aggregation(node, labels_of(node.expr, known))
        case promql.BinaryExpr():
            return _of_pair(node, labels_of(node.lhs, known), labels_of(node.rhs, known))
        case promql.Call():
            return _of_call(node, known)
        case promql.NumberLiteral():
            return None
    raise AssertionError(f"{type(node).__name__} is not told yet: {node}")


def _of_selector(node, known):
    assert node.name in known, f"{node.name} is no figure"
    assert not node.matchers.or_matchers, node
    labels = known[node.name] | OF_PROMETHEUS
    _hold({matcher.name for matcher in node.matchers.matchers}, labels, node.name)
    return labels


def _of_aggregation(node, labels):
    assert labels is not None, f"{node} is an aggregation of one number"
    named = set(node.modifier.labels) if node.modifier else set()
    _hold(named, labels, node)
    if node.modifier and node.modifier.type == AggModifierType.Without:
        return labels - named
    return labels if str(node.op) in CHOOSING and not node.modifier else named


def _of_pair(node, left, right):
    if left is None or right is None:
        return right if left is None else left
    matching = node.modifier.matching if node.modifier else None
    named = set(matching.labels) if matching else set()
    _hold(named, left | right, node)
    kept = named if matching and matching.type == LabelModifierType.Include else (left | right) - named
    # Samples find each other by all of these labels, which both sides must have.
    assert kept & left == kept & right == kept, f"{left} and {right} do not match: {node}"
    many = node.modifier.group_labels if node.modifier else None
    if many is None:
        return kept
    _hold(set(many), right, node)
    return left | set(many)


def _of_call(node, known):
    name = node.func.name
    if name == "time":
        return None
    if name == "histogram_quantile":
        labels = labels_of(node.args[1], known)
        _hold({BUCKET}, labels, node)
        return labels - {BUCKET}
    assert name in KEEPING, f"{name} is not told yet"
    return labels_of(node.args[0], known)


def _hold(named, labels, where):
    assert named <= labels, f"{where} has no label {', '.join(sorted(named - labels))}, but {sorted(labels)}"
