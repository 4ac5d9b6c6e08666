"""Small changes to a module's code, one at a time."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

__all__ = ["Mutant", "mutants"]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Pow: ast.Mult,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}

_SHOWN = 80  # characters of a piece of code in a name

Change = Callable[[], ast.AST | None]
"""What stands in a node's place; None: nothing does."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: where it is, what it was and what it is.

    The name bears no line number, so that it stays the same while other lines come and go.
    """

    name: str
    line: int
    source: str
    number: int

    def tree(self) -> ast.Module:
        """The whole module with the change in it."""
        mutator = _Mutator(self.number)
        mutated = mutator.visit(ast.parse(self.source))
        assert isinstance(mutated, ast.Module)
        return ast.fix_missing_locations(mutated)


def mutants(source: str, module: str) -> list[Mutant]:
    """All of them, in the order of the code.

    Docstrings, annotations, decorators, `__all__` and the words of errors are left alone.
    """
    mutator = _Mutator(None)
    mutator.visit(ast.parse(source))
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for number, (description, place, line) in enumerate(mutator.passed):
        name = f"{module}{place}: {description}"
        seen[name] += 1
        if seen[name] > 1:
            name += f" #{seen[name]}"
        found.append(Mutant(name, line, source, number))
    return found


class _Mutator(ast.NodeTransformer):
    """Makes the change of a certain number, or none, and notes those that it passes by."""

    def __init__(self, number: int | None) -> None:
        self._number = number
        self._scope: list[str] = []
        self._done = False
        self.passed: list[tuple[str, str, int]] = []

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Change this node, or go on inside of it."""
        if self._done:
            return node
        for description, change in _changes(node):
            if self._number == len(self.passed):
                self._done = True
                return change()
            place = "".join(f".{name}" for name in self._scope)
            self.passed.append((description, place, getattr(node, "lineno", 0)))
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return self._inside(node)
        self._scope.append(node.name)
        visited = self._inside(node)
        self._scope.pop()
        return visited

    def _inside(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Raise):  # what is raised is for developers to read
            return node
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params", "bases") or _is_left_alone(node):
                continue
            if isinstance(value, list):
                kept: list[object] = []
                for each in value:
                    following = self.visit(each) if isinstance(each, ast.AST) else each
                    if following is not None or not isinstance(each, ast.AST):
                        kept.append(following)
                value[:] = kept
                if field == "body" and not value:
                    value.append(ast.Pass())
            elif isinstance(value, ast.AST):
                following = self.visit(value)
                if following is None:
                    raise AssertionError(f"nothing may be left out of {type(node).__name__}.{field}")
                setattr(node, field, following)
        return node


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Call(func=ast.Name(id="assert_never" | "cast" | "TypeVar")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.AnnAssign(value=None):
            return True
        case _:
            return False


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:  # noqa: C901, PLR0912 - one case for each kind of node
    if _is_left_alone(node):
        return
    match node:
        case ast.Compare(ops=[operator], left=left, comparators=[right]):
            for other in _COMPARISONS[type(operator)]:
                yield _replacing(node, ast.Compare(left, [other()], [right]))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATIONS:
            yield _replacing(node, ast.BinOp(left, _OPERATIONS[type(operator)](), right))
        case ast.BoolOp(op=operator, values=values):
            yield _replacing(node, ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))
            for number in range(len(values)):
                rest = values[:number] + values[number + 1 :]
                yield _replacing(node, rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield _replacing(node, operand)
        case ast.Constant(value=value):
            yield from _other_constants(node, value)
        case ast.If(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield _shown("if", test, _negated(test)), partial(_testing_else, node)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield _replacing(node, ast.IfExp(test, orelse, body))
        case ast.While(test=test) if not isinstance(test, ast.Compare):
            yield _shown("while", test, _negated(test)), partial(_testing_else, node)
        case ast.match_case(pattern=pattern, guard=ast.expr() as guard, body=body):
            yield _shown("case if", guard, _negated(guard)), lambda: ast.match_case(pattern, _negated(guard), body)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield f"return {_text(value)} -> return None", lambda: ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.YieldFrom() | ast.Yield() | ast.Await()) | ast.AugAssign() | ast.Raise():
            yield f"{_text(node)} -> pass", ast.Pass
        case ast.Break():
            yield "break -> continue", ast.Continue
        case ast.Continue():
            yield "continue -> break", ast.Break
        case ast.Call(func=func, args=args, keywords=keywords):
            if isinstance(func, ast.Name) and func.id in _NAMES:
                yield _replacing(node, ast.Call(ast.Name(_NAMES[func.id], ast.Load()), args, keywords))
            for number, keyword in enumerate(keywords):
                if keyword.arg is not None:
                    less = ast.Call(func, args, keywords[:number] + keywords[number + 1 :])
                    yield f"{_text(func)}(…) without {keyword.arg}=", partial(_same, less)
        case ast.Dict(keys=keys, values=values):
            for number, key in enumerate(keys):
                fewer = ast.Dict(keys[:number] + keys[number + 1 :], values[:number] + values[number + 1 :])
                yield f"{{…}} without {_text(key or values[number])}", partial(_same, fewer)
        case _:
            return


def _other_constants(node: ast.Constant, value: object) -> Iterator[tuple[str, Change]]:
    match value:
        case bool():
            yield _replacing(node, ast.Constant(not value))
        case int() | float():
            yield _replacing(node, ast.Constant(value + 1))
        case str():
            yield _replacing(node, ast.Constant(f"XX{value}XX"))
        case bytes():
            yield _replacing(node, ast.Constant(b"XX" + value + b"XX"))


def _replacing(node: ast.AST, other: ast.AST) -> tuple[str, Change]:
    return f"{_text(node)} -> {_text(other)}", lambda: other


def _shown(what: str, node: ast.AST, other: ast.AST) -> str:
    return f"{what} {_text(node)} -> {what} {_text(other)}"


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def _testing_else(node: ast.If | ast.While) -> ast.AST:
    node.test = _negated(node.test)
    return node


def _same(node: ast.AST) -> ast.AST:
    return node


def _text(node: ast.AST) -> str:
    text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"
