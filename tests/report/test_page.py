"""The page in a browser: every plot draws, everything that can be switched does something, and no name is markup."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from feddst.methods import METHODS
from feddst.report import write_report
from feddst.report.content import content
from feddst.report.document import build
from feddst.runtime.details import Detail, LayerLife, PixelMap
from feddst.runtime.storage import RunDirectory

from .conftest import MakeRun, detail

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>bold</b>&amp;"
PLOTS = {"#scores": 1, "#masks .panel:not(.unchosen)": 7, "#traffic": 1, "#clients .panel:not(.unchosen)": 1}

pytestmark = pytest.mark.browser


@dataclass
class Seen:
    """A page that is open, and what it has asked for and complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, path: Path) -> Page:
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn=yes]")
        return self.page

    def drawn(self, place: str = "#scores") -> str:
        """The pictures at a place, as they are written."""
        pictures: list[str] = self.page.eval_on_selector_all(f"{place} .stage svg", "all => all.map(e => e.outerHTML)")
        return "\n".join(pictures)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert path is not None, f"none of {', '.join(BROWSERS)} is installed"
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture
def seen(browser: Browser) -> Iterator[Seen]:
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    yield Seen(page)
    page.close()


@pytest.fixture
def report(comparison: Path) -> Path:
    return write_report([comparison])


