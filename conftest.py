"""Shapes written in signatures are checked while the tests run: those of every function and record that has some.

jaxtyping's own option for pytest wraps all functions and looks at arguments twice: the tests took twice as long with it.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from beartype import BeartypeConf, beartype
from jaxtyping import jaxtyped

PACKAGES = ("posterity", "posterity_studies")
SHAPED = re.compile(r"\b(Float|Float64|Int|Bool)\[|\b(Older)?Hashes\b")
"""What an annotation with a shape looks like."""
checked_types = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments and result have the shapes that the signature says, with one size for each letter."""
    return jaxtyped(typechecker=None)(checked_types(function))


def check_fields(record: type) -> type:
    """The same for the fields of a dataclass, where any has a shape."""
    if any(SHAPED.search(str(field.type)) for field in dataclasses.fields(record)) and "__init__" in vars(record):
        record.__init__ = check_shapes(record.__init__)
    return record


class _Marking(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        given = [a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg) and a.annotation is not None]
        if any(SHAPED.search(ast.unparse(a)) for a in (*given, *([node.returns] if node.returns else []))):
            # Last, so that it is applied to the function itself and not to what a property or torch.no_grad made of it.
            node.decorator_list.append(ast.Name("_check_shapes", ast.Load()))
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.generic_visit(node)
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            node.decorator_list.insert(0, ast.Name("_check_fields", ast.Load()))
        return node


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        # Without the files of compiled code, which know nothing of the checks.
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: Any, path: Any, **options: Any) -> Any:
        tree = ast.fix_missing_locations(_Marking().visit(ast.parse(data, path)))
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_check_shapes=check_shapes, _check_fields=check_fields)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.split(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


if unchecked := [name for name in PACKAGES if name in sys.modules]:
    raise RuntimeError(f"{unchecked} were imported before the tests could have their shapes checked")
sys.meta_path.insert(0, _Finder())
