import pytest

from desmr_node import __version__, cli


@pytest.mark.parametrize(("command", "name"), [(cli.desmr, "desmr"), (cli.desmr_node, "desmr-node")])
def test_version_and_help(command, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.strip() == f"{name} {__version__}"
    assert command([]) == 2
    assert "from desmr_node import" in capsys.readouterr().out


def test_an_unknown_option_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.desmr(["--nonsense"])
    assert stopped.value.code == 2
    assert "unrecognized arguments: --nonsense" in capsys.readouterr().err
