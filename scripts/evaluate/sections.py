# SPDX-License-Identifier: Apache-2.0
"""The page's sections. Each is a function of the report; what has no figure says so in words."""
from html import escape

import outputs
import paired
import plots
import settings
from figures import KINDS, METRICS, MOVED
from goals import MEANS, label, span
from report import STRENGTHS
from settings import MAIN, PRODUCT
from words import data, grid, interval, numbers, plot, table, with_interval

FEW = 3  # worst seeds that are shown
DISTINCT = (PRODUCT, "slurm-s0", "slurm-s1", "slurm-s2")  # whose curves can be told from each other where all meet


def nothing(why):
    return f'<p class="soft">Not measured: {escape(why)}.</p>'


def goals(report):
    rows = []
    for goal in report.goals:
        state = goal.state + ("" if goal.is_sure or goal.state not in ("met", "missed") else ", not surely")
        rows.append((f'<a href="#{goal.section}">{escape(goal.words)}</a>', escape(goal.wanted), escape(goal.paper),
                     (data(goal.figure), "number") if goal.figure else escape(goal.why),
                     (interval(goal.figure), "number") if goal.figure else "",
                     str(goal.figure.n) if goal.figure else "", (state, goal.state.replace(" ", "-"))))
    return (table(["", "goal", "others", "here, median", "95 % interval", "n", ""], rows)
            + "<p class='soft'>“Not surely”: the interval reaches beyond the goal, or there are fewer than six seeds. "
              "Nothing is bent to meet a goal: the bounds stand in scripts/evaluate/goals.py, and "
              "all of this is computed from the runs.</p>")


def loss(report):
    rows = report.rows("loss_share")
    waste = report.rows("waste_share")
    return grid(
        plot("Work lost, % of the useful work", plots.dots(
            "Work lost by policy", rows, "% of useful work, logarithmic", True),
             "Useful GPU-seconds that were done and are not in the state from which the job went on. Of systems with "
             "an interval the best is shown.", numbers(rows)),
        plot("Lost or stood still to be saved", plots.dots(
            "Waste by policy", waste, "% of useful work, logarithmic", True),
             "Who saves more often loses less and stands still longer: both together.", numbers(waste)))


def ratios(report):
    figures = []
    for metric, bound, words in (("loss", 0.20, "goal against S1"), ("downtime_mean", 0.40, "goal against S1"),
                                 ("waste", 1, "the same"), ("traffic", 1, "the same")):
        rows = [(label(policy), figure, report.css(policy)) for policy, figure in report.against(metric)]
        if rows:
            figures.append(plot(
                f"{METRICS[metric].words.capitalize()}: ReclaimNet's, times theirs",
                plots.dots(metric, rows, "ratio of the same seed, logarithmic", True, bound, words),
                "To the left of 1 ReclaimNet has less. Seeds in which theirs is nothing are left out.", numbers(rows)))
    return grid(*figures) if figures else nothing("the product was not played")


def sweep(report):
    names = report.swept()
    if not names:
        return nothing("no system was played at several intervals")
    figures = []
    for metric in ("loss_share", "waste_share", "downtime_mean", "traffic"):
        series = [(label(name), report.css(f"{name}-1"), [
            (seconds, figure.median, figure) for seconds, figure in report.sweep(name, metric) if figure.median > 0])
            for name in names]
        series = [one for one in series if one[2]]
        ours = report.table.figure(MAIN, PRODUCT, metric) if report.has_product else None
        level = ("ReclaimNet", "product", ours) if ours and ours.median > 0 else None
        rows = [(f"{label(name)} {span(seconds)}", figure)
                for name in names for seconds, figure in report.sweep(name, metric)]
        if series:
            one = METRICS[metric]
            figures.append(plot(
                one.words.capitalize(),
                plots.curves(one.words, series, "seconds between saves", one.unit, True, True, level),
                "Dashed: ReclaimNet, which chooses its own intervals. Both axes logarithmic.", numbers(rows)))
    return edges(report, names) + grid(*figures)


