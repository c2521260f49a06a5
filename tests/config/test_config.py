"""Configuration: a folder of bad files with the sentences they earn, good ones, overrides and paths."""

import datetime
import os
import re
import tomllib
from pathlib import Path

import pytest
import tomli_w
from pydantic import ValidationError

from desmr_node.config import (
    FitSpec,
    NeighbourConfig,
    NetworkConfig,
    NodeConfig,
    dump_toml,
    is_loopback,
    load_network,
    load_node,
    settings,
    split_address,
)
from desmr_node.errors import ConfigError

HERE = Path(__file__).parent
BAD, GOOD = sorted(HERE.glob("*.bad.toml")), sorted(HERE.glob("*.good.toml"))


def _load(path, environ=None):
    return (load_network if path.name.startswith("network-") else load_node)(path, environ or {})


def _named(path):
    return path.name.removesuffix(".toml")


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", BAD, ids=_named)
def test_a_bad_file_earns_the_sentences_it_expects_and_no_other(path):
    expected = re.findall(r"^# expect: (.*)$", path.read_text(), re.MULTILINE)
    with pytest.raises(ConfigError) as error:
        _load(path)
    sentences = str(error.value).splitlines()
    assert expected
    for sentence in sentences:
        assert sentence.startswith(f"{path}: ")
        assert any(text in sentence for text in expected)
    for text in expected:
        assert any(text in sentence for sentence in sentences)


@pytest.mark.parametrize("path", GOOD, ids=_named)
def test_a_good_file_is_frozen_once_read(path):
    config = _load(path)
    with pytest.raises(ValidationError, match="frozen"):
        config.patience = 1.0


def test_the_folder_holds_what_the_suite_promises():
    assert len(BAD) >= 36
    assert len(GOOD) >= 5
    assert len({path.read_text() for path in BAD}) == len(BAD)


