"""Children of Celery's process pool that exit after a task: each has its own exit code, and the profiles contain the tasks.

    celery_children.py COUNT
"""

import os
import sys

import field


def main(count):
    ours, profiles = field.compared([sys.executable, os.path.join(field.HERE, "queues/billiard_children.py"), count], 590)
    samples = field.expect_samples(profiles, int(count) // 2)
    return f"{count} children ended by their own exit code, {samples} samples of their tasks"


if __name__ == "__main__":
    field.cell(main)
