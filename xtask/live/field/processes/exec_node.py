"""Node.js programs that `process.execve` replaces while they are sampled at 1000 Hz: each new program ends with its exit code.

    exec_node.py COUNT
"""

import os
from concurrent.futures import ThreadPoolExecutor

import field

#: Exit code of the new program.
OWN_CODE = 7
#: Concurrent rounds.
PARALLEL = 2


def main(count):
    node = os.environ["FIELD_NODE"]
    words = [node, "--no-warnings", os.path.join(field.HERE, "processes/exec_node.js"), str(OWN_CODE)]
    known = field.run([node, "-p", "typeof process.execve"]).stdout.strip()
    if known != "function":
        raise field.Skip(f"process.execve is {known} in {node}: it came with Node.js 23.11")
    profiles = field.folder()

    def one(_):
        return field.run(words, profiles, SPANPROF_SAMPLE_RATE="1000").code

    with ThreadPoolExecutor(PARALLEL) as pool:
        codes = list(pool.map(one, range(int(count))))
    ends = {code: codes.count(code) for code in set(codes)}
    field.expect(ends == {OWN_CODE: int(count)}, f"expected exit {OWN_CODE} of {count} programs, got {ends}")
    return f"0 deaths of {count}"


if __name__ == "__main__":
    field.cell(main)