def test_a_missing_file_a_folder_and_another_encoding_are_told(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml does not exist: check the path"):
        load_node(tmp_path / "none.toml", {})
    with pytest.raises(ConfigError, match="is a folder: name the file in it"):
        load_node(tmp_path, {})
    latin = tmp_path / "latin.toml"
    latin.write_bytes('network = "crime"\nnode = "é"\n'.encode("latin-1"))
    with pytest.raises(
        ConfigError, match=r"latin\.toml: not UTF-8 at line 2, column 9: save the file as UTF-8"
    ):
        load_node(latin, {})


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "node.toml"
    text = (HERE / "node-smallest.good.toml").read_text()
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load_node(path, {}).node == "alone"


# --- node.toml ------------------------------------------------------------------------------------------


def test_the_smallest_file_gets_the_defaults():
    config = load_node(HERE / "node-smallest.good.toml", {})
    assert config == NodeConfig(
        network="crime",
        node="alone",
        listen=None,
        fit=FitSpec(),
        seed=0,
        patience=60.0,
        autostart=False,
        insecure=False,
        state=HERE / "state",
        data={"file": HERE / "rows.csv", "response": "y", "features": None, "holdout": None},
        floors={"rows": 0, "rows_per_variable": 0.0},
        tls=None,
        admin={"listen": f"unix:{HERE}/state/admin.sock", "insecure": False},
        metrics={"listen": None},
        log={"level": "info", "format": "text"},
        neighbours=(),
    )


def test_every_key_of_a_full_file_arrives():
    path = HERE / "node-everything.good.toml"
    config = load_node(path, {})
    assert config.fit == FitSpec(
        loss="median",
        quantile=0.9,
        penalty="mcp",
        lambda_=1.0,
        lambdas=7,
        score="bic-check",
        update="linearised",
        metric="identity",
        tau=2.0,
        outer=3,
        inner=4,
        tolerance=0.0,
        intercept=False,
        scaling="none",
        weights="nodes",
        bandwidth="paper",
        smoothing="none",
        sparsity=5,
    )
    assert (config.seed, config.patience, config.autostart, config.state) == (
        17,
        "forever",
        True,
        Path("/var/lib/desmr"),
    )
    assert config.data.file == HERE / "rows.parquet"
    assert config.data.holdout == HERE / "later.csv.gz"
    assert config.data.features == ("age", "income")
    assert (config.floors.rows, config.floors.rows_per_variable) == (100, 2.0)
    assert config.tls.model_dump() == {
        "ca": HERE / "tls/ca.pem",
        "certificate": HERE / "tls/mountain.pem",
        "key": HERE / "tls/mountain.key",
    }
    assert (config.admin.listen, config.metrics.listen) == ("0.0.0.0:50052", "0.0.0.0:9100")
    assert (config.log.level, config.log.format) == ("debug", "json")
    assert [(n.id, n.address, n.dial) for n in config.neighbours] == [
        ("pacific", "pacific.example.org:50051", "auto"),
        ("west-north-central", None, "never"),
        ("west-south-central", "[2001:db8::7]:50051", "always"),
    ]


def test_the_full_file_names_every_setting():
    """So that a new setting cannot be added without being tried."""
    document = tomllib.loads((HERE / "node-everything.good.toml").read_text()) | {"insecure": True}
    for setting in settings(NodeConfig):
        tables = [document]
        for part in setting.path:
            values = [table[part.removesuffix("[]")] for table in tables if part.removesuffix("[]") in table]
            assert values, setting.key
            tables = [item for value in values for item in (value if isinstance(value, list) else [value])]


def test_every_setting_says_what_it_means():
    for model in (NodeConfig, NetworkConfig):
        found = list(settings(model))
        assert len({setting.key for setting in found}) == len(found) > 30
        assert [setting.key for setting in found if not setting.description] == []
    keys = {setting.key: setting for setting in settings(NodeConfig)}
    assert {"fit.lambda", "fit.seed", "neighbours[].dial", "admin.listen"} <= keys.keys()
    assert "seed" not in keys
    assert keys["data.file"].required
    assert keys["fit.penalty"].default == "scad"
    assert keys["neighbours[].dial"].variable is None


@pytest.mark.parametrize(
    ("node", "listen", "address", "dial", "dials"),
    [
        ("a", "127.0.0.1:1", "127.0.0.1:2", "auto", True),  # the smaller id
        ("z", "127.0.0.1:1", "127.0.0.1:2", "auto", False),
        ("z", None, "127.0.0.1:2", "auto", True),  # only the other end can be reached
        ("a", "127.0.0.1:1", None, "auto", False),  # only this end can
        ("z", "127.0.0.1:1", "127.0.0.1:2", "always", True),
        ("a", "127.0.0.1:1", "127.0.0.1:2", "never", False),
    ],
)
def test_who_dials(node, listen, address, dial, dials):
    neighbour = NeighbourConfig(id="m", address=address, dial=dial)
    config = NodeConfig(
        network="n", node=node, listen=listen, data={"file": "f", "response": "y"}, neighbours=(neighbour,)
    )
    assert config.dials(neighbour) is dials


def test_paths_start_at_the_folder_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "node.toml").write_text(
        'network = "n"\nnode = "a"\nstate = "../s"\n[data]\nfile = "~/rows.csv"\nresponse = "y"\n'
        'holdout = "/abs.csv"\n[admin]\nlisten = "unix:run/a.sock"\n'
    )
    monkeypatch.chdir(tmp_path)
    config = load_node("conf/node.toml", {})
    assert config.state == tmp_path / "s"
    assert config.data.file == Path("/home/someone/rows.csv")
    assert config.data.holdout == Path("/abs.csv")
    assert config.admin.listen == f"unix:{tmp_path}/conf/run/a.sock"
    overridden = load_node("conf/node.toml", {"DESMR_DATA__FILE": "other.csv"})
    assert overridden.data.file == tmp_path / "conf" / "other.csv"


