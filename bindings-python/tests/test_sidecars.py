"""Side-cars of profile files: the JSON beside each file, with the version that ran and the time of its window."""

from __future__ import annotations

import json
import platform


def test_a_side_car_has_the_version_of_the_service_its_commit_the_version_of_python_and_the_window(run_target):
    target = run_target(
        """
        import time

        import spanprof

        spanprof.start(service_name="shop", resource_attributes={"service.version": "1.3.0"}, upload_interval=3600)
        while time.thread_time() < 0.5:
            pass
        assert spanprof.stop() is True
        """,
        GIT_COMMIT="4f2a9c0d5e1b",
    )
    sidecars = [json.loads(path.read_text()) for path in target.directory.glob("*.json")]
    assert sidecars, list(target.directory.iterdir())
    for sidecar in sidecars:
        start, end, instance = (sidecar.pop(name) for name in ("window.start", "window.end", "service.instance.id"))
        assert start < end
        assert instance
        assert sidecar == {
            "service.name": "shop",
            "service.version": "1.3.0",
            "git.commit": "4f2a9c0d5e1b",
            "runtime.name": "cpython",
            "runtime.version": platform.python_version(),
        }