def edges(report, names):
    """A best interval at the end of those that were played may not be the best there is."""
    at_end = []
    for name in names:
        best = settings.family(report.table.best(MAIN, name))[1]
        if best in (report.sweep(name, "loss")[0][0], report.sweep(name, "loss")[-1][0]):
            at_end.append(f"{label(name)} at {span(best)}")
    return (f"<p>At the end of the intervals that were played lies the best of {escape(', '.join(at_end))}: beyond it "
            "may be a better one.</p>" if at_end else "")


def downtime(report):
    mean, middle = report.rows("downtime_mean"), report.rows("downtime_median")
    series, counts = [], []
    shown = [policy for policy in report.contenders() if settings.family(policy)[0] in DISTINCT]
    for policy in shown:
        values = outputs.pooled(report.table, MAIN, policy, "downtimes_s")
        if len(values) > 1:
            points = [(max(outputs.quantile(values, percent), 0.1), percent, None) for percent in outputs.PERCENTS]
            series.append((label(policy), report.css(policy), points))
            counts.append(f"{label(policy)} {len(values):,}")
    curve = ""
    if series:
        curve = plot("Every downtime of all seeds", plots.curves(
            "Downtimes", series, "seconds, logarithmic", "% of displacements that were down at most so long"),
            "Displacements whose job did new work again: " + escape(", ".join(counts)) + ". Those whose job never did "
            "are not in it; see what failed. Percentiles of the others are in distributions.csv.")
    return grid(
        plot("Mean downtime", plots.dots("Mean downtime", mean, "seconds, logarithmic", True),
             "From the last useful step to the first new one anywhere, waiting in the queue and steps done again "
             "included.", numbers(mean)),
        plot("Median downtime", plots.dots("Median downtime", middle, "seconds, logarithmic", True),
             "Of each seed's downtimes the middle one.", numbers(middle)), curve)


def traffic(report):
    rows, share = report.rows("traffic"), report.rows("traffic_share")
    figure = report.table.figure
    points = [(label(policy), report.css(policy), x, y) for policy in report.contenders()
              if (x := figure(MAIN, policy, "traffic")) and (y := figure(MAIN, policy, "loss_share"))]
    both = ""
    if any(x.median > 0 and y.median > 0 for _, _, x, y in points):
        both = plot("What less loss costs in bytes", plots.scatter(
            "Work lost against bytes moved", points, "TB moved, logarithmic", "work lost, % of useful work"),
            "To the left and down is better. Systems that move nothing have no place here.", numbers([
                (point[0], point[2]) for point in points]))
    gbit = settings.campus_gbit(report.about["nodes"])
    return grid(both, plot(
        "Share of the campus", plots.dots("Share of the campus network", share, "% of what the buildings' lines carry",
                                          goal=1, goal_words="goal: below 1 %", from_zero=True),
        f"All bytes that crossed any line, checkpoints and restores, against {gbit:g} Gbit/s (the buildings' lines to "
        "the root) all the time. Bytes within a building are counted, too.", numbers(share)),
        plot("Bytes moved", plots.dots("Bytes moved", rows, "TB", from_zero=True), "Over lines, in all.",
             numbers(rows)))


def utilisation(report):
    policies = report.contenders()
    without = report.table.figure(MAIN, policies[0], "owned") if policies else None
    if without is None:
        return nothing("nobody played")
    stacks, listed = [("no platform", [("owners", without, "not lent")])], [("no platform", without)]
    for policy in policies:
        owned, guests = (report.table.figure(MAIN, policy, metric) for metric in ("owned", "guests"))
        stacks.append((label(policy), [("owners", owned, "not lent"), ("guests", guests, "used by guests")]))
        listed.append((f"{label(policy)}, guests", guests))
        listed.append((f"{label(policy)}, together", report.table.figure(MAIN, policy, "busy")))
    of_lent, useful = report.rows("utilisation"), report.rows("useful")
    return grid(
        plot("All GPU time of the campus", plots.bars("Campus utilisation", stacks, "% of all GPU time", "%", 100),
             '<span class="key owners"></span>not lent: its owners have it, or it is free for less than ten minutes '
             '<span class="key guests"></span>used by guests. What is missing to 100 % was lent, and no job was there '
             "for it (section “With more jobs”). Medians of each part.", numbers(listed)),
        plot("Of the lent GPU time, used", plots.dots("Utilisation of lent GPUs", of_lent, "%"),
             "By guests that have begun.", numbers(of_lent)),
        plot("Useful work", plots.dots("Useful work", useful, "GPU-hours"), "Steps done for the first time.",
             numbers(useful)))


