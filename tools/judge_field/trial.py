# SPDX-License-Identifier: Apache-2.0
"""What a trial is: a module with CASES, a list of Case, and record(folder, case), which every rank calls."""
import collections
import re

# what: the class of the finding, or several that are right; axis: of the mesh; tensors: a pattern that all
# named tensors match. None: not said.
Wanted = collections.namedtuple("Wanted", "what axis tensors", defaults=(None, None))


class Case(collections.namedtuple("Case", "setting ranks family type fault wanted seed", defaults=(0,))):
    """One step. wanted: of a faulty one; None: the step is sound, or any finding is right."""
    @property
    def name(self):
        return " ".join(str(x) for x in (self.setting, self.family, self.type, self.fault, self.seed))


def names_in(words):
    """The tensors of a finding, which the report has in words."""
    return [w for w in re.split(r", | and ", words or "") if "." in w]


def is_named(report, wanted):
    for f in report["findings"]:
        whats = wanted.what if isinstance(wanted.what, tuple) else (wanted.what,)
        names = names_in(f.get("tensors"))
        if f["what"] not in whats or (wanted.axis and f.get("axis") != wanted.axis):
            continue
        if wanted.tensors and not (names and all(re.search(wanted.tensors, n) for n in names)):
            continue
        return True
    return False
