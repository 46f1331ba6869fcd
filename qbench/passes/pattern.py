"""Passes made of onnxscript rewrite rules."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from qbench.errors import InputError, UnavailableError
from qbench.extension import install_command
from qbench.graph import infer_shapes, node_key, origin_of, set_origin
from qbench.passes.contract import decline
from qbench.passes.editing import NameScope

if TYPE_CHECKING:
    from onnxscript.rewriter import MatchingTracer, RewriteRule
    from onnxscript.rewriter._rewrite_rule import ReplacementSubgraph

_SWEEPS = 24


def rewrite_rule(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    refusal: Callable[..., str | None] | None = None,
) -> "RewriteRule":
    """A rule of onnxscript's; whatever its ``pattern.RewriteRule`` and classes can express
    serves ``apply_rules`` too.

    Args:
        pattern: builds what is looked for from ``op`` and values named as its parameters; inner
            values and attributes are named by ``_outputs=["y"]`` and by parameters that are
            attributes.
        replacement: builds the replacement, from ``op`` and the same names, and inner ones.
        refusal: of the same names as ``replacement``, without ``op``: why a match is left alone, or
            None.

    Raises:
        UnavailableError: onnxscript is not installed.
    """
    matching = _rewriter()

    def condition(_: object, **found: Any) -> Any:  # noqa: ANN401 - onnxscript's own
        reason = None if refusal is None else refusal(**found)
        return True if reason is None else matching.MatchResult().fail(reason)

    rule: RewriteRule = matching.pattern.RewriteRule(pattern, replacement, condition)
    return rule


def apply_rules(model: ir.Model, rules: "Sequence[RewriteRule]", by: str) -> bool:
    """Apply the first of ``rules`` that fits each node, until none does; True when one did.

    Args:
        model: changed in place.
        rules: in order of preference.
        by: the name of the pass, under which matches that a rule refused are declined.

    Raises:
        UnavailableError: onnxscript is not installed.
        InputError: rules that never come to an end, or make functions.
    """
    for rule in rules:
        if rule.as_function:
            raise _useless(by, "a rule that makes functions", "Let the rule build nodes.")
    if any(value.dtype is None for node in model.graph for value in node.outputs):
        infer_shapes(model)  # files give few types of inner values, and rules need them
    place = _Place(model.graph, NameScope.of_values(model), NameScope.of_nodes(model), by)
    tracer = _tracer(by)
    for sweep in range(_SWEEPS):
        if not _swept(model, rules, place, tracer):
            return sweep > 0
    raise _useless(
        by, f"rules that still apply after {_SWEEPS} sweeps", "Let a rule refuse what it has made."
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """The graph, the names taken in it, and the pass that changes it."""

    graph: ir.Graph
    values: NameScope
    nodes: NameScope
    by: str

    def put(
        self, root: ir.Node, found: "ReplacementSubgraph", old_nodes: Sequence[ir.Node]
    ) -> bool:
        """What a rule built in the place of what it matched; False where an output would lose
        its name.
        """
        pairs = list(zip(found.match.outputs, found.new_outputs, strict=True))
        made = [value for node in found.new_nodes for value in node.outputs]
        if any(old.is_graph_output() and new not in made for old, new in pairs):
            decline(root, "its result leaves the graph under a name of its own", self.by)
            return False
        stem = root.outputs[0].name or node_key(root)
        for constant in found.new_initializers:
            constant.name = self.values.fresh(constant.name or f"{stem}.constant")
            self.graph.register_initializer(constant)
        self._name(found.new_nodes, old_nodes, root)
        for old, new in pairs:
            if new in made:
                new.type, new.shape = old.type or new.type, old.shape or new.shape
                new.name, old.name = old.name, None
        results = [new for _, new in pairs]
        for node in found.new_nodes:
            for value in node.outputs:
                if value not in results:
                    value.name = self.values.fresh(value.name or f"{stem}.{node.op_type.lower()}")
        self.graph.insert_after(root, found.new_nodes)
        for old, new in pairs:
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        self._remove(old_nodes)
        return True

    def _name(self, made: Sequence[ir.Node], old: Sequence[ir.Node], root: ir.Node) -> None:
        free = list(old)
        for node in made:
            same = next(
                (one for one in free if (one.domain, one.op_type) == (node.domain, node.op_type)),
                None,
            )
            if same is None:
                node.name = self.nodes.fresh(
                    node.name or f"{node_key(root)}.{node.op_type.lower()}"
                )
            else:
                free.remove(same)
                node.name, same.name = same.name, None
            set_origin(node, origin_of(same or root))

    def _remove(self, old: Sequence[ir.Node]) -> None:
        """Nodes, and the constants that they alone read."""
        read = {value for node in old for value in node.inputs if value is not None}
        self.graph.remove(old, safe=True)
        for value in read:
            if value.is_initializer() and not value.uses() and not value.is_graph_output():
                self.graph.initializers.pop(str(value.name))
                self.values.release(str(value.name))


def _swept(
    model: ir.Model, rules: "Sequence[RewriteRule]", place: _Place, tracer: "MatchingTracer"
) -> bool:
    for rule in rules:
        if rule.graph_pre_visitor:
            rule.graph_pre_visitor()
    changed = False
    for node in list(model.graph):
        for rule in rules:
            if node.graph is not model.graph:
                break  # it went with a match before it
            found = rule.try_rewrite(model, model.graph, node, tracer=tracer)
            if found is not None and place.put(
                node, found, found.match.nodes if rule.remove_nodes else ()
            ):
                changed = True
                break
    for rule in rules:
        if rule.graph_post_visitor:
            rule.graph_post_visitor()
    return changed


def _tracer(by: str) -> "MatchingTracer":
    """Writes into the node why a match was refused, as onnxscript reports it."""
    matching = _rewriter()
    refused = (matching.MatchStatus.CONDITION_FAILED, matching.MatchStatus.REPLACEMENT_FAILED)

    class Declining(matching.MatchingTracer):  # type: ignore[misc, name-defined]
        def log(
            self,
            rule: Any,  # noqa: ANN401, ARG002
            container: Any,  # noqa: ANN401, ARG002
            node: ir.Node,
            match_result: Any,  # noqa: ANN401
            status: Any,  # noqa: ANN401
        ) -> None:
            if status in refused:
                decline(node, match_result.reason or "the rule refuses it", by)

    return Declining()


def _rewriter() -> Any:  # noqa: ANN401 - a module
    try:
        return importlib.import_module("onnxscript.rewriter")
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "Matching patterns",
            found="no onnxscript",
            expected="the extra 'patterns'",
            remedy=(
                f"Install it: {install_command('patterns')}; passes without patterns do without."
            ),
        ) from error


def _useless(by: str, found: str, remedy: str) -> InputError:
    return InputError(
        f"Applying the rules of the pass '{by}'",
        found=found,
        expected="rules that come to an end",
        remedy=remedy,
    )
