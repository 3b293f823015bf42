"""How the page is started: Streamlit on this machine only, with nothing sent out."""

import sys
from importlib.util import find_spec
from pathlib import Path

from tilearena.errors import TilearenaError

PAGE = Path(__file__).with_name("app.py")
OPTIONS = {
    "server.address": "127.0.0.1",
    "server.fileWatcherType": "none",
    "server.showEmailPrompt": "false",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    "theme.base": "light",
    "theme.primaryColor": "#2171b5",
}


def command(root: Path, submissions: Path | None = None, *, port: int = 8501, headless: bool = False) -> list[str]:
    """Arguments of the process that serves the page on http://127.0.0.1:``port``.

    Args:
        root: has the recordings.
        submissions: has the submissions, if they lie below another root.
        port: to listen on.
        headless: do not open a browser.

    Raises:
        TilearenaError: Streamlit or Plotly is not installed.
    """
    if find_spec("streamlit") is None or find_spec("plotly") is None:
        raise TilearenaError("the page needs Streamlit and Plotly: pip install 'tilearena[leaderboard]'")
    options = OPTIONS | {"server.port": str(port), "server.headless": str(headless).lower()}
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    roots = [str(path.absolute()) for path in (root, submissions or root)]
    return [sys.executable, "-m", "streamlit", "run", str(PAGE), *flags, "--", *roots]