def ground(page: Page) -> int:
    """How light the page's background is, from 0 to 765."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3])


def test_every_plot_draws_and_nothing_is_asked_for_or_complained_of(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    for place, count in PLOTS.items():
        pictures = page.locator(f"{place} svg:not(.swatch)")
        assert pictures.count() >= count, place
    marks = "path, rect, line, circle"
    places = page.eval_on_selector_all(f"svg:not(.swatch) :is({marks})", "all => all.map(e => e.outerHTML)")
    assert len(places) > 100
    assert not [mark for mark in places if re.search(r"NaN|Infinity|undefined", mark)]
    assert page.locator("#scores path.line").count() == 3
    assert page.locator("#scores path.band").count() == 3
    assert "null" not in page.inner_text("body")
    assert seen.requests == [report.as_uri()]
    assert seen.complaints == []


def test_methods_are_switched_off_and_on(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    button = page.get_by_role("button", name="randommask")
    before = seen.drawn()
    button.click()
    assert page.locator("#scores path.line").count() == 2
    assert button.get_attribute("aria-pressed") == "false"
    button.press("Enter")
    assert page.locator("#scores path.line").count() == 3
    assert re.sub(r"clip\d+", "", seen.drawn()) == re.sub(r"clip\d+", "", before)


@pytest.mark.parametrize("value", ["rounds", "formula", "compute", "log", "near"])
def test_axes_change_what_is_drawn(seen: Seen, report: Path, value: str) -> None:
    page = seen.open(report)
    paths = "all => all.map(e => e.getAttribute('d')).join() + document.querySelector('#scores .axis').textContent"
    before = page.eval_on_selector_all("#scores path.line", paths)
    page.locator(f"#scores input[value={value}]").check()
    after = page.eval_on_selector_all("#scores path.line", paths)
    assert after != before
    assert "NaN" not in seen.drawn()
    assert seen.complaints == []


def test_the_pointer_reads_all_methods(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    tip = page.locator("#scores .tip")
    assert tip.is_hidden()
    page.locator("#scores input[value=rounds]").check()
    area = page.locator("#scores .area")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)  # of four rounds, the second
    assert tip.is_visible()
    words = tip.inner_text()
    assert "round 2" in words
    for name, score in (("fedavgm", "25.0 %"), ("feddst", "45.0 %"), ("randommask", "50.0 %")):
        assert re.search(rf"{name}\s+{score}", words), words
    page.mouse.move(2, 2)
    assert tip.is_hidden()


def test_the_keyboard_reads_values_too(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    page.locator("#scores .plot").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#scores .tip p").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#scores .tip p").inner_text() != first
    page.keyboard.press("Escape")
    assert page.locator("#scores .tip").is_hidden()


def test_masks_and_clients_follow_method_and_round(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    assert "The mask never moved in: randommask." in page.inner_text("#masks")
    assert "No details were kept by: fedavgm." in page.inner_text("#masks")
    page.locator("#masks label", has_text="feddst").click()
    panel = page.locator("#masks .panel:not(.unchosen)")
    assert panel.locator("rect.entered").count() == 4  # four rounds of the one layer that moves
    now = panel.locator(".map").first
    before = now.inner_html()
    panel.locator("input[type=range]").fill("0")
    assert now.inner_html() != before
    assert "round 1" in panel.inner_text()
    slider = page.locator("#clients .panel:not(.unchosen) input[type=range]")
    shown = page.locator("#clients .panel:not(.unchosen) .histogram")
    before = shown.inner_html()
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert shown.inner_html() != before
    assert seen.complaints == []


def test_a_dense_model_is_called_so(seen: Seen, make_run: MakeRun) -> None:
    layers = (LayerLife("fc1.weight", 10, 10, 0, 0), LayerLife("fc2.weight", 5, 5, 0, 0))
    page = seen.open(write_report(make_run("run", [0.5], [Detail(1, layers)], method="fedavgm")))
    assert "Dense, with all weights active: fedavgm." in page.inner_text("#masks")
    assert page.locator("#masks .panel").count() == 0


def test_bytes_are_those_of_a_run_or_of_a_round(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    assert "15 MiB" in seen.drawn("#traffic")
    page.locator("#traffic input[value=round]").check()
    assert "15 MiB" not in seen.drawn("#traffic")
    assert "5 MiB" in seen.drawn("#traffic")


def test_it_is_dark_where_the_system_is_and_where_it_is_asked_to_be(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    assert ground(page) > 600
    page.locator("#theme input[value=dark]").check()
    assert ground(page) < 150
    page.emulate_media(color_scheme="dark")
    page.locator("#theme input[value=light]").check()
    assert ground(page) > 600
    page.locator("#theme input[value=auto]").check()
    assert ground(page) < 150


def test_paper_is_light_and_shows_everything(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    page.locator("#theme input[value=dark]").check()
    page.get_by_role("button", name="feddst").first.click()
    lines = page.locator("#scores path.line")
    assert lines.count() == 2
    page.evaluate("window.addEventListener('beforeprint', () => { window.printed = true; })")
    assert page.pdf().startswith(b"%PDF")
    assert page.evaluate("window.printed")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert lines.count() == 3
    assert ground(page) == 765
    assert page.locator("#masks .panel").count() == 2
    assert all(panel.is_visible() for panel in page.locator(".panel").all())
    assert page.locator("nav").is_hidden()
    assert page.get_by_text("engine.workers").is_visible()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert lines.count() == 2
    assert page.locator("details[open]").count() == 0


@pytest.mark.parametrize("width", [360, 700, 1600])
def test_it_fits_its_window(seen: Seen, report: Path, width: int) -> None:
    page = seen.open(report)
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width, timeout=5000)


@pytest.fixture
def many(make_run: MakeRun, tmp_path: Path) -> Path:
    """A report on every method there is, of which some use an option that others do not."""
    for i, method in enumerate(METHODS):
        make_run(f"many/{method}", [0.2, 0.9 - i / 50], [detail(1), detail(2, entered=2)], method=method)
    return write_report(tmp_path / "many")


def test_of_many_entries_options_are_listed_by_value(seen: Seen, many: Path) -> None:
    page = seen.open(many)
    values = page.locator("#settings > .scrolled tr", has=page.locator("th", has_text=re.compile(r"^oneshot\.scope$")))
    assert values.locator("td").inner_text() == "global grasp, snip"
    page.get_by_text(re.compile(r"^All \d+ options$")).click()
    same = page.locator("#settings details tr", has=page.locator("th", has_text=re.compile(r"^data\.clients$")))
    assert same.locator("td").all_inner_texts() == ["400"]


def test_many_entries_fit_paper_and_a_narrow_window(seen: Seen, many: Path) -> None:
    page = seen.open(many)
    fits = "() => document.documentElement.scrollWidth <= window.innerWidth"
    page.set_viewport_size({"width": 360, "height": 800})
    page.wait_for_function(fits, timeout=5000)
    page.set_viewport_size({"width": 688, "height": 900})
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function(fits, timeout=5000)
    assert seen.complaints == []


def test_words_in_pictures_are_not_in_the_light_colours_of_lines(seen: Seen, many: Path) -> None:
    page = seen.open(many)
    colours = page.eval_on_selector_all("svg text", "all => [...new Set(all.map(e => getComputedStyle(e).fill))]")
    theme = page.evaluate(
        "['--ink', '--soft'].map(e => getComputedStyle(document.documentElement).getPropertyValue(e))"
    )
    assert sorted(colours) == sorted(f"rgb{tuple(bytes.fromhex(each.strip('# ')))}" for each in theme)


def test_a_map_of_many_places_is_drawn(seen: Seen, make_run: MakeRun) -> None:
    rows = tuple(tuple((x * y % 7) / 10 for x in range(224)) for y in range(224))
    maps = [Detail(number, inputs=PixelMap("fc1.weight", rows)) for number in range(1, 25)]
    page = seen.open(write_report(make_run("run", [0.5] * 24, maps)))
    assert "Each square stands for 4 × 4 places" in page.inner_text("#masks")
    assert page.locator("#masks .map .pixels path").count() > 1
    assert seen.complaints == []


def test_hostile_names_are_only_ever_text(seen: Seen, comparison: Path, make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("all/" + HOSTILE.replace("/", "∕"), [0.1, 0.2], method="sign-sgd")
    shown = json.loads(json.dumps(content([comparison, run])))
    for entry in shown["entries"]:
        entry["label"] += HOSTILE
    shown["title"] = HOSTILE
    path = tmp_path / "hostile.html"
    path.write_text(build(shown))
    page = seen.open(path)
    assert page.locator("img").count() == 0
    assert page.locator("main b").count() == 0
    assert HOSTILE in page.inner_text("#heading")
    assert page.title() == f"{HOSTILE} – feddst report"
    assert seen.requests == [path.as_uri()]
    assert seen.complaints == []


def test_runs_without_rounds_or_details_say_so(seen: Seen, make_run: MakeRun) -> None:
    run = make_run("run", [], finished=False)
    page = seen.open(write_report([run]))
    words = page.inner_text("main")
    assert "No round has been evaluated yet" in words
    assert "No details were kept by: feddst." in words
    assert "not finished" in words
    assert seen.complaints == []


def test_names_of_marks_that_are_close_do_not_overprint(
    seen: Seen, make_run: MakeRun, unseal_run: Callable[[Path], RunDirectory]
) -> None:
    counts = (0,) * 19 + (4,)
    run = make_run("run", [0.99], [Detail(1, clients=counts)])
    unseal_run(run)
    rows = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(rows.replace('"accuracy_worst": 0.495', '"accuracy_worst": 0.98'))
    page = seen.open(write_report(run))
    boxes = [each.bounding_box() for each in page.locator("#clients .histogram text.strong").all()]
    left, right = sorted((box for box in boxes if box is not None), key=lambda box: box["x"])
    assert left["x"] + left["width"] <= right["x"]
    picture = page.locator("#clients .histogram").bounding_box()
    assert picture is not None
    assert right["x"] + right["width"] <= picture["x"] + picture["width"] + 1


def test_a_line_that_ends_early_is_led_to_its_name(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    assert page.locator("#scores .leader").count() == 2  # of 15 MiB, feddst and randommask have sent 4
    page.locator("#scores input[value=rounds]").check()
    assert page.locator("#scores .leader").count() == 1  # of 4 rounds, fedavgm has played 3


def test_methods_that_are_shown_have_a_check_mark(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    mark = "e => getComputedStyle(e.querySelector('.check'), '::before').content"
    button = page.get_by_role("button", name="randommask")
    assert button.evaluate(mark) == '"✓"'
    button.click()
    assert button.evaluate(mark) == "none"


def test_a_command_breaks_between_words_alone_and_is_copied_as_it_is(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    page.set_viewport_size({"width": 500, "height": 800})
    command = page.locator("#settings .command").first
    words = command.locator("span")
    assert " ".join(words.all_inner_texts()) == command.inner_text()
    options = [word for word in words.all() if word.inner_text().startswith("--")]
    assert options
    for word in options:
        box = word.bounding_box()
        assert box is not None
        assert box["height"] < 30  # one line


def test_there_is_room_below_the_last_line(seen: Seen, report: Path) -> None:
    page = seen.open(report)
    assert page.evaluate("parseFloat(getComputedStyle(document.getElementById('footer')).paddingBottom)") > 30
