# SPDX-License-Identifier: Apache-2.0
"""The page: the answer first, then plots, each with what it shows, its units, intervals and numbers."""
import pathlib
from html import escape

import sections
from settings import MAIN, PRODUCT
from words import data, with_interval

STYLE = pathlib.Path(__file__).resolve().parent / "page.css"
NAME = "ReclaimNet: what is lost when owners take their machines back"


def render(report):
    shown = [(name, title, make(report)) for name, title, make in sections.SECTIONS]
    body = [header(report)]
    body.append("<nav>" + " ".join(f'<a href="#{name}">{escape(title)}</a>' for name, title, _ in shown) + "</nav>")
    body += [f'<section id="{name}"><h2>{escape(title)}</h2>{inside}</section>' for name, title, inside in shown]
    style = "\n".join(STYLE.read_text(encoding="utf-8").splitlines()[1:])
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
            f"<title>{escape(NAME)}</title><style>\n{style}\n</style></head><body>\n"
            + "\n".join(body) + "\n</body></html>\n")


def header(report):
    about = report.about
    return (f'<header id="answer"><h1>{headline(report)}</h1><p class="lead">{answer(report)}</p>'
            f'<p class="soft">{about["size"].capitalize()} evaluation, commit {escape(about["commit"])}, '
            f'{escape(about["when"])}. Pale dots are seeds, large dots and numbers their medians, bars 95 % intervals '
            "of the median (with fewer than six seeds: the seeds' range).</p></header>")


def headline(report):
    loss = goal(report, "loss-s1")
    if loss.figure is None:
        return "What is lost when owners take their machines back"
    return (f"When owners take their machines back, ReclaimNet loses {data(loss.figure)} the work that Slurm loses "
            "with its best fixed interval")


def goal(report, name):
    return next(one for one in report.goals if one.name == name)


def answer(report):
    """One paragraph; whatever it says is computed."""
    table = report.table
    begin = (f"On a simulated campus of {report.about['nodes']} machines, {report.about['days']:g} days, "
             f"{len(report.main_seeds)} seeds and mixed notices, ")
    if not report.has_product:
        return begin + "only the baselines were played. " + tally(report)
    lost, down = (table.figure(MAIN, PRODUCT, metric) for metric in ("loss_share", "downtime_mean"))
    words = [f"{begin}ReclaimNet loses {with_interval(lost)} of the useful work, and a displaced job is down for "
             f"{with_interval(down)} on average."]
    loss, downtime = goal(report, "loss-s1"), goal(report, "downtime")
    if loss.figure:
        words.append(f"Against Slurm's best fixed interval that is {with_interval(loss.figure)} the loss "
                     f"(goal: {loss.wanted}, {loss.state})"
                     + (f" and {with_interval(downtime.figure)} the downtime (goal: {downtime.wanted}, "
                        f"{downtime.state})" if downtime.figure else "") + ".")
    worse = report.stronger("loss")
    if worse:
        policy, figure = worse[0]
        moved = table.ratio(MAIN, PRODUCT, policy, "traffic")
        words.append(f"It is not the least: {escape(report.label(policy))} loses less "
                     f"(ReclaimNet {with_interval(figure)}"
                     + (f", with {data(moved)} the bytes moved" if moved else "") + ").")
    else:
        words.append("No other system that was played loses less in the median.")
    return " ".join([*words, tally(report)])


def tally(report):
    states = [one.state for one in report.goals]
    bounded = len(states) - states.count("reported")
    return (f"Of {bounded} goals {states.count('met')} met, {states.count('missed')} missed, "
            f"{states.count('not measured')} not measured.")