def departures(report):
    clean, stretch, finished = (report.rows(metric) for metric in ("clean", "stretch", "finished"))
    return grid(
        plot("Departures with notice that lost at most a minute", plots.dots(
            "Clean departures", clean, "%", goal=97, goal_words="goal: 97 %"),
            "Of all runs that were taken back with a notice. A job that never went on counts as not clean.",
            numbers(clean)) if clean else "",
        plot("Training time beyond the work itself", plots.dots(
            "Stretch", stretch, "%, jobs with 2 to 4 interruptions", goal=2, goal_words="goal: 2 %"),
            "From a finished job's first start to its end, over its work: everything is in it, also waiting in the "
            "queue. Counted from the raw log.", numbers(stretch)) if stretch else "",
        plot("Jobs that were finished", plots.dots("Finished jobs", finished, "% of the submitted"),
             "Others were still waiting or running at the end.", numbers(finished))) + (
        "" if clean else nothing("no run was taken back with a notice"))


def home(report):
    rows = report.rows("home")
    if not rows:
        return nothing("no run could be counted again from its log, or no machine came back")
    return grid(plot(
        "Back on their machine", plots.dots("Migrated back", rows, "% of displaced jobs"),
        "Of the displaced whose machine was lent again before they had finished: those that ran there again later. "
        "Baselines do so by chance. Counted from the raw log.", numbers(rows)))


def causes(report):
    rows, listed = [], []
    for policy in report.contenders():
        pieces = [(kind, figure, kind) for kind in (*KINDS, MOVED)
                  if (figure := report.table.figure(MAIN, policy, f"loss_{kind}"))]
        if pieces:
            rows.append((label(policy), pieces))
            listed += [(f"{label(policy)}, {kind}", figure) for kind, figure, _ in pieces]
    lossy = [row for row in rows if row[0] != label("slurm-s0")]
    keys = "".join(f'<span class="key {kind}"></span>{kind}' for kind in (*KINDS, MOVED))
    return grid(plot(
        "Work lost, by how the owner came", plots.bars("Work lost by kind of reclaim", lossy, "GPU-hours", "GPU-h"),
        f"{keys}. Medians of each kind, so that a bar is not quite the median of the sum. What is lost when a policy "
        "itself moves a job (moved) is no reclaim's, and not in the other plots. Slurm S0, which saves nothing, is in "
        "the numbers.", numbers(listed))) if lossy else nothing("nobody was taken back")


def variation(report, names, metric="loss"):
    """Ratios of the product to the champion of each family, in each of these sections."""
    figures = []
    for name in names:
        rows = [(label(policy), figure, report.css(policy)) for policy, figure in report.against(metric, name)]
        if rows:
            figures.append(plot(
                report.table.sections[name].words.capitalize(), plots.dots(
                    f"{metric} {name}", rows, f"{METRICS[metric].words}: ReclaimNet's, times theirs", True, 1,
                    "the same"),
                own_words(report, name), numbers(rows)))
    return figures


def own_words(report, section):
    ours = report.table.figure(section, PRODUCT, "loss_share")
    used = report.table.figure(section, PRODUCT, "utilisation")
    clean = report.table.figure(section, PRODUCT, "clean")
    return (f"ReclaimNet itself: {with_interval(ours)} of the useful work lost, {with_interval(used)} of the lent time "
            "used" + (f", {with_interval(clean)} of departures with notice clean" if clean else "")
            + ". Each system at its best interval in this setting.")


