# SPDX-License-Identifier: Apache-2.0
"""What the page is made of, and the questions that several of its sections ask."""
import settings
from figures import METRICS
from goals import label
from settings import MAIN, PRODUCT

STRENGTHS = ("loss", "waste", "downtime_mean", "traffic", "clean", "utilisation")  # in which a baseline may be better


class Report:
    def __init__(self, table, goals, about, failures):
        self.table = table
        self.goals = goals
        self.about = about
        self.failures = failures
        self.main, self.product = MAIN, PRODUCT
        self.has_product = PRODUCT in table.policies(MAIN)
        self.champions = self.table.champions(MAIN)
        self.main_seeds = sorted({row["seed"] for row in table.rows if row["section"] == MAIN})

    def champions_of(self, section):
        return self.table.champions(section)

    def label(self, policy):
        return label(policy)

    def css(self, policy):
        name = settings.family(policy)[0]
        known = {PRODUCT: "product", "slurm-s1": "slurm", "slurm-s2": "second"}
        return known.get(name, "ablation" if name.startswith(PRODUCT) else "other")

    def contenders(self, section=MAIN):
        """The product and the strongest of each family, the least work lost first."""
        product = [PRODUCT] if PRODUCT in self.table.policies(section) else []
        policies = product + self.champions_of(section)
        found = [(policy, self.table.figure(section, policy, "loss")) for policy in policies]
        return [policy for policy, _ in sorted((one for one in found if one[1]), key=lambda one: one[1].median)]

    def rows(self, metric, section=MAIN, policies=None):
        """(label, figure, css) for a plot; those that have no such figure are left out."""
        found = [(label(policy), self.table.figure(section, policy, metric), self.css(policy))
                 for policy in policies or self.contenders(section)]
        return [row for row in found if row[1]]

    def against(self, metric, section=MAIN):
        """(policy, ratio of the product's to its figure), of each champion, the least first."""
        if PRODUCT not in self.table.policies(section):
            return []
        found = [(policy, self.table.ratio(section, PRODUCT, policy, metric)) for policy in self.champions_of(section)]
        return sorted(((policy, figure) for policy, figure in found if figure), key=lambda one: one[1].median)

    def stronger(self, metric, section=MAIN):
        """Those against which the product is worse in the median, the worst first."""
        sign = -1 if METRICS[metric].more_is_better else 1
        found = [(policy, figure) for policy, figure in self.against(metric, section)
                 if sign * figure.median > sign and not policy.startswith("oracle")]
        return sorted(found, key=lambda one: -sign * one[1].median)

    def sweep(self, name, metric):
        """[(seconds, figure)] of a family that was played at several intervals."""
        found = [(settings.family(policy)[1], self.table.figure(MAIN, policy, metric))
                 for policy in self.table.policies(MAIN) if settings.family(policy)[0] == name]
        return sorted((one for one in found if one[0] and one[1]), key=lambda one: one[0])

    def swept(self):
        return [name for name in self.table.families(MAIN) if len(self.sweep(name, "loss")) > 1]
