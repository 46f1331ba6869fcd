"""The databases an index is tried on: SQLite everywhere, PostgreSQL where a server is named."""

import itertools
import os

import pytest

NUMBERS = itertools.count()


@pytest.fixture
def postgres():
    """The URL of an empty database on the server that $QBENCH_TEST_POSTGRES names."""
    server = os.environ.get("QBENCH_TEST_POSTGRES")
    if not server:
        pytest.skip("no PostgreSQL server: bash .ci/with-postgres make test starts one")
    import sqlalchemy
    from sqlalchemy.engine import make_url

    url = make_url(server).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    name = f"qbench_{os.getpid()}_{next(NUMBERS)}"
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield url.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Where an index may be made."""
    return (
        str(tmp_path / "index.sqlite")
        if request.param == "sqlite"
        else request.getfixturevalue("postgres")
    )
