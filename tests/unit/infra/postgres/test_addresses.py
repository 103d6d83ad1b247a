"""What an address of Postgres may look like, and that no error repeats it."""

import pytest

from starling.core.errors import ConfigurationError
from starling.infra.postgres.engine import open_engine

SECRET = "s3cret-of-the-test"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@db:5432/starling",
        f"postgres://me:{SECRET}@db/starling?sslmode=require",
        f"postgresql+psycopg://me:{SECRET}@db/starling",
        f"postgresql+asyncpg://me:{SECRET}@db/starling",
        f"postgresql://me:{SECRET}@/starling?host=/run/postgresql&port=5433",
        f"postgresql://me:{SECRET}@/starling?host=one:5432&host=two:5432",
    ],
)
def test_common_forms_are_taken(url: str) -> None:
    engine = open_engine(url)

    assert engine.dialect.driver == "psycopg"
    assert SECRET not in str(engine.url)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        (f"mysql://me:{SECRET}@db/starling", "'mysql' isn't"),
        (f"postgresql://me:{SECRET}@db:port/starling", "can't be read"),
        (f"{SECRET}", "can't be read"),
        (f"postgresql://me:{SECRET}@db/starling?sslmood=require", 'invalid connection option "sslmood"'),
        ("", "can't be read"),
    ],
)
def test_others_are_refused_without_repeating_them(url: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        open_engine(url)

    assert SECRET not in str(caught.value)
    assert "postgresql://user:password@host:5432/database" in caught.value.remedy
