"""The images of examples/deploy/operator in pods as the OpenTelemetry Operator makes them: its init containers copy the files of an image into a
volume, and variables of the pod load them into a program that knows neither OpenTelemetry nor spanprof.

    operator_images.py java|python|nodejs|nodejs-alpine

The layout and the variables are those of the operator at be8944414.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

import receiver
import yaml
from container import Container, copy_packages, end, expect, folder, loopback, row, send_reports, tail, wait_for_port
from dockerfile import BASE_PATH, Image
from seccomp_profiles import runtime_default

EXAMPLE = os.path.join(os.environ["DEPLOY_EXAMPLES"], "operator")
HERE = os.path.dirname(os.path.abspath(__file__))
MOUNT = {
    "python": "/otel-auto-instrumentation-python", "nodejs": "/otel-auto-instrumentation-nodejs",
    "java": "/otel-auto-instrumentation-java-checkout",
}
PACKAGE = {"python": "*x86_64.whl", "nodejs": "*.tgz", "java": "*[0-9].jar"}
WORK = {"python": "render_report", "nodejs": "renderReport", "java": "renderReport"}
#: What the official images have, from the package registries.
PYTHON_PACKAGES = ["opentelemetry-distro==0.60b0", "opentelemetry-exporter-otlp-proto-http", "opentelemetry-instrumentation-wsgi==0.60b0",
                   "opentelemetry-instrumentation-flask==0.60b0"]
NODE_PACKAGES = ["@opentelemetry/auto-instrumentations-node@0.67"]
AGENT = "2.15.0"


def official_python(image):
    for directory in ("/autoinstrumentation", "/autoinstrumentation-musl"):
        os.makedirs(f"{image.root}{directory}")
    image.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", "/autoinstrumentation", *PYTHON_PACKAGES])


def official_nodejs(image):
    os.makedirs(f"{image.root}/autoinstrumentation")
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", f"{image.root}/autoinstrumentation", *NODE_PACKAGES], check=True)
    with open(f"{image.root}/autoinstrumentation/autoinstrumentation.js", "w") as file:
        file.write("require('@opentelemetry/auto-instrumentations-node/register');\n")


OFFICIAL = {"autoinstrumentation-python": official_python, "autoinstrumentation-nodejs": official_nodejs}


def context_of(language):
    context = folder(f"operator-{language}/context")
    if language != "java":
        shutil.copytree(os.path.join(EXAMPLE, language), context, dirs_exist_ok=True)
    copy_packages(PACKAGE[language], context, without="arm64|aarch64" if language != "java" else "musl")
    return context


def instrumentation():
    with open(os.path.join(EXAMPLE, "instrumentation.yaml")) as file:
        return yaml.safe_load(file)["spec"]


def volume_of(language, image, spec):
    """What the init containers copy."""
    volume = folder(f"operator-{language}/volume")
    if language == "java":
        [extension] = spec["java"]["extensions"]
        words = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact=io.opentelemetry.javaagent:opentelemetry-javaagent:{AGENT}",
                 f"-DoutputDirectory={volume}", "-Dmdep.stripVersion=true"]
        subprocess.run(words, check=True, cwd=volume)
        os.rename(f"{volume}/opentelemetry-javaagent.jar", f"{volume}/javaagent.jar")
        subprocess.run(["cp", "-r", f"{image.root}{extension['dir']}/.", f"{volume}/extensions"], check=True)
    else:
        subprocess.run(["cp", "-r", f"{image.root}/autoinstrumentation/.", volume], check=True)
    return volume


def variables_of(language, spec):
    """What the operator adds to the variables of a container."""
    mount = MOUNT[language]
    of_language = {
        "python": {
            "PYTHONPATH": f"{mount}/opentelemetry/instrumentation/auto_instrumentation:{mount}", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
        },
        "nodejs": {"NODE_OPTIONS": f" --require {mount}/autoinstrumentation.js", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"},
        "java": {
            "JAVA_TOOL_OPTIONS": f" -javaagent:{mount}/javaagent.jar -Dotel.javaagent.extensions={mount}/extensions",
            "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
        },
    }[language]
    user = {it["name"]: it["value"] for it in spec[language].get("env", [])}
    return {
        **user, **of_language, "OTEL_SERVICE_NAME": "checkout", "OTEL_EXPORTER_OTLP_ENDPOINT": spec["exporter"]["endpoint"],
        "OTEL_RESOURCE_ATTRIBUTES": "k8s.container.name=checkout,k8s.namespace.name=shop,k8s.pod.name=checkout-5d8f-x1",
        "OTEL_PROPAGATORS": ",".join(spec["propagators"]), "OTEL_RESOURCE_ATTRIBUTES_POD_NAME": "checkout-5d8f-x1",
        "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME": "node-1",
    }


def program_of(language, directory="/srv", on_alpine=False):
    """An image with a program that knows neither OpenTelemetry nor spanprof, and its command."""
    root = folder(f"program-{language}")
    os.makedirs(root + directory)
    if language == "java":
        home = os.environ["DEPLOY_JAVA_HOME"]
        subprocess.run([f"{home}/bin/javac", "-d", root + directory, f"{HERE}/functions/Shop.java"], check=True)
        return root, [f"{home}/bin/java", "-cp", directory, "Shop"]
    if language == "nodejs":
        shutil.copy(f"{HERE}/functions/shop.js", root + directory)
        return root, ["/opt/node/bin/node" if on_alpine else os.environ["DEPLOY_NODE"], f"{directory}/shop.js"]
    shutil.copy(f"{HERE}/functions/shop.py", root + directory)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", root + directory, "flask==3.1.2"], check=True)
    return root, [os.path.realpath(sys.executable), f"{directory}/shop.py"]


def expect_libraries_of_both(image):
    """Fails unless each directory of the image has the library for its C library."""
    for directory, needed in (("autoinstrumentation", b"libc.so.6\0"), ("autoinstrumentation-musl", b"libc.so\0")):
        with open(f"{image.root}/{directory}/spanprof/_spanprof.abi3.so", "rb") as file:
            expect(needed in file.read(), f"the library in {directory} does not require {needed[:-1].decode()}")


def main(word):
    language, _, on_alpine = word.partition("-")
    spec = instrumentation()
    name = "java-extension" if language == "java" else language
    image = Image(f"operator-{language}", os.path.join(EXAMPLE, f"{name}.Dockerfile"), context_of(language), OFFICIAL)
    if language == "python":
        expect_libraries_of_both(image)
    volume = volume_of(language, image, spec)
    root, command = program_of(language, on_alpine=on_alpine)
    variables = variables_of(language, spec)
    host = variables["OTEL_EXPORTER_OTLP_ENDPOINT"].split("//")[1].split(":")[0]
    filter_of_containerd = runtime_default([])
    loopback()
    received = receiver.Receiver(folder(f"operator-{language}/received"))
    log = os.path.join(folder(f"operator-{language}/logs"), "log")
    # No /tmp: the root is read-only, and a pod need not have a volume there.
    container = Container(
        root, command, base=os.environ["DEPLOY_ALPINE"] if on_alpine else "/", env={"PATH": BASE_PATH, "SPANPROF_UPLOAD_INTERVAL": "1", **variables}, user=65532, group=65532, no_new_privileges=True, seccomp=filter_of_containerd,
        read_only=True, memory=512 << 20, hosts=[host], hostname="checkout-5d8f-x1", mounts=[(volume, MOUNT[language], True)],
    )
    process = container.start(log)
    try:
        wait_for_port(8000, process, log)
        send_reports(6)
        # The program does not handle SIGTERM, and the first process of a container ignores it then: no window is sent at its end.
        time.sleep(3)
    finally:
        code = end(process, signal.SIGKILL)
    work, in_spans = receiver.below(received.rows("cpu"), WORK[language]), receiver.in_spans(received.files())
    expect(work > 0, f"no CPU time in {WORK[language]}, ended with {code}\n{tail(log)}")
    expect(in_spans > 0.9 * work, f"{in_spans:.2f} of {work:.2f} s of the work have a span\n{tail(log)}")
    labels = ("--label", "k8s.pod.name=checkout-5d8f-x1", "--service", "checkout")
    expect(receiver.rows(received.files(), "cpu", *labels)[None] / 1e9 >= work, f"not all profiles have {labels}")
    return f"{work:.2f} s of CPU time in the work, {in_spans:.2f} s in spans of requests"


if __name__ == "__main__":
    row("operator", main)
