"""Small changes of a module's source, each at one place, as a slip of the hand would make them.

Wording is left alone: docstrings, annotations, messages of errors and warnings, texts with spaces, `__all__`.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
TURNED = {
    **{ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
ARITHMETIC = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
    **{ast.LShift: ast.RShift, ast.RShift: ast.LShift},
}
TYPING = {"TypeVar", "ParamSpec", "NewType", "Literal", "Callable", "Annotated", "Union", "Optional", "dict", "Mapping"}
SPOKEN = {"warn", "warning", "info", "debug", "error", "print", "echo"}  # calls whose arguments are wording
ALIKE = {"isinstance", "min", "max", "minimum", "maximum", "array_equal", "logical_and", "logical_or", "hasattr"}
SETTING = re.compile(r"[A-Za-z][\w.-]*")


@dataclass(frozen=True)
class Mutant:
    """One change: `before` at [start, end) of the file's bytes becomes `after`."""

    path: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    start: int
    end: int
    nth: int = 0  # of the same changes of one function

    @cached_property
    def name(self) -> str:
        """The same as long as the function has this place, wherever it lies in the file."""
        parts = (self.path, self.function, self.kind, self.before, self.after, str(self.nth))
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=5).hexdigest()

    @property
    def room(self) -> str:
        """The folder, with Flower's adapter as a room of its own."""
        folders = Path(self.path).parts[2:-1]
        return "flower" if "flower" in folders else folders[0] if folders else "fedpick"

    def applied(self, source: bytes) -> bytes:
        """The changed module."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    def as_dict(self) -> dict[str, object]:
        """What a line of the results holds."""
        kept = {key: value for key, value in asdict(self).items() if key not in ("start", "end", "nth")}
        return {"name": self.name, "room": self.room, **kept}


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """All changes of a module."""
    return _Places(path, source).found


@dataclass
class _Places:
    path: str
    source: bytes
    found: list[Mutant] = field(default_factory=list)
    where: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.starts = [0]
        for line in self.source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        tree = ast.parse(self.source)
        self.statements(tree.body)
        counts: dict[tuple[str, ...], int] = {}
        for at, mutant in enumerate(self.found):
            key = (mutant.function, mutant.kind, mutant.before, mutant.after)
            counts[key] = counts.get(key, -1) + 1
            if counts[key]:
                self.found[at] = Mutant(**{**asdict(mutant), "nth": counts[key]})

    def add(self, kind: str, node: ast.expr | ast.stmt, after: ast.AST | str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        before = self.source[start:end].decode()
        text = after if isinstance(after, str) else ast.unparse(after)
        if isinstance(node, ast.expr) and not isinstance(after, ast.Constant):
            text = f"({text})"
        if ast.unparse(node) != text:
            function = ".".join(self.where)
            self.found.append(Mutant(self.path, function, node.lineno, kind, before, text, start, end))

    # --- statements

    def statements(self, body: list[ast.stmt], inside: bool = False) -> None:
        """`inside`: of a branch or loop, where a return is an early one."""
        for statement in body:
            self.statement(statement, inside)

    def statement(self, node: ast.stmt, inside: bool) -> None:
        match node:
            case ast.Expr(ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Pass():
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.definition(node)
            case ast.Raise() | ast.Continue() | ast.Break():
                if inside:
                    self.add(f"{type(node).__name__.lower()} removed", node, "pass")
            case ast.Return():
                if inside:
                    self.add("return removed", node, "pass")
                self.inner(node)
            case ast.Expr(ast.Call()):
                self.add("call removed", node, "pass")
                self.inner(node)
            case ast.AnnAssign(value=value):
                if value is not None:
                    self.expression(value)
            case ast.Assign(targets=[ast.Name("__all__")]) | ast.AugAssign(target=ast.Name("__all__")):
                return
            case ast.AugAssign(op=op):
                if type(op) in ARITHMETIC:
                    changed = ast.AugAssign(node.target, ARITHMETIC[type(op)](), node.value)
                    self.add("arithmetic", node, changed)
                self.inner(node)
            case ast.If(test=test):
                if "TYPE_CHECKING" in ast.unparse(test) or "__name__" in ast.unparse(test):
                    return
                self.inner(node)
            case _:
                self.inner(node)

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if any("overload" in ast.unparse(decorator) for decorator in node.decorator_list):
            return
        self.where.append(node.name)
        if not isinstance(node, ast.ClassDef):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if isinstance(default, ast.Constant) and default.value is None:
                    self.add("None", default, ast.Constant(1))
                elif default is not None:
                    self.expression(default)
        self.statements(node.body)
        self.where.pop()

    def inner(self, node: ast.AST) -> None:
        """What a statement consists of."""
        for _, value in ast.iter_fields(node):
            for each in value if isinstance(value, list) else [value]:
                match each:
                    case ast.stmt():
                        self.statement(each, inside=not isinstance(node, ast.With | ast.Module))
                    case ast.expr():
                        self.expression(each)
                    case ast.ExceptHandler():
                        self.statements(each.body, inside=True)
                    case ast.AST():
                        self.inner(each)

    # --- expressions

    def expression(self, node: ast.expr) -> None:
        match node:
            case ast.JoinedStr() | ast.Lambda(body=ast.Constant()):
                return  # wording; and nothing to speak of
            case ast.Constant():
                self.constant(node)
                return
            case ast.Compare(left=left, ops=[op], comparators=[other]):
                for kind, table in (("boundary", BOUNDARY), ("comparison turned", TURNED)):
                    if type(op) in table:
                        self.add(kind, node, ast.Compare(left, [table[type(op)]()], [other]))
            case ast.BoolOp(op=op, values=values):
                left = values[0] if len(values) == 2 else ast.BoolOp(op, values[:-1])
                self.add("last operand dropped", node, left)
                other_op = ast.Or() if isinstance(op, ast.And) else ast.And()
                self.add("and/or", node, ast.BoolOp(other_op, values))
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                self.add("not removed", node, operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                self.add("minus removed", node, operand)
            case ast.BinOp(left=left, op=op, right=right):
                if type(op) in ARITHMETIC and not self.is_typing(node) and not self.is_text(left, right):
                    self.add("arithmetic", node, ast.BinOp(left, ARITHMETIC[type(op)](), right))
            case ast.IfExp(body=body, orelse=orelse):
                self.add("condition ignored", node, body)
                self.add("condition ignored", node, orelse)
            case ast.Call():
                if not self.call(node):
                    return
            case ast.Subscript(value=ast.Name(name)) if name in TYPING:
                return
        self.inner(node)

    @staticmethod
    def is_typing(node: ast.BinOp) -> bool:
        """Is this `A | B` of types?"""
        right = node.right
        return isinstance(node.op, ast.BitOr) and (
            (isinstance(right, ast.Constant) and right.value is None)
            or (isinstance(right, ast.Name | ast.Attribute) and ast.unparse(right).split(".")[-1][:1].isupper())
            or ast.unparse(right) in ("int", "float", "str", "bool", "bytes", "list", "dict", "tuple")
        )

    @staticmethod
    def is_text(*nodes: ast.expr) -> bool:
        return any(
            isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
            for node in nodes
        )

    def call(self, node: ast.Call) -> bool:
        """Changes of a call; False where its arguments are wording or types."""
        name = ast.unparse(node.func).split(".")[-1]
        if name in SPOKEN | TYPING or name.endswith(("Error", "Warning")):
            return False
        if name == "cast":
            self.expression(node.args[1])
            return False
        for at, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in ("help", "doc", "stacklevel"):
                rest = node.keywords[:at] + node.keywords[at + 1 :]
                self.add("keyword dropped", node, ast.Call(node.func, node.args, rest))
        first = node.args[:2]
        if len(first) == 2 and name not in ALIKE and not any(isinstance(each, ast.Starred) for each in first):
            self.add("arguments swapped", node, ast.Call(node.func, [*first[::-1], *node.args[2:]], node.keywords))
        return True

    def constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool(value):
                self.add("constant", node, ast.Constant(not value))
            case int(value):
                self.add("constant", node, ast.Constant(value + 1))
                if value > 0:
                    self.add("constant", node, ast.Constant(value - 1))
            case float(value):
                self.add("constant", node, ast.Constant(value * 2 if value else 1.0))
                if value:
                    self.add("constant", node, ast.Constant(value / 2))
            case str(value) if SETTING.fullmatch(value):
                self.add("text", node, ast.Constant(f"{value}_"))


def everything(root: Path, rooms: list[str] | None = None) -> Iterator[Mutant]:
    """All changes of the package, in the order of its files; not of PyTorch's, tested in another environment."""
    for file in sorted((root / "src/fedpick").rglob("*.py")):
        if file.is_relative_to(root / "src/fedpick/learn/torch"):
            continue
        found = mutants_of(str(file.relative_to(root)), file.read_bytes())
        yield from (mutant for mutant in found if not rooms or mutant.room in rooms)


def functions_of(source: bytes) -> dict[int, str]:
    """The innermost function or class that each line lies in; not the lines of its `def` and decorators."""
    found: dict[int, str] = {}

    def walk(body: list[ast.stmt], where: tuple[str, ...]) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = (*where, node.name)
                assert node.end_lineno is not None
                if not isinstance(node, ast.ClassDef):
                    found.update(dict.fromkeys(range(node.body[0].lineno, node.end_lineno + 1), ".".join(inside)))
                walk(node.body, inside)
            else:
                for name in ("body", "orelse", "finalbody"):
                    walk(getattr(node, name, []), where)

    walk(ast.parse(source).body, ())
    return found
