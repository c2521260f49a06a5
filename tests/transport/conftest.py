"""One authority and two of its members; making keys takes milliseconds, so once a session is a courtesy."""

import pytest

from desmr_node.transport.tls import Authority


@pytest.fixture(scope="session")
def authority():
    return Authority.create("crime")


@pytest.fixture(scope="session")
def identities(authority):
    return {node: authority.member(node) for node in ("mountain", "pacific")}