@pytest.mark.parametrize(
    ("address", "host", "port", "loopback"),
    [
        ("127.0.0.1:50051", "127.0.0.1", 50051, True),
        ("127.9.9.9:1", "127.9.9.9", 1, True),
        ("localhost:0", "localhost", 0, True),
        ("LocalHost:1", "LocalHost", 1, True),
        ("[::1]:65535", "::1", 65535, True),
        ("[::]:1", "::", 1, False),
        ("0.0.0.0:1", "0.0.0.0", 1, False),
        ("10.0.0.1:1", "10.0.0.1", 1, False),
        ("localhost.example.org:1", "localhost.example.org", 1, False),
        ("my_service-1:1", "my_service-1", 1, False),
    ],
)
def test_addresses(address, host, port, loopback):
    assert split_address(address) == (host, port)
    assert is_loopback(address) is loopback


@pytest.mark.parametrize(
    "address", ["", ":1", "a:", "a:b", "a b:1", "a:-1", "a:1:2", "[::1]", "-a:1", "a/b:1", "a:１"]
)
def test_what_is_no_address(address):
    with pytest.raises(ValueError, match='write "host:port"'):
        split_address(address)


_ODD = [
    "",
    "{x}",
    "a\0b",
    -1,
    0,
    2**70,
    10**400,
    1e308,
    True,
    [],
    [[]],
    {},
    {"": {}},
    {"self": 1},
    [{"id": 1}],
    datetime.date(2024, 1, 1),
]


@pytest.mark.parametrize("model", [NodeConfig, NetworkConfig])
def test_odd_values_anywhere_are_accepted_or_told(tmp_path, model):
    """Nothing but a ConfigError comes out, whatever is written where."""
    good = HERE / ("node-everything.good.toml" if model is NodeConfig else "network-three.good.toml")
    load, path = (load_node if model is NodeConfig else load_network), tmp_path / "odd.toml"
    sentences = []
    for setting in settings(model):
        for value in _ODD:
            document = tomllib.loads(good.read_text())
            table = document
            for part in setting.path[:-1]:
                inner = table.setdefault(part.removesuffix("[]"), {})
                table = inner[0] if isinstance(inner, list) else inner
            table[setting.path[-1]] = value
            path.write_text(tomli_w.dumps(document))
            try:
                load(path, {})
            except ConfigError as error:
                sentences += str(error).splitlines()
    assert len(sentences) > 5 * len(list(settings(model)))
    assert [sentence for sentence in sentences if not sentence.startswith(f"{path}: ")] == []


# --- environment ----------------------------------------------------------------------------------------


def test_variables_override_the_file():
    config = load_node(
        HERE / "node-everything.good.toml",
        {
            "HOME": "/root",
            "DESMR_NODE": "mesa",
            "DESMR_LISTEN": "127.0.0.1:7",
            "DESMR_PATIENCE": "2.5",
            "DESMR_AUTOSTART": "false",
            "DESMR_DATA__RESPONSE": '"7"',
            "DESMR_DATA__FEATURES": '["u", "v"]',
            "DESMR_FIT__PENALTY": "l1",
            "DESMR_FIT__LAMBDA": "0.25",
            "DESMR_FIT__SEED": "5",
            "DESMR_FLOORS__ROWS_PER_VARIABLE": "3",
            "DESMR_ADMIN__LISTEN": "unix:/run/a.sock",
            "DESMR_NEIGHBOURS": '[{id = "pacific", address = "pacific:1"}]',
        },
    )
    assert (config.node, config.listen, config.patience, config.autostart) == (
        "mesa",
        "127.0.0.1:7",
        2.5,
        False,
    )
    assert (config.data.response, config.data.features) == ("7", ("u", "v"))
    assert (config.fit.penalty, config.fit.lambda_, config.seed, config.fit.outer) == ("l1", 0.25, 5, 3)
    assert (config.floors.rows, config.floors.rows_per_variable) == (100, 3.0)
    assert config.admin.listen == "unix:/run/a.sock"
    assert [n.address for n in config.neighbours] == ["pacific:1"]


