"""`starling db prune`: what ended runs left goes by age, and the audit trail says that it went."""

from starling.app.runtime.database import find_database
from starling.core.principal import SHARED
from starling.core.settings import Settings
from starling.infra.postgres.audit import Actor, Deed, record
from starling.infra.postgres.engine import ConnectionLimits, open_engine, translated
from starling.infra.postgres.retention import Forgotten, Retention, Selection
from starling.infra.postgres.schema import check

_STATEMENT_SECONDS = 600  # to count what is old in a large database; what is removed at once is small


async def prune(settings: Settings, which: Selection, *, dry_run: bool) -> Forgotten:
    """Remove what is old, or look what would be removed. Raises DatabaseUnavailableError, DatabaseUnsuitableError."""
    database = find_database(settings)
    await check(database.direct_url)
    limits = ConnectionLimits(size=1, statement_seconds=_STATEMENT_SECONDS, behind_pooler=database.behind_pooler)
    engine = open_engine(database.url, limits)
    try:
        if dry_run:
            return await Retention(engine).look(which)
        forgotten = await Retention(engine).prune(which)
        if forgotten.total:
            detail = {"before": forgotten.before.isoformat(), "runs": forgotten.runs, "rows": dict(forgotten.rows)}
            with translated():
                async with engine.begin() as connection:
                    deed = Deed("db.prune", which.tenant or SHARED, detail)
                    await record(connection, Actor.local("cli"), deed)
        return forgotten
    finally:
        await engine.dispose()
