"""Whether a statement says of every table of tenants which tenant it means. Read with Postgres' own parser.

A table is bound when its ``tenant_id`` equals a value, or the ``tenant_id`` of a table that is bound, in conditions
that must hold: then the statement is one node's business where tables are spread by tenant.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pglast import ast, parse_sql
from pglast.enums import A_Expr_Kind, BoolExprType

_PARAMETER = re.compile(r"%(?:\(\w+\))?[sbt]")
TENANT = "tenant_id"
VALUE = ""
"""Stands for whatever is no column of the statement's tables."""


def unbound(statement: str) -> list[str]:
    """The tables of the schema ``memory`` that are read or written whoever's rows they hold."""
    found: list[str] = []
    for parsed in parse_sql(plain(statement)):
        _Level({}).read(parsed.stmt, found)
    return found


def plain(statement: str) -> str:
    """A statement with the driver's parameters as Postgres knows them."""
    return _PARAMETER.sub("$1", statement).replace("%%", "%")


@dataclass
class _Level:
    """One SELECT, INSERT, UPDATE or DELETE with the conditions that hold in it."""

    outer: dict[str, str]
    """To whom the names of the levels around are bound."""
    tables: dict[str, list[str]] = field(default_factory=dict)
    """By alias what stands there: a table, or those of a query that leaves it to this level to bind them."""
    derived: set[str] = field(default_factory=set)
    same: dict[str, str] = field(default_factory=dict)
    _judged: set[int] = field(default_factory=set)

    def read(self, node: Any, found: list[str]) -> None:
        if _is(node, ast.SelectStmt) and node.op.value:
            for side in (node.larg, node.rarg):
                _Level(self.outer).read(side, found)
            self._inner((node.withClause, node.sortClause, node.limitCount), found)
            return
        if _is(node, ast.SelectStmt):
            self._from(node.fromClause or ())
            self._hold(node.whereClause)
        elif _is(node, ast.UpdateStmt, ast.DeleteStmt):
            self._name(node.relation)
            others = node.fromClause if _is(node, ast.UpdateStmt) else node.usingClause
            self._from(others or ())
            self._hold(node.whereClause)
        elif _is(node, ast.InsertStmt):
            named = [column.name for column in node.cols or ()]
            if node.relation.schemaname == "memory" and TENANT not in named:
                found.append(node.relation.relname)
        else:
            return
        reached = {alias: self._root(alias) for alias in (*self.tables, *self.derived)}
        found += [
            table for alias, tables in self.tables.items() if reached[alias] != VALUE for table in tables
        ]
        self._inner(_children(node), found, {**self.outer, **reached})

    def left_open(self, node: Any) -> list[str]:
        """The tables of a plain query that are all of one tenant, which it yields as ``tenant_id``; else none."""
        if not _is(node, ast.SelectStmt) or node.op.value or node.withClause:
            return []
        self._from(node.fromClause or ())
        self._hold(node.whereClause)
        roots = {self._root(alias) for alias in self.tables}
        yielded = [
            self._owner(target.val)
            for target in node.targetList or ()
            if _is(target.val, ast.ColumnRef) and (target.name or _last(target.val)) == TENANT
        ]
        if len(roots) != 1 or VALUE in roots or [self._root(alias or VALUE) for alias in yielded] != [*roots]:
            return []
        return [table for tables in self.tables.values() for table in tables]

    def _from(self, items: Sequence[Any]) -> None:
        for item in items:
            if _is(item, ast.RangeVar):
                self._name(item)
            elif _is(item, ast.JoinExpr):
                self._from((item.larg, item.rarg))
                self._hold(item.quals)
                if any(column.sval == TENANT for column in item.usingClause or ()):
                    sides = [*self.tables, *self.derived]
                    for alias in sides[1:]:
                        self._join(sides[0], alias)
            elif getattr(item, "alias", None) is not None:
                alias = item.alias.aliasname
                left_open = _Level(self.outer).left_open(getattr(item, "subquery", None))
                if left_open:
                    self.tables[alias] = left_open
                    self.same.setdefault(alias, alias)
                    self._judged.add(id(item.subquery))
                else:
                    self._derive(alias)

    def _name(self, item: Any) -> None:
        alias = item.alias.aliasname if item.alias is not None else item.relname
        if item.schemaname == "memory":
            self.tables[alias] = [item.relname]
            self.same.setdefault(alias, alias)
        else:
            self._derive(alias)

    def _derive(self, alias: str) -> None:
        # What a bound query yields is bound, and each query within is looked at by itself.
        self.derived.add(alias)
        self.same[alias] = VALUE

    def _hold(self, condition: Any) -> None:
        if _is(condition, ast.BoolExpr) and condition.boolop == BoolExprType.AND_EXPR:
            for part in condition.args or ():
                self._hold(part)
        elif _is(condition, ast.A_Expr) and _is_equality(condition):
            left, right = condition.lexpr, condition.rexpr
            if _is(left, ast.RowExpr) and _is(right, ast.RowExpr):
                for one, other in zip(left.args, right.args, strict=True):
                    self._equal(one, other)
            else:
                self._equal(left, right)

    def _equal(self, left: Any, right: Any) -> None:
        one, other = self._owner(left), self._owner(right)
        if one is not None and other is not None:
            self._join(one, other)

    def _owner(self, node: Any) -> str | None:
        """Whose tenant this is; None for another column than ``tenant_id``, which says nothing."""
        if not _is(node, ast.ColumnRef):
            return VALUE
        names = [part.sval for part in node.fields if _is(part, ast.String)]
        if names[-1] != TENANT:
            # A plain name may be a function's argument.
            return VALUE if len(names) == 1 else None
        if len(names) > 1:
            alias = names[-2]
            return alias if alias in self.same else self.outer.get(alias)
        return next(iter(self.tables)) if len(self.tables) == 1 else None

    def _join(self, one: str, other: str) -> None:
        one, other = self._root(one), self._root(other)
        if VALUE in (one, other):
            self.same[one] = self.same[other] = VALUE
        else:
            self.same[one] = other

    def _root(self, alias: str) -> str:
        while alias != VALUE and self.same.get(alias, alias) != alias:
            alias = self.same[alias]
        return alias

    def _inner(self, nodes: Any, found: list[str], outer: dict[str, str] | None = None) -> None:
        for query in _queries(nodes):
            if id(query) in self._judged:
                # Its tables are this level's; what stands deeper is looked at.
                self._inner(_children(query), found, outer)
                continue
            _Level(self.outer if outer is None else outer).read(query, found)


def _last(column: Any) -> str:
    name = column.fields[-1]
    return str(name.sval) if _is(name, ast.String) else "*"


def _is(node: Any, *kinds: type) -> bool:
    """Without telling the type checker: the parser's classes say that anything may be missing."""
    return isinstance(node, kinds)


def _is_equality(condition: Any) -> bool:
    return bool(condition.kind == A_Expr_Kind.AEXPR_OP and condition.name[-1].sval == "=")


def _children(node: Any) -> list[Any]:
    return [getattr(node, name) for name in node]


def _queries(node: Any) -> Iterator[Any]:
    """The next queries below, however deep in expressions they stand."""
    if _is(node, ast.SelectStmt, ast.UpdateStmt, ast.DeleteStmt, ast.InsertStmt):
        yield node
    elif isinstance(node, tuple | list):
        for part in node:
            yield from _queries(part)
    elif _is(node, ast.Node):
        yield from _queries(_children(node))
