"""What strangers wrote reaches pytest's terminal as text, in every section; reading a suite
starts no program.
"""

import re

import pytest

HOSTILE = (
    "a\\n::error title=x::boom\\r ##[error]red \\x1b[31mcode \\u202eturned \\u2028::warning::end"
)

MORE = f'''
TEXT = "{HOSTILE}"


def refused():
    from qbench.errors import UnsupportedError

    raise UnsupportedError(TEXT, found=TEXT, expected=TEXT, remedy=TEXT)


def wrong():
    from qbench.errors import InputError

    raise InputError(TEXT, found=TEXT, expected=TEXT, remedy=TEXT)


def broken():
    print(TEXT)
    raise ValueError(TEXT)


MORE = {{"backends": {{"refused": refused, "wrong": wrong, "broken": broken}}}}
'''


def offences(text):
    """Lines that GitHub's runner takes for a command, and what a terminal acts on;
    pytest's own colours are off.
    """
    hidden = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
    return [
        one
        for one in text.split("\n")
        if one.strip().startswith("::") or "##[" in one or hidden.search(one)
    ]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_every_section_is_text(project, workers):
    project.write_conftest(MORE)
    project.write_suite(
        '[suite]\nschemas = ["w8a8_asym_pc"]\nbackends = ["refused", "wrong", "broken"]\n'
        '[[model]]\nid = "tiny_a"\ndata = "points"\ncalibration = { data = "spare", count = 8 }\n'
        'metrics = ["top1"]\n'
    )
    result = project.run("-rA", "-v", "--tb=long", workers=workers, process=bool(workers))
    text = str(result.stdout) + str(result.stderr)
    assert text.count("boom") > 6
    assert offences(text) == []


def test_a_report_for_github_commands_and_nothing_else_does(project):
    project.write_conftest(MORE)
    project.write_suite(
        '[suite]\nschemas = ["w8a8_asym_pc"]\nbackends = ["wrong"]\n'
        '[[model]]\nid = "tiny_a"\ndata = "points"\ncalibration = { data = "spare", count = 8 }\n'
        'metrics = ["top1"]\n'
    )
    text = str(project.run("--qbench-report=github").stdout)
    ours = [
        line
        for line in text.split("\n")
        if line.startswith("::error file=suites/scratch.qbench.toml,title=")
    ]
    assert len(ours) == 1
    assert offences(text) == ours


@pytest.mark.slow
def test_collecting_starts_no_python(project):
    folder = project.suite_path.parent / "pythons"
    folder.mkdir()
    program, mark = folder / "evil.sh", project.path / "started"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    (folder / "far.toml").write_text('python = "evil.sh"\n')
    project.write_suite(
        '[suite]\nschemas = ["w8a8_asym_pc"]\nbackends = ["far"]\n'
        '[[model]]\nid = "tiny_a"\ndata = "points"\ncalibration = { data = "spare", count = 8 }\n'
        'metrics = ["top1"]\n'
    )
    for words in (
        ("--collect-only",),
        ("--collect-only", "--qbench-prune"),
        ("--help",),
        ("-m", "qbench(model='b')"),
    ):
        project.run(*words)
        assert not mark.exists(), words
    project.run()
    assert mark.exists()
