"""The chart of the nodes: where lines run, what it says in words, and labels that cover nothing."""

import itertools
import random
import re
from dataclasses import replace

import pytest
from reporting_findings import errors, hostile_finding, make_finding

from qbench.judging import Finding
from qbench.reporting.node_chart import (
    WIDTH,
    Label,
    describe_nodes,
    node_labels,
    nodes_svg,
    shortened,
)


def path_of(svg: str, style: str) -> str:
    return re.search(rf'<path class="way {style}" d="([^"]*)"', svg)[1]


def test_a_line_a_number_with_its_own_dashes_and_marks():
    svg = nodes_svg(make_finding(20, (3,)))
    assert [path_of(svg, style).count("L") for style in ("inrun", "alone")] == [19, 19]
    assert path_of(svg, "explained").count("L") == 18  # the input has no grids in front of it
    assert path_of(svg, "explained").startswith("M")
    heads = {
        style: re.search(rf'"marks {style}" d="M[^a-zA-Z]*([a-z])', svg)[1]
        for style in ("inrun", "alone")
    }
    assert heads == {"inrun": "a", "alone": "h"}
    assert svg.count('class="ring"') == svg.count('class="suspect"') == 1


def test_a_line_is_broken_where_there_is_no_number():
    made = make_finding(9, ())
    holes = tuple(
        replace(n, cumulative=None) if i in (4, 5) else n for i, n in enumerate(made.nodes)
    )
    assert (
        re.sub(r"[^ML]", "", path_of(nodes_svg(replace(made, nodes=holes)), "inrun")) == "MLLLMLL"
    )


def test_all_that_is_drawn_lies_on_the_canvas():
    made = make_finding(40, (0, 39))
    wild = (replace(made.nodes[0], isolated=errors(-150.0)), *made.nodes[1:39])
    svg = nodes_svg(replace(made, nodes=(*wild, replace(made.nodes[39], isolated=errors(150.0)))))
    height = float(re.search(r'viewBox="0 0 1000 ([\d.]+)"', svg)[1])
    for style in ("inrun", "alone", "explained"):
        points = [
            tuple(map(float, point.split()))
            for point in re.split("[ML]", path_of(svg, style))
            if point
        ]
        assert all(0 <= x <= WIDTH and 0 <= y <= height for x, y in points)


def test_a_higher_number_is_drawn_higher():
    made = make_finding(3, ())
    nodes = tuple(
        replace(n, isolated=errors(db))
        for n, db in zip(made.nodes, (10.0, 20.0, 40.0), strict=True)
    )
    path = path_of(nodes_svg(replace(made, nodes=nodes)), "alone")
    first, second, third = (float(point.split()[1]) for point in re.split("[ML]", path)[1:])
    assert first - second == pytest.approx((second - third) / 2, abs=0.2)


def test_the_chart_in_words(words):
    text = describe_nodes(make_finding(20, (3,)))
    words(text)
    svg = nodes_svg(make_finding(20, (3,)))
    assert f"<desc>{text}</desc>" in svg
    assert 'role="img"' in svg


def test_nothing_is_drawn_of_nothing():
    assert nodes_svg(Finding(model="m", backend="b", schema="s", samples=1)) == ""


def test_names_are_escaped():
    assert not re.search(
        r"<(?!/?(svg|title|desc|path|text|g|circle)[ >])", nodes_svg(hostile_finding())
    )


def labels_of(places: list[float], name: str = "features.12.depthwise.conv") -> tuple[Label, ...]:
    return node_labels(dict(enumerate(places, start=1)), [name] * len(places), left=42, right=998)


@pytest.mark.parametrize(
    "places", [[100, 103, 106, 109], [985, 982, 979, 976], [46, 986], [500], [480, 490, 510, 520]]
)
def test_every_suspect_has_its_name_in_a_crowd(places):
    labels = labels_of(places)
    assert sorted(label.text.split()[0] for label in labels) == [
        str(rank + 1) for rank in range(len(places))
    ]
    assert all("features" in label.text for label in labels)


@pytest.mark.parametrize("seed", range(40))
def test_no_label_covers_another_or_its_line(seed):
    draw = random.Random(seed)
    places = draw.sample(range(46, 986, 3), draw.randint(1, 8))
    labels = labels_of(places, "n" * draw.randint(1, 40))
    assert len(labels) == len(places)
    for label in labels:
        assert label.span[0] >= 42
        assert label.span[1] <= 998
    for one, other in itertools.combinations(labels, 2):
        upper, lower = sorted((one, other), key=lambda label: -label.lane)
        if upper.lane == lower.lane:
            assert one.span[1] < other.span[0] or other.span[1] < one.span[0]
        else:
            assert not lower.span[0] <= upper.x <= lower.span[1]


def test_long_names_keep_both_ends():
    assert shortened("short") == "short"
    long = shortened("encoder.layers.11.attention.self.query.MatMul_quantized")
    assert (len(long), long[:8], long[-8:]) == (30, "encoder.", "uantized")
