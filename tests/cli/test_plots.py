"""Pictures: where the nodes go, what is written on them, and what is refused."""

import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from desmr_node.cli import plots
from desmr_node.cli.plots.layout import Boxes, place
from desmr_node.cli.plots.network import draw_network
from desmr_node.cli.plots.result import draw_result
from desmr_node.config import NetworkConfig
from desmr_node.core.graph import Graph
from desmr_node.datasets.crime import BORDERS, DIVISIONS
from desmr_node.errors import ConfigError
from desmr_node.runtime.census import node_id

CENSUS = tuple(node_id(name) for name in DIVISIONS)


def random_edges(m, extra, seed=1):
    """A random tree and some more edges."""
    rng = np.random.default_rng(seed)
    edges = {(int(rng.integers(j)), j) for j in range(1, m)}
    while len(edges) < m - 1 + extra:
        a, b = sorted(int(j) for j in rng.choice(m, 2, replace=False))
        edges.add((a, b))
    return sorted(edges)


GRAPHS = {
    "one": (1, []),
    "two": (2, [(0, 1)]),
    "triangle": (3, [(0, 1), (1, 2), (0, 2)]),
    "census": (9, BORDERS),
    "attacker": (10, [*BORDERS, *((j, 9) for j in range(9))]),
    "star": (30, [(0, j) for j in range(1, 30)]),
    "path": (50, [(j, j + 1) for j in range(49)]),
    "ring": (12, [(j, (j + 1) % 12) for j in range(12)]),
    "complete": (9, [(j, k) for k in range(9) for j in range(k)]),
    "random": (50, random_edges(50, 25)),
    "thicket": (50, random_edges(50, 700)),
}


def network_of(ids, edges, name="net"):
    return NetworkConfig.model_validate(
        {
            "network": name,
            "data": {"response": "y"},
            "edges": [[ids[a], ids[b]] for a, b in edges],
            "nodes": [
                {"id": node, "address": f"127.0.0.1:{7000 + j}", "data": "/rows.csv"}
                for j, node in enumerate(ids)
            ],
        }
    )


def texts(path):
    """All texts of an SVG, in order; refuses what is no XML."""
    assert path.stat().st_size < 100_000
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    return ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]


# --- places ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRAPHS)
def test_no_box_lies_on_another(name):
    m, edges = GRAPHS[name]
    half = np.tile([30.0, 8.0], (m, 1))
    graph = Graph.from_edges(m, edges)
    places = place(graph, half, range(m))
    assert places.shape == (m, 2)
    assert np.isfinite(places).all()
    assert not len(Boxes(half).overlaps(places, gap=4.0)[0])
    assert np.array_equal(places, place(graph, half, range(m)))


@pytest.mark.parametrize("name", ["census", "star", "path", "ring"])
def test_no_edge_passes_behind_a_box(name):
    m, edges = GRAPHS[name]
    half = np.tile([30.0, 8.0], (m, 1))
    places = place(Graph.from_edges(m, edges), half, range(m))
    assert not len(Boxes(half).crossed(places, np.array(edges))[0])


def test_an_edge_behind_a_box_is_seen():
    boxes = Boxes(np.tile([10.0, 5.0], (3, 1)))
    edge = np.array([[0, 1]])
    behind = np.array([[0.0, 0.0], [100.0, 0.0], [50.0, 3.0]])
    _, nodes, out, depth = boxes.crossed(behind, edge)
    assert nodes.tolist() == [2]
    assert depth == pytest.approx([2.0])
    assert out.tolist() == [[0.0, 1.0]]
    for elsewhere in ([50.0, 6.0], [120.0, 3.0]):  # beside it, beyond its end
        assert not len(boxes.crossed(np.array([*behind[:2], elsewhere]), edge)[0])


