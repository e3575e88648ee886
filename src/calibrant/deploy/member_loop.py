"""All members of a predictor as one loop in an exported program, instead of one copy of the network for each.

One member is traced, with the tensors in which members differ as inputs: parameters and buffers of the network, and
what the detectors were fitted to. The operations that depend on these tensors are the body of a loop over all members;
the others, such as the layers that members have in common, stay outside and run once.
"""

from __future__ import annotations

import copy
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops.scan import scan
from torch.func import functional_call

from calibrant.posteriors.members import Member

if TYPE_CHECKING:
    from calibrant.deploy.predictor import Predictor


def can_loop(predictor: Predictor) -> bool:
    """Whether the members run one module with different tensors, and their detectors can be stacked."""
    ensemble, outliers = predictor.ensemble, predictor.rule.outliers
    if ensemble.shared is None or len(ensemble) == 1 or not ensemble.members.names:
        return False
    return outliers is None or predictor.rule.averages_features or outliers.stacked() is not None


class MemberLoop(nn.Module):
    """x (B, ...) -> logits (K, B, C) of all members, and what else is averaged over them, (K, B, E).

    Args:
        predictor: of an ensemble whose members run one module.
        example: a batch of at least two inputs.
    """

    def __init__(self, predictor: Predictor, example: Tensor) -> None:
        super().__init__()
        member = OneMember(predictor)
        stacked = member.stacked(predictor)
        self.names = list(stacked)
        first = {name: value[0].clone() for name, value in stacked.items()}
        dynamic = ({0: torch.export.Dim("batch")}, dict.fromkeys(first))
        traced = torch.export.export(Substituted(member), (example, first), dynamic_shapes=dynamic)
        self.common, self.own = divided(traced, len(first))
        for number, value in enumerate(stacked.values()):
            self.register_buffer(f"stacked_{number}", value)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and what else is averaged."""
        common = self.common(x)
        stacked = [self.get_buffer(f"stacked_{number}") for number in range(len(self.names))]

        def step(count: Tensor, tensors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            return count + 1, [part.clone() for part in self.own(*common, *tensors)]

        _, parts = scan(step, torch.zeros((), dtype=torch.int64), stacked)
        logits = parts[0]
        return logits, parts[1] if len(parts) > 1 else logits.new_empty(*logits.shape[:2], 0)


class OneMember(nn.Module):
    """One member with its detectors, as the predictor's rule averages them."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        shared = predictor.ensemble.shared
        assert shared is not None
        self.network, self.rule, self.layer = copy.deepcopy(shared), predictor.rule, predictor.feature_layer

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Logits (B, C), and scores or features (B, E) where there are any."""
        logits, extra = self.rule.member_outputs(0, *Member(self.network, feature_layer=self.layer)(x))
        return (logits, extra) if extra.shape[1] else (logits,)

    def stacked(self, predictor: Predictor) -> dict[str, Tensor]:
        """What differs between members, (K, ...), by the name it has here."""
        found = {f"network.{name}": value.detach().clone() for name, value in predictor.ensemble.stacked().items()}
        if self.rule.outliers is not None and not self.rule.averages_features:
            fitted = self.rule.outliers.stacked() or {}
            found |= {f"rule.outliers.members.0.{name}": value for name, value in fitted.items()}
        return found


class Substituted(nn.Module):
    """`member` with tensors in place of its own."""

    def __init__(self, member: nn.Module) -> None:
        super().__init__()
        self.member = member

    def forward(self, x: Tensor, tensors: dict[str, Tensor]) -> Any:
        """What the member returns."""
        return functional_call(self.member, tensors, (x,))


def divided(traced: torch.export.ExportedProgram, own: int) -> tuple[fx.GraphModule, fx.GraphModule]:
    """A program of x and `own` further tensors as two modules, of which the first does not need these tensors.

    The first maps x to a tuple of tensors, the second these and the `own` tensors to the outputs of the program.
    """
    whole = traced.module(check_guards=False)
    nodes = list(whole.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    differing = set(inputs[len(inputs) - own :])
    for node in nodes:
        if not differing.isdisjoint(node.all_input_nodes):
            differing.add(node)
    first, second = fx.Graph(), fx.Graph()
    before: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        if node not in differing and (node.users or node.op == "placeholder") and node.op != "output":
            before[node] = first.node_copy(node, before.__getitem__)
    handed: dict[fx.Node, fx.Node] = {}
    needed = {n: None for node in nodes if node in differing for n in node.all_input_nodes if n not in differing}
    after: dict[fx.Node, fx.Node] = {}

    def enter(node: fx.Node) -> None:
        """Make a value of the first graph known to the second: tensors are handed over, sizes are taken again."""
        if node in after or node in handed:
            return
        if isinstance(node.meta.get("val"), Tensor) or (node.op == "get_attr" and _is_tensor(whole, node)):
            handed[node] = second.placeholder(f"common_{len(handed)}")
        else:
            for source in node.all_input_nodes:
                enter(source)

    for node in needed:
        enter(node)
    after |= handed
    for node in inputs[len(inputs) - own :]:
        after[node] = second.node_copy(node)

    def copied(node: fx.Node) -> fx.Node:
        if node not in after:
            after[node] = second.node_copy(node, copied)
        return after[node]

    for node in nodes:
        if node in differing and node.op != "placeholder":
            copied(node)
    first.output(tuple(before[node] for node in handed))
    return fx.GraphModule(whole, first), fx.GraphModule(whole, second)


def _is_tensor(whole: nn.Module, node: fx.Node) -> bool:
    return isinstance(operator.attrgetter(str(node.target))(whole), Tensor)
