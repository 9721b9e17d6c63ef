"""The live view on a terminal. This module needs rich."""

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from feddst.cli.frame import LABEL, Line, frame
from feddst.cli.run_progress import RunProgress
from feddst.cli.sparkline import BLOCKS


class View:
    """A run as rich draws it; remembers how wide its lines were."""

    def __init__(self, progress: RunProgress) -> None:
        self.progress = progress
        self.drawn: Sequence[int] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = frame(self.progress, options.max_width, ascii_only=options.ascii_only)
        self.drawn = [len(line.text) for line in lines]
        yield from map(_styled, lines)


class LiveView:
    """Draws a run four times a second, below everything else that is written to standard error meanwhile."""

    def __init__(self, console: Console, progress: RunProgress) -> None:
        self._live = Redrawn(View(progress), console)
        self._live.start(refresh=True)

    def show(self, progress: RunProgress) -> None:
        """Do nothing: the next redraw shows the run as it is."""

    def announce(self, line: str, progress: RunProgress) -> None:
        progress.notice = line

    def close(self) -> None:
        self._live.stop()


class Redrawn(Live):
    """A transient view that also erases its lines where a narrower terminal has wrapped them."""

    def __init__(self, view: View, console: Console) -> None:
        super().__init__(view, console=console, transient=True, redirect_stdout=False)
        self._view = view

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        width = self.console.width
        broken = sum(max(0, -(-drawn // width) - 1) for drawn in self._view.drawn)
        begin, *rest = super().process_renderables(renderables)
        upwards = Control(*((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)) * broken)
        return [begin, upwards, *rest]


def _styled(line: Line) -> Text:
    text = Text(line.text, no_wrap=True, overflow="crop")
    if line.kind == "numbers":
        text.stylize("dim", 0, LABEL)
        text.highlight_regex("[━=]+", "cyan")
        text.highlight_regex(f"[{BLOCKS}]+", "green")
    else:
        text.stylize({"title": "bold", "notice": "yellow"}[line.kind])
    return text