def mixes(report):
    there = [name for name in settings.MIXES if name in report.table.sections]
    figures = variation(report, there)
    return grid(*figures) if figures else nothing("the product was not played")


def load(report):
    figures = variation(report, [name for name in ("busy",) if name in report.table.sections])
    rows = [(f"{words}: {label(PRODUCT)}", figure, "product") for name, words in ((MAIN, "default"), ("busy", "busy"))
            if name in report.table.sections and (figure := report.table.figure(name, PRODUCT, "utilisation"))]
    if rows:
        figures.append(plot("Of the lent GPU time, used", plots.dots("Utilisation by load", [
            (row[0].split(":")[0], *row[1:]) for row in rows], "%", from_zero=True),
            "ReclaimNet at both loads.", numbers(rows)))
    return grid(*figures) if figures else nothing("the product was not played")


def ablations(report):
    if "ablations" not in report.table.sections:
        return nothing("the product was not played, or has no part that can be left out")
    figures = []
    for metric in ("loss", "downtime_mean", "traffic"):
        rows = [(label(policy), figure, "ablation") for policy in report.table.policies("ablations")
                if (figure := report.table.ratio("ablations", policy, PRODUCT, metric))]
        if rows:
            figures.append(plot(
                f"{METRICS[metric].words.capitalize()}, without a part", plots.dots(
                    metric, rows, "times the whole product's", True, 1, "the same"),
                "To the right of 1: the part helps.", numbers(rows)))
    return grid(*figures) if figures else nothing("no seed has both")


def more(report):
    shown = {*settings.MIXES, "busy", "ablations"}
    figures = variation(report, [name for name in report.table.sections if name not in shown])
    absent = "".join(f"<li>{escape(words)}</li>" for words in report.about["not_there"])
    return grid(*figures) + (f"<p>Not varied:</p><ul>{absent}</ul>" if absent else "")


def worst_seeds(report):
    """Of the main comparison, where the product does worst against the best fixed interval."""
    fixed = report.table.best(MAIN, "slurm-s1")
    figure = report.table.ratio(MAIN, PRODUCT, fixed, "loss") if fixed and report.has_product else None
    if figure is None:
        return ""
    ours, theirs = (report.table.values(MAIN, policy, "loss") for policy in (PRODUCT, fixed))
    seeds = sorted(figure.values, key=lambda seed: -figure.values[seed])[:FEW]
    options = " ".join(report.table.sections[MAIN].options)
    recorded = any(report.about[name].startswith("recorded") for name in ("owners", "jobs"))
    rows = [(str(seed), (plots.shown(ours[seed], "GPU-h"), "number"), (plots.shown(theirs[seed], "GPU-h"), "number"),
             (plots.shown(figure.values[seed], "times"), "number"),
             f"<code>reclaim-sim evaluate --policy {PRODUCT} {fixed.removesuffix('s')} --seed {seed} "
             f"{escape(options)}</code>" + (" and the recorded files" if recorded else ""))
            for seed in seeds]
    return f"<h3>Seeds in which ReclaimNet does worst against {escape(label(fixed))}</h3>" + table(
        ["seed", "ReclaimNet", label(fixed), "ratio", "to play it again"], rows)


def better_ones(report):
    rows = []
    for metric in STRENGTHS:
        for policy, figure in report.stronger(metric):
            own = report.table.figure(MAIN, PRODUCT, metric)
            theirs = report.table.figure(MAIN, policy, metric)
            rows.append((escape(METRICS[metric].words), escape(label(policy)), (data(own), "number"),
                         (data(theirs), "number"), (with_interval(figure), "number")))
    if not rows:
        return ""
    return "<h3>In what others do better</h3>" + table(["", "who", "ReclaimNet", "theirs", "ratio"], rows)


def left_over(report):
    rows = []
    for policy in report.contenders():
        unresumed, overstays = (report.table.figure(MAIN, policy, metric) for metric in ("unresumed", "overstays"))
        if unresumed and overstays:
            rows.append((escape(label(policy)), (with_interval(unresumed), "number"),
                         (with_interval(overstays), "number")))
    return "<h3>Guests that did not go on, or did not go</h3>" + table(
        ["", "displaced and not running again at the end", "still there when the owner came"], rows) if rows else ""


