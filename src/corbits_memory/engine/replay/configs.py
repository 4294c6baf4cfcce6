"""Transform configs: versions of a name, each for good. Keys are kept apart, where no read of a tenant gets them."""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from corbits_memory.core import ids
from corbits_memory.engine.drafts import Row
from corbits_memory.engine.generations import SECRETS, stored_params
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.pool import Database
from corbits_memory.engine.statements import Statements
from corbits_memory.errors import DatabaseError, TransformConfigInUseError, TransformConfigNotFoundError
from corbits_memory.ports.transform import ParamChange, TransformConfig, TransformParams
from corbits_memory.validation import params_json, params_secrets

CHANGED_KEY = "another key"


class ConfigService:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, *, tenant_id: str, name: str, params: TransformParams) -> TransformConfig:
        """The next version of a name."""
        secrets = params_secrets(params)
        async with self._database.tenant(tenant_id) as conn:
            statements = Statements(conn, tenant_id, "transform")
            await statements.run("lock_config_name", name=name)
            (row,) = await statements.fetch(
                "create_config",
                id=new_id(ids.TRANSFORM_CONFIG),
                name=name,
                params=Jsonb({**params_json(params), SECRETS: sorted(secrets)}),
            )
            if secrets:
                await statements.run(
                    "keep_secrets", config=row["id"], fields=list(secrets), secrets=list(secrets.values())
                )
        return _config(row)

    async def list(self, *, tenant_id: str, name: str | None, limit: int) -> Sequence[TransformConfig]:
        """Newest first."""
        async with self._database.tenant(tenant_id) as conn:
            rows = await Statements(conn, tenant_id, "transform").fetch(
                "list_configs", name=name, limit=limit
            )
        return [_config(row) for row in rows]

    async def get(self, *, tenant_id: str, config_id: str) -> TransformConfig:
        """Raises ``TransformConfigNotFoundError``."""
        async with self._database.tenant(tenant_id) as conn:
            rows = await Statements(conn, tenant_id, "transform").fetch("get_config", config=config_id)
        if not rows:
            raise TransformConfigNotFoundError
        return _config(rows[0])

    async def diff(self, *, tenant_id: str, before: str, after: str) -> Sequence[ParamChange]:
        """What differs, by path; of keys only that they do. Raises ``TransformConfigNotFoundError``."""
        one = await self.get(tenant_id=tenant_id, config_id=before)
        other = await self.get(tenant_id=tenant_id, config_id=after)
        old, new = dict(_paths(one.params)), dict(_paths(other.params))
        changes = [
            ParamChange(path=path, before=old.get(path), after=new.get(path))
            for path in sorted(old.keys() | new.keys())
            if old.get(path) != new.get(path)
        ]
        async with self._database.operator() as conn:
            rows = await Statements(conn, tenant_id, "transform").fetch(
                "differing_secrets", before=before, after=after
            )
        for row in rows:
            path = row["field"]
            both = path in one.secrets and path in other.secrets
            changes.append(
                ParamChange(
                    path=path,
                    before="a key" if path in one.secrets else None,
                    after=CHANGED_KEY if both else "a key" if path in other.secrets else None,
                )
            )
        return changes

    async def delete(self, *, tenant_id: str, config_id: str) -> None:
        """Raises ``TransformConfigNotFoundError``, and ``TransformConfigInUseError`` while a run has it."""
        try:
            async with self._database.tenant(tenant_id) as conn:
                gone = await Statements(conn, tenant_id, "transform").fetch("delete_config", config=config_id)
        except DatabaseError as error:
            if isinstance(error.__cause__, psycopg.errors.ForeignKeyViolation):
                raise TransformConfigInUseError from error
            raise
        if not gone:
            raise TransformConfigNotFoundError


def _config(row: Row) -> TransformConfig:
    return TransformConfig(
        id=row["id"],
        name=row["name"],
        version=row["version"],
        params=stored_params(row["params"]),
        secrets=tuple(row["params"].get(SECRETS, ())),
        created_at=row["created_at"],
    )


def _paths(params: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in params.items():
        path = f"{prefix}{name}"
        found.extend(_paths(value, f"{path}.") if isinstance(value, Mapping) else [(path, value)])
    return found