def test_variables_can_stand_for_what_the_file_leaves_out(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text("[fit]\nlambda_ = 0.5\n")
    environ = {"DESMR_NETWORK": "n", "DESMR_NODE": "a", "DESMR_DATA": '{file = "x.csv", response = "z"}'}
    assert load_node(path, environ | {"DESMR_DATA__RESPONSE": "y"}).data.response == "y"
    assert load_node(path, environ).fit.lambda_ == 0.5
    for name in ("DESMR_FIT__LAMBDA", "DESMR_FIT__LAMBDA_"):
        assert load_node(path, environ | {name: "0.75"}).fit.lambda_ == 0.75


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        (
            {"DESMR_PATENCE": "1"},
            "environment variable DESMR_PATENCE sets nothing: did you mean DESMR_PATIENCE?",
        ),
        ({"DESMR_FIT_PENALTY": "l1"}, "DESMR_FIT_PENALTY sets nothing: did you mean DESMR_FIT__PENALTY?"),
        ({"DESMR_NEIGHBOURS__0__ADDRESS": "a:1"}, "DESMR_NEIGHBOURS__0__ADDRESS sets nothing"),
        ({"DESMR_SEED": "1"}, "DESMR_SEED sets nothing"),
        (
            {"DESMR_FIT__PENALTY": "lasso"},
            "with environment variable DESMR_FIT__PENALTY: fit.penalty is \"lasso\": write 'l1'",
        ),
        ({"DESMR_NODE": "7"}, "with environment variable DESMR_NODE: node is 7: write text in quotes"),
        ({"DESMR_LISTEN": ""}, 'with environment variable DESMR_LISTEN: listen is "": it is empty'),
        (
            {"DESMR_NEIGHBOURS": '[{id = "B"}]'},
            'with environment variable DESMR_NEIGHBOURS: neighbours[0].id is "B": write 1 to 63',
        ),
        ({"DESMR_NODE": "a\nlisten = 3"}, "with environment variable DESMR_NODE: node is"),
        ({"DESMR_AUTOSTART": "1\npatience = 3"}, "with environment variable DESMR_AUTOSTART: autostart is"),
    ],
)
def test_a_bad_variable_is_named(environ, complaint):
    with pytest.raises(ConfigError) as error:
        load_node(HERE / "node-smallest.good.toml", environ)
    assert complaint in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_two_unknown_variables_are_two_sentences():
    with pytest.raises(ConfigError) as error:
        load_network(HERE / "network-three.good.toml", {"DESMR_LISTEN": "a:1", "DESMR_STATE": "s"})
    assert [line.split()[2] for line in str(error.value).splitlines()] == ["DESMR_LISTEN", "DESMR_STATE"]


