"""What an address of Postgres may look like, and that no error repeats it."""

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import make_url

from starling.core.errors import ConfigurationError
from starling.infra.postgres.engine import address_of, open_engine

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
        f"postgresql://me:{SECRET}@one:5432,two:5433/starling",
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
        (f"postgresql://me:{SECRET}@one:5432,two:port/starling", "can't be read"),
        (f"{SECRET}", "can't be read"),
        (f"postgresql://me:{SECRET}@db/starling?sslmood=require", 'invalid connection option "sslmood"'),
        ("", "can't be read"),
        (f"postgresql://me:[{SECRET}@db/starling", "can't be read"),
        (f"postgresql://me:a@{SECRET}@db/starling", "can't be read"),
        (f"postgresql://me:a@{SECRET}@one,two/starling", "can't be read"),
    ],
)
def test_others_are_refused_without_repeating_them(url: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        open_engine(url)

    assert SECRET not in f"{caught.value} {caught.value.remedy}"
    assert "postgresql://user:password@host:5432/database" in caught.value.remedy
    assert "/ as %2F" in caught.value.remedy


@pytest.mark.parametrize("hosts", ["one:5432", "one:5432,two:5433"])
def test_characters_of_a_password_are_taken_as_the_error_says_to_write_them(hosts: str) -> None:
    url = f"postgresql://me:%40%2F%3A%2C%5B%5D%25@{hosts}/starling"

    assert conninfo_to_dict(address_of(url))["password"] == "@/:,[]%"


@pytest.mark.parametrize(
    ("written", "hosts", "ports", "wanted"),
    [
        ("one:5432,two:5433/starling", "one,two", "5432,5433", "read-write"),
        ("one,two:5433/starling", "one,two", ",5433", "read-write"),
        ("[::1]:5432,two:5433/starling?target_session_attrs=primary", "::1,two", "5432,5433", "primary"),
        ("/starling?host=one,two&port=5432,5433", "one,two", "5432,5433", "read-write"),
        ("/starling?host=one:5432&host=two:5433", "one,two", "5432,5433", "read-write"),
        ("one:5432/starling", "one", "5432", None),
    ],
)
def test_of_several_hosts_the_one_that_takes_writes_is_wanted(
    written: str, hosts: str, ports: str, wanted: str | None
) -> None:
    url = f"postgresql://me:se%40cret@{written}"
    expected = {"user": "me", "password": "se@cret", "dbname": "starling", "host": hosts, "port": ports}

    libpq = conninfo_to_dict(address_of(url))
    driver = open_engine(url).dialect.create_connect_args(make_url(open_engine(url).url))[1]

    attributes = {"target_session_attrs": wanted, "connect_timeout": "3"} if wanted else {}
    assert libpq == expected | attributes
    assert {name: str(value) for name, value in driver.items() if name != "context"} == expected | attributes


def test_spaces_of_an_address_reach_libpq() -> None:
    url = "postgresql://me:se%20cr%2Bet@/starling?host=/tmp/a%20b&options=-c%20search_path%3Dx%20-c%20jit%3Doff"

    assert conninfo_to_dict(address_of(url)) == {
        "user": "me",
        "password": "se cr+et",
        "dbname": "starling",
        "host": "/tmp/a b",
        "options": "-c search_path=x -c jit=off",
    }
