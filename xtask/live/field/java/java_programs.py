"""Java programs: output and exit are those without spanprof, and samples arrive.

    java_programs.py tomcat|debugger|old-agent|old-extension

`tomcat`: two applications are deployed and undeployed in one server. `debugger`: breakpoints, steps, and suspension of all
threads. `old-agent` and `old-extension`: an unsupported VM, Zero of Java 8, runs the program and writes one line.
"""

import os

import field

JAR = os.environ["FIELD_JAR"]
CLASSES = os.environ["FIELD_JAVA_PROGRAMS"]
LIBRARIES = os.path.join(os.environ["FIELD_JAVA_LIBRARIES"], "*")
JAVA = [os.environ["FIELD_JAVA"], "-XX:-CreateCoredumpOnCrash"]
#: Route of each application's requests.
ROUTES = ["/shop/early/*", "/news/early/*", "/news/late/*"]
#: The end of the log line of an unsupported VM.
DECLINED = "this process is not profiled"


def tomcat():
    profiles = field.folder()
    program = [*JAVA, "-cp", f"{CLASSES}:{LIBRARIES}", "TomcatServer", CLASSES, JAR]
    expected = field.run([*program, field.folder()])
    ours = field.run([*program, field.folder()], profiles)
    field.expect_same(ours, expected)
    field.expect("left its classes" not in ours.stdout, f"classes of an application stay\n{ours.stdout}")
    counts = dict.fromkeys(ROUTES, 0)
    for count, labels, stack in field.cpu_samples(profiles):
        if any("fieldWork" in frame for frame in stack):
            route = labels.get("http.route")
            field.expect(route in counts, f"{count} samples of fieldWork with the route {route}")
            counts[route] += count
    field.expect(min(counts.values()) >= 30 * field.SCALE, f"samples per route: {counts}, expected those of 0.3 s or more of 0.6 s each")
    after = counts["/news/late/*"]
    return f"class loaders of both went, {sum(counts.values())} samples with their routes, {after} after the first was stopped"


def debugger():
    ours, profiles = field.compared([*JAVA, "-cp", f"{JAR}:{CLASSES}", "Debugger"])
    stops, steps = ours.stdout.count("breakpoint "), ours.stdout.count("step ")
    field.expect((stops, steps) == (30, 90), f"{stops} breakpoints and {steps} steps, expected 30 and 90\n{ours.stdout}")
    count = field.expect_samples(profiles, 50)
    return f"{stops} breakpoints, {steps} steps and {stops} stops of all threads equal, {count} samples"


def old(beside, options):
    """An unsupported VM: the same output and exit, one line, and no profile. The arguments `beside` belong to both runs."""
    words = [os.environ["FIELD_OLD_JAVA"], "-zero", "-cp", CLASSES]
    environment = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    expected = field.run([*words, *beside, "DeclinedRun"], **environment)
    ours = field.run([*words, *beside, *options, "DeclinedRun"], **environment)
    field.expect_same(ours, expected)
    lines = [line for line in ours.stderr.splitlines() if "spanprof: " in line]
    field.expect(len(lines) == 1 and DECLINED in lines[0], f"expected one line `{DECLINED}`\n{ours.stderr}")
    return f"exit {ours.code}, one line: `{lines[0]}`"


PROGRAMS = {
    "tomcat": tomcat,
    "debugger": debugger,
    "old-agent": lambda: old([], [f"-javaagent:{JAR}=sampleRate=99"]),
    "old-extension": lambda: old([f"-javaagent:{field.opentelemetry_agent()}"], [f"-Dotel.javaagent.extensions={JAR}"]),
}


if __name__ == "__main__":
    field.cell(lambda kind: PROGRAMS[kind]())