def test_the_real_environment_is_the_default(monkeypatch):
    for name in [name for name in os.environ if name.startswith("DESMR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DESMR_PATIENCE", "9")
    assert load_node(HERE / "node-smallest.good.toml").patience == 9.0
    assert load_network(HERE / "network-three.good.toml").patience == 9.0


# --- NETWORK.toml ---------------------------------------------------------------------------------------


@pytest.fixture
def network():
    return load_network(HERE / "network-three.good.toml", {})


def test_a_network_knows_its_nodes_and_edges(network):
    assert network.ids == ("a", "b", "c")
    assert [network.neighbours_of(name) for name in network.ids] == [("b",), ("a", "c"), ("b",)]
    assert network.graph().neighbours == ((1,), (0, 2), (1,))
    assert (network.seed, network.fit.penalty, network.patience) == (3, "l1", 5.0)
    assert network.node("b").data == HERE / "b.npz"
    with pytest.raises(ConfigError, match="network crime has no node d: its nodes are a, b, c"):
        network.node("d")


def test_a_single_node_is_a_network():
    network = load_network(HERE / "network-one.good.toml", {})
    assert network.graph().size == 1
    assert network.node_document("a").get("neighbours") is None


def test_a_node_listens_where_it_is_dialled(network, tmp_path):
    assert [network.node(name).listen for name in "abc"] == ["127.0.0.1:50051", "0.0.0.0:50051", None]
    path = tmp_path / "n.toml"
    node = '[[nodes]]\nid = "a"\ndata = "a.csv"\naddress = "[2001:db8::1]:7"\n'
    path.write_text('network = "n"\n[data]\nresponse = "y"\n' + node)
    assert load_network(path, {}).nodes[0].listen == "[::]:7"
    path.write_text('network = "n"\n[data]\nresponse = "y"\n' + node + 'listen = "10.0.0.1:8"\n')
    assert load_network(path, {}).nodes[0].listen == "10.0.0.1:8"


def test_the_data_of_a_node(network):
    data = network.data_of("a")
    assert (data.file, data.holdout) == (HERE / "a.csv", Path("/data/a-later.csv"))
    assert (data.response, data.features) == ("y", ("u", "v"))


def test_a_node_document_is_a_node_file(network, tmp_path):
    tls = {"ca": "ca.pem", "certificate": Path("node.pem"), "key": "node.key"}
    configs = {}
    for name in network.ids:
        path = tmp_path / f"{name}.toml"
        path.write_text(
            dump_toml(network.node_document(name, tls=tls, data="rows.csv", state=f"state-{name}"))
        )
        configs[name] = load_node(path, {})
    for name, config in configs.items():
        assert (config.network, config.node) == ("crime", name)
        assert (config.fit, config.seed) == (network.fit, network.seed)
        assert (config.patience, config.autostart) == (5.0, True)
        assert (config.floors, config.log) == (network.floors, network.log)
        assert config.data.file == tmp_path / "rows.csv"
        assert (config.data.response, config.data.features) == ("y", ("u", "v"))
        assert config.state == tmp_path / f"state-{name}"
        assert config.tls.certificate == tmp_path / "node.pem"
        assert tuple(n.id for n in config.neighbours) == network.neighbours_of(name)
    assert configs["a"].admin.listen == "127.0.0.1:50061"
    assert configs["a"].data.holdout == Path("/data/a-later.csv")
    assert configs["b"].metrics.listen == "0.0.0.0:9100"
    assert configs["c"].admin.listen == f"unix:{tmp_path}/state-c/admin.sock"


def test_a_node_document_without_arguments_points_at_the_files_of_the_network(network):
    document = network.node_document("a", insecure=True)
    assert document["data"]["file"] == str(HERE / "a.csv")
    assert document["insecure"] is True
    assert "tls" not in document
    assert document["fit"] == {"penalty": "l1", "lambda": "bic", "seed": 3}


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("hidden", ["", "a", "b", "c", "ac"])
def test_every_edge_has_exactly_one_end_that_dials(tmp_path, hidden, listening):
    """Also when a node has no address the others could dial, whether it listens or not."""
    text = 'network = "n"\nedges = [["a", "b"], ["b", "c"]]\n[data]\nresponse = "y"\n'
    for port, name in enumerate("abc", 1):
        text += f'[[nodes]]\nid = "{name}"\ndata = "{name}.csv"\n'
        if name not in hidden:
            text += f'address = "127.0.0.1:{port}"\n'
        elif listening:
            text += f'listen = "127.0.0.1:{port}"\n'
    (tmp_path / "network.toml").write_text(text)
    network = load_network(tmp_path / "network.toml", {})
    dialled = []
    for name in network.ids:
        path = tmp_path / f"{name}.toml"
        path.write_text(dump_toml(network.node_document(name)))
        config = load_node(path, {})
        dialled += [tuple(sorted((name, n.id))) for n in config.neighbours if config.dials(n)]
    assert sorted(dialled) == [("a", "b"), ("b", "c")]


def test_toml_is_written_as_it_is_read():
    document = {
        "text": 'quote " backslash \\ newline \n é',
        "float": 0.1,
        "whole": 3,
        "yes": True,
        "path": Path("/a/b"),
        "nothing": None,
        "empty": {"nothing": None},
        "table": {"list": ("a", "b"), "deep": {"x": 1e-300}},
        "tables": [{"id": "a", "address": None}, {"id": "b"}],
    }
    assert tomllib.loads(dump_toml(document)) == {
        "text": 'quote " backslash \\ newline \n é',
        "float": 0.1,
        "whole": 3,
        "yes": True,
        "path": "/a/b",
        "table": {"list": ["a", "b"], "deep": {"x": 1e-300}},
        "tables": [{"id": "a"}, {"id": "b"}],
    }
