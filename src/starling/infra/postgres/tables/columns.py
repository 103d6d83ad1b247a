"""The one MetaData of all tables, and the columns that most tables have."""

from sqlalchemy import Column, DateTime, MetaData, Text, text

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    }
)


def tenant_column() -> Column[str]:
    """Return the first column of each primary key."""
    return Column("tenant", Text, primary_key=True)


def moment_column(name: str, *, nullable: bool = False) -> Column[object]:
    """Return a point in time with its zone: by default that of the insert, NULL where `nullable`."""
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=None if nullable else text("now()"))