def test_the_census_looks_like_the_map():
    ids = sorted(CENSUS)
    graph = Graph.from_edges(9, [(ids.index(CENSUS[a]), ids.index(CENSUS[b])) for a, b in BORDERS])
    places = place(graph, np.tile([45.0, 8.0], (9, 1)), [ids.index(name) for name in CENSUS])
    x, y = (dict(zip(ids, places[:, axis], strict=True)) for axis in (0, 1))
    assert min(x, key=x.get) == "pacific"
    assert max(x, key=x.get) == "new-england"
    assert x["west-north-central"] < x["east-north-central"] < x["middle-atlantic"]
    assert y["west-north-central"] > y["west-south-central"]
    assert y["east-north-central"] > y["east-south-central"]
    assert y["middle-atlantic"] > y["south-atlantic"]


def test_a_path_is_straight_and_in_order():
    places = place(
        Graph.from_edges(6, [(j, j + 1) for j in range(5)]), np.tile([20.0, 8.0], (6, 1)), range(6)
    )
    assert np.ptp(places[:, 1]) == pytest.approx(0.0, abs=1.0)
    assert (np.diff(places[:, 0]) < 0).all()  # the first listed is on the right


# --- the picture of a network ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRAPHS)
def test_every_id_is_text(name, tmp_path):
    m, edges = GRAPHS[name]
    ids = CENSUS if name == "census" else tuple(f"site-{j}" for j in range(m))
    path = tmp_path / "net.svg"
    caption = draw_network(network_of(ids, edges), path)
    graph = Graph.from_edges(m, edges)
    counts = "1 node, 0 edges" if m == 1 else f"{m} nodes, {len(edges)} edge{'s' * (len(edges) > 1)}"
    assert caption == f"net: {counts}, diameter {graph.diameter()}"
    assert sorted(texts(path)) == sorted([*ids, caption])


def test_the_same_bytes_every_time(tmp_path):
    network = network_of(CENSUS, BORDERS)
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        draw_network(network, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "a.svg").read_text()
    assert "<dc:date>" not in text
    assert "DejaVu Sans" in text
    assert "sans-serif" in text


def test_the_users_own_settings_of_matplotlib_change_nothing(tmp_path):
    import matplotlib

    network = network_of(CENSUS, BORDERS)
    draw_network(network, tmp_path / "a.svg")
    with matplotlib.rc_context({"lines.linewidth": 9.0, "svg.fonttype": "path", "font.family": "serif"}):
        draw_network(network, tmp_path / "b.svg")
        assert matplotlib.rcParams["lines.linewidth"] == 9.0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_network_draw(network, desmr, tmp_path):
    path = tmp_path / "net.svg"
    assert desmr("network", "draw", network(), path) == (
        0,
        f"{path}: three: 3 nodes, 2 edges, diameter 2\n",
        "",
    )
    assert {"a", "b", "c"} < set(texts(path))
    before = path.read_bytes()
    code, out, err = desmr("network", "draw", network(), path)
    assert (code, out) == (1, "")
    assert err == f"desmr: {path} exists already: name another file, or add --replace\n"
    path.write_text("old")
    assert desmr("network", "draw", network(), path, "--replace")[0] == 0
    assert path.read_bytes() == before


def test_network_draw_of_a_network_in_two_parts(network, desmr, tmp_path, edit):
    path = network()
    edit(path, '[["a", "b"], ["b", "c"]]', '[["a", "b"]]')
    code, _, err = desmr("network", "draw", path, tmp_path / "net.svg")
    assert code == 1
    assert "2 parts" in err
    assert not (tmp_path / "net.svg").exists()


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["net.pdf", "net", "net.svg.gz"])
def test_a_file_that_is_no_picture(name, tmp_path):
    with pytest.raises(ConfigError, match=r"is no name for a picture: let it end in \.svg or \.png"):
        plots.check(tmp_path / name, replace=False)