def failures(report):
    told = report.failures
    lines = [f"<li>{escape(one['section'])}, seed {one['seed']}: {escape(one['fault'])}</li>" for one in told["failed"]]
    late = [f"<li>{escape(name)}: {count} of {whole} runs</li>" for name, count, whole in told["late"]]
    skipped = [f"<li>{escape(name)}</li>" for name in told["not_played"]]
    counted = told["recounted"]
    return "".join((
        "<h3>Runs that failed</h3>" + (f"<ul>{''.join(lines)}</ul>" if lines else "<p>None.</p>"),
        "<h3>Runs for which there was no time</h3>" + (f"<ul>{''.join(late)}</ul>" if late else "<p>None.</p>"),
        f"<p>{counted} runs were counted again from their raw logs by scripts/evaluate/recount.py; a difference would "
        "stand above as a failure.</p>",
        "<h3>Policies that were not played</h3><ul>" + "".join(skipped) + "</ul>" if skipped else "",
        better_ones(report) if report.has_product else "", worst_seeds(report), left_over(report)))


def method(report):
    about = report.about
    facts = [
        ("campus", f"{about['nodes']} machines, {about['labs']} labs, {about['users']} users, {about['days']:g} days"),
        ("owners", about["owners"]), ("jobs", about["jobs"]),
        ("seeds", " ".join(str(seed) for seed in report.main_seeds)),
        ("commit", about["commit"]), ("program", about["program"]), ("machine", about["machine"]),
        ("took", about["took"]), ("command", about["command"])]
    means = "".join(f"<li>{escape(label(name))}: {escape(MEANS[name])}</li>" for name in report.table.families(MAIN)
                    if name in MEANS)
    speed = report.rows("speed", policies=[PRODUCT]) if report.has_product else []
    said = (f"<p>ReclaimNet's cores simulate {with_interval(speed[0][1])} of this campus, by the wall clock, two runs "
            "at a time.</p>" if speed else "")
    return (
        "<p>A discrete-event simulation of a campus. ReclaimNet's decisions are made by the daemons' own cores; the "
        "others are models of their rules (docs/evaluation.md, ADR 0014). All systems of a seed meet the same "
        "machines, lines, owners, notices and jobs. Ratios are of the same seed; intervals are from "
        f"{paired.ROUNDS:,} resamples of the seeds, with a fixed seed of their own. Sizes of states are assumed.</p>"
        + said
        + table(["", ""], [(escape(name), escape(str(value))) for name, value in facts])
        + (f"<ul>{means}</ul>" if means else "")
        + "<p>Not modelled: other traffic, packet losses, full disks, contention for processors, speeds of GPU models. "
          "The file server of the baselines has ten lines of 1 Gbit/s.</p>")


def files(_):
    return ("<p>Every figure with median, interval, n, seeds and commit: <a href='figures.csv'>figures.csv</a>, "
            "<a href='figures.json'>figures.json</a> (with goals and failures). Every run: "
            "<a href='runs.csv'>runs.csv</a>, <a href='runs.json'>runs.json</a>. Losses and downtimes of each "
            "displacement, as percentiles: "
            "<a href='distributions.csv'>distributions.csv</a>.</p>")


SECTIONS = (
    ("goals", "The goals, and what came out", goals), ("loss", "How much work is lost", loss),
    ("ratios", "Against each other system", ratios), ("sweep", "How often the others save", sweep),
    ("downtime", "How long a job is down", downtime), ("traffic", "What it costs on the network", traffic),
    ("utilisation", "What lending brings", utilisation), ("departures", "Departures with notice", departures),
    ("home", "The way home", home), ("causes", "What the losses come from", causes),
    ("mixes", "With other notices", mixes), ("load", "With more jobs", load),
    ("ablations", "Without a part of it", ablations),
    ("more", "Other variations", more), ("failures", "What failed, and who does better", failures),
    ("method", "How this was made", method), ("files", "The numbers", files),
)
