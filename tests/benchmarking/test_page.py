"""The page of a benchmark: whole, escaped, in need of nothing else, and true to its runs."""

import re
from dataclasses import replace

from dial.benchmarking import figure, page
from dial.benchmarking.tables import tabulate

from .made_up import ABLATION, DIGITS, digits, result, without


def test_the_page_holds_everything() -> None:
    some = without(digits(), task="mnist-optdigits", row="dial", seed=2)
    text = page.render(tabulate(DIGITS, some), some, command="dial bench digits --seeds 0,1,2")
    assert text.startswith("<!doctype html>")
    assert "<pre>dial bench digits --seeds 0,1,2</pre>" in text
    assert "mean and deviation over the seeds 0,1,2" in text
    assert "<p>† 2 of 3 seeds.</p>" in text
    assert "<p>11 of 12 cells are finished.</p>" in text
    assert text.count("digits_cnn (ours)") == 1
    assert 'colspan="4"' in text
    assert "<dt>steps</dt><dd>800</dd>" in text
    assert "<dt>epochs</dt>" not in text  # steps count in their place
    assert '<tr><th scope="row">dial</th><td>entropy 0.3, warmup 0.5</td></tr>' in text


def test_one_seed_has_no_deviation_and_some_results_no_command() -> None:
    some = [r for r in digits() if r["seed"] == 1]
    text = page.render(tabulate(DIGITS, some), some, command=None)
    assert "After the last epoch, seed 1;" in text
    assert "deviation" not in text
    assert "±" not in text
    assert "Make it again" not in text


def test_the_page_needs_nothing_else() -> None:
    some = [result("A-W", "dial_bn", 0, 0.5)]
    table = tabulate(ABLATION, some)
    text = page.render(table, some, command=None, svg=figure.render(table)["svg"])
    assert "<?xml" not in text
    assert text.count("<svg") == text.count("</svg>") == 1
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)|url\(([^)]*)|@import""", text)
    assert links
    assert all((link or url).startswith(("#", "data:,")) for link, url in links)


def test_names_are_escaped() -> None:
    table = tabulate(DIGITS, digits())
    odd = replace(table.lines[0], network="<net>", method="a & b")
    table = replace(table, title="<title>", lines=(odd,))
    text = page.render(table, digits(), command="dial <x>")
    assert "&lt;net&gt;" in text
    assert "a &amp; b" in text
    assert "<h1>&lt;title&gt;</h1>" in text
    assert "dial &lt;x&gt;" in text