def test_files_that_cannot_be(tmp_path):
    with pytest.raises(ConfigError, match="away is no folder; make it first"):
        plots.check(tmp_path / "away" / "net.svg", replace=False)
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(ConfigError, match="is a folder: name a file"):
        plots.check(tmp_path / "folder.svg", replace=True)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file cannot be written \(File exists\): name another"):
        plots.check_folder(tmp_path / "file")
    assert plots.check(tmp_path / "NET.SVG", replace=False) == tmp_path / "NET.SVG"


def test_a_disk_that_takes_nothing(tmp_path):
    (tmp_path / "net.svg").symlink_to("/dev/full")
    with pytest.raises(ConfigError, match=r"net.svg cannot be written \(No space left"):
        draw_network(network_of(CENSUS, BORDERS), tmp_path / "net.svg")


@pytest.mark.parametrize("command", ["draw", "simulate", "demo"])
def test_without_matplotlib(command, network, desmr, tmp_path, monkeypatch):
    """Known at once: nothing is fitted for a picture that cannot be drawn."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    arguments = {
        "draw": ("network", "draw", network(), tmp_path / "p.svg"),
        "simulate": ("simulate", network(), "--plot", tmp_path / "p.svg"),
        "demo": ("demo", "--plot", tmp_path / "images"),
    }[command]
    assert desmr(*arguments) == (
        1,
        "",
        "desmr: pictures need matplotlib, which is not installed: pip install 'desmr-node[plots]'\n",
    )


# --- the picture of a fit -------------------------------------------------------------------------------


def result_of(coefficients, **changes):
    """A result.json."""
    return {
        "network": "net",
        "node": "a",
        "fit": 1,
        "members": ["a", "b"],
        "converged": True,
        "message": "converged",
        "response": "y",
        "lambda": 0.0456123,
        "intercept": 1.0,
        "coefficients": {**coefficients, "left out": 0.0},
        "support": list(coefficients),
        "scales": dict.fromkeys([*coefficients, "left out"], 2.0),
        "rows": 120,
        "holdout": {"rows": 30, "rmse": 1.23456, "mae": 0.98765},
        "settings": {"quantile": 0.5, "loss": "median", "penalty": "scad", "intercept": True},
    } | changes


def drawn(tmp_path, results, rivals=()):
    draw_result(results, tmp_path / "result.svg", rivals)
    return texts(tmp_path / "result.svg")


def test_names_largest_first_and_what_was_fitted(tmp_path):
    found = drawn(tmp_path, {"a": result_of({"small": 0.1, "large": -3.0, "middle": 1.0})})
    assert [text for text in found if text in ("small", "large", "middle")] == ["large", "middle", "small"]
    assert "left out" not in found
    assert "y: SCAD-penalised median regression over 120 rows of 2 nodes" in found
    caption = " · ".join(found)
    for part in (
        "network net · as a holds it · lambda 0.0456 · 3 of 4 variables",
        "RMSE 1.23, MAE 0.988 on 30 hold-out rows",
        "converged",
        "change of y per standard deviation of the variable",
    ):
        assert part in caption
    assert "NOT CONVERGED" not in caption
    assert "whiskers" not in caption


def test_the_order_is_that_of_the_scaled_coefficients(tmp_path):
    result = result_of({"per dollar": 0.001, "per person": 1.0})
    result["scales"] |= {"per dollar": 9000.0}
    found = drawn(tmp_path, {"a": result})
    assert found.index("per dollar") < found.index("per person")
    found = drawn(tmp_path, {"a": result | {"scales": None}})
    assert found.index("per person") < found.index("per dollar")
    assert "coefficient, in the data's own units" in found
    del result["scales"]  # a result.json of an older version
    assert "coefficient, in the data's own units" in drawn(tmp_path, {"a": result})


def test_without_an_intercept_columns_are_not_centred(tmp_path):
    result = result_of({"u": 1.0})
    result["settings"] |= {"intercept": False}
    assert "change of y per root mean square of the variable" in drawn(tmp_path, {"a": result})


def test_several_nodes(tmp_path):
    found = drawn(tmp_path, {"a": result_of({"u": 1.0}), "b": result_of({"u": 1.5})})
    assert any("bars: mean of 2 nodes, whiskers: their range" in text for text in found)
    assert not any("holds it" in text for text in found)


def test_without_hold_out_rows_and_not_converged(tmp_path):
    found = " · ".join(drawn(tmp_path, {"a": result_of({"u": 1.0}, holdout=None, converged=False)}))
    assert "no hold-out rows · NOT CONVERGED" in found
    assert "RMSE" not in found


@pytest.mark.parametrize("nodes", [("a",), ("a", "b")])
def test_without_variables(tmp_path, nodes):
    found = drawn(tmp_path, dict.fromkeys(nodes, result_of({})))
    assert "no variable was selected" in found
    assert any("0 of 1 variables" in text for text in found)


def test_many_variables(tmp_path):
    found = drawn(tmp_path, {"a": result_of({f"x{j}": 1.0 + j for j in range(60)})})
    assert "x20" in found
    assert "x19" not in found
    assert any("60 of 61 variables, the 40 largest shown" in text for text in found)


def test_awkward_names(tmp_path):
    """Long ones keep both ends; nothing is markup, mathematics or a control character."""
    long = "income_of_households_with_" + "very_" * 20 + "many_members"
    names = [long, "$a_b$", "<&>", "tab\tbell\x07", "価格", ""]
    found = drawn(tmp_path, {"a": result_of(dict.fromkeys(names, 1.0), response="r" * 200)})
    assert {"$a_b$", "<&>", "tab bell ", "価格"} <= set(found)
    shortened = [text for text in found if text.startswith("income_") and text.endswith("many_members")]
    assert len(shortened) == 1
    assert len(shortened[0]) == 36
    assert max(map(len, found)) < 130


def test_simulate_draws_every_nodes_range(network, desmr, tmp_path):
    path = tmp_path / "fit.svg"
    code, out, _ = desmr("simulate", network(), "--plot", path)
    assert code == 0
    assert out.endswith(f"picture: {path}\n")
    found = texts(path)
    assert [text for text in found if text in ("u", "v", "w", "z")] == ["u", "z"]
    assert any("bars: mean of 3 nodes" in text for text in found)
    code, out, err = desmr("simulate", network(), "--plot", path)
    assert (code, out) == (1, "")
    assert "exists already" in err
    code, out, _ = desmr("simulate", network(), "--plot", path, "--replace", "--json")
    assert code == 0
    assert out.startswith("{")


async def test_result_draws_what_a_node_holds(nodes, remote, serving, tmp_path):
    path = tmp_path / "a.png"
    async with serving(*nodes.values()):
        assert (await remote("start", nodes["b"], "--watch"))[0] == 0
        code, out, _ = await remote("result", nodes["a"], "--plot", path)
        assert code == 0
        assert out.endswith(f"picture: {path}\n")
        assert path.read_bytes().startswith(b"\x89PNG")
        code, _, err = await remote("result", nodes["a"], "--plot", tmp_path / "a.txt")
        assert code == 1
        assert "no name for a picture" in err


def test_the_demonstration(tmp_path):
    """Both pictures, the paper's errors in the second; the attacker's own model is nobody's business."""
    ids = (*CENSUS, "attacker")
    results = {node: result_of({"u": 1.0}) for node in ids}
    results["attacker"] = result_of({"nonsense": 9.0})
    outcome = {"scenario": "attacker", "results": results}
    folder = plots.check_folder(tmp_path / "new" / "images")
    plots.draw_demo(network_of(ids, GRAPHS["attacker"][1]), outcome, folder)
    assert set(ids) < set(texts(folder / "network.svg"))
    found = texts(folder / "result.svg")
    assert "nonsense" not in found
    assert {"u", "this fit", "1.235", "0.988", "paper, deSMR", "0.674", "0.871", "0.749", "RMSE"} <= set(
        found
    )
