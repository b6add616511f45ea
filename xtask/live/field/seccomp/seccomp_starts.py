"""Short programs under a filter that kills at perf_event_open: each profiled program has the exit code and output of an
unprofiled one.

    seccomp_starts.py python|node|java COUNT
"""

import json
import os
import sys

import field
import seccomp

#: CPU time of each program in seconds.
BURNED = "0.03"


def ends(language, count, profiles):
    """[exit code, output, times], and standard error of all programs."""
    rules = os.path.join(field.folder(), "rules.json")
    with open(rules, "w") as file:
        json.dump(seccomp.denied("kill", ["perf_event_open"]), file)
    words = [sys.executable, os.path.join(field.HERE, "seccomp/filtered.py"), rules]
    words += [sys.executable, os.path.join(field.HERE, "seccomp/repeated.py")]
    ended = field.run([*words, str(count), *field.burner(language), BURNED], profiles, 1190)
    field.expect(ended.code == 0, f"the programs could not be started\n{ended}")
    return json.loads(ended.stdout), ended.stderr


def main(language, count):
    [[code, text, _]], reference = ends(language, 1, None)
    profiles = field.folder()
    found, stderr = ends(language, count, profiles)
    expected = [[code, text, int(count)]]
    field.expect(found == expected, f"{found}, expected {expected}\n{stderr[-10_000:]}")
    field.expect_no_other_lines(stderr, reference)
    return f"0 deaths of {count}, {field.expect_samples(profiles, int(count) // 2)} samples"


if __name__ == "__main__":
    field.cell(main)
