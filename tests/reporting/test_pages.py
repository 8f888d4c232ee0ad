"""The HTML report page and its pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from turnout.accounting.meaning.membership import scheme_certainty
from turnout.core.errors import NumericalError
from turnout.reporting.drawing import Picture
from turnout.reporting.page import counts_page, page
from turnout.reporting.pictures import count_pictures, pictures
from turnout.reporting.words import sure


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_the_report_page_states_every_part_of_the_privacy_guarantee(summary):
    text = words(page(summary, pictures(summary), "[data]"))
    for phrase in (
        "ε at most 2.4356, at least 2.4321",
        "at most 2.25, at least 2.125",
        "add-remove: this client took part, or was never there",
        "client: everything that one client holds",
        "central: the coordinator is trusted",
        "δ 0.0001",
        "an analysis",
        "simulation only (seed 1)",
        "90.00%",
    ):
        assert phrase in text


def test_the_report_page_of_a_run_with_a_trace_shows_availability(traced_summary):
    text = words(page(traced_summary, pictures(traced_summary), "[data]"))
    for phrase in (
        "worst client",
        "Never available 1 phones",
        "27.3% of the slots of which it is known (8% are unknown and count for neither)",
        "Accuracy lost to absence 5.00 points",
        "accuracy 95.00%",
        "What the run costs each client",
        "Availability over the day",
    ):
        assert phrase in text


def test_the_page_of_counts_states_that_epsilon_does_not_cover_the_counts(traced_summary):
    text = words(counts_page(traced_summary, count_pictures(traced_summary)))
    for phrase in (
        "Not for release.",
        "the simulator's view: exact counts, which ε does not cover",
        "Check-ins 6 4 expected",
        "Steps without anybody 1",
        "Participation over the day",
        "simulation only (seed 1)",
    ):
        assert phrase in text.replace("&#39;", "'")


def test_certainties_on_the_report_page_equal_the_privacy_profile(summary, traced_summary):
    for given in (summary, traced_summary):
        prepared = given.outcome.prepared
        found = scheme_certainty(prepared.scheme, prepared.guarantee.delta)
        text = words(page(given, [], "[data]"))
        assert f"at most {sure(found.presence.upper)} sure that the client took part" in text
        assert f"at most {sure(found.absence.upper)} sure that the client was never there" in text


def test_the_report_page_omits_uncertified_values(summary, monkeypatch):
    def refuses(*_given, **_named):
        raise NumericalError("nothing can be certified")

    monkeypatch.setattr("turnout.accounting.meaning.membership.scheme_certainty", refuses)
    text = words(page(summary, [], "[data]"))
    assert "cannot be certified here" in text
    assert "% sure" not in text


def test_markup_in_a_plan_is_escaped_on_the_report_page(summary):
    html = page(summary, [], "<script>alert(1)</script>")
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_an_inline_picture_uses_the_text_colour_of_the_page(summary):
    for picture in [*pictures(summary), *count_pictures(summary)]:
        drawn = picture.inline_svg()
        root = ET.fromstring(drawn)
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-label"] == picture.text
        assert "currentColor" in drawn
        assert "#123456" not in drawn
        assert "http" not in drawn
        ids = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
        assert all(name.startswith(f"{picture.name}-") for name in ids)
        used = set(re.findall(r'(?:url\(|href=")#([^")]+)', drawn))
        assert used <= ids


def test_drawing_a_picture_twice_gives_the_same_bytes(summary):
    def svgs() -> list[str]:
        return [picture.svg() for picture in pictures(summary)]

    assert svgs() == svgs()


def test_a_picture_description_may_contain_any_character():
    picture = Picture("p", "t", 'a "b" & <c>', lambda axes, ink: None)
    assert ET.fromstring(picture.inline_svg()).attrib["aria-label"] == 'a "b" & <c>'


def test_pictures_of_long_runs_are_drawn_as_points(summary, monkeypatch):
    monkeypatch.setattr("turnout.reporting.pictures.MOST_BARS", 2)
    assert all(picture.svg() for picture in count_pictures(summary))
