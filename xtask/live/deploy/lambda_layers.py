"""The layers of examples/deploy/lambda under AWS's runtime clients: the layer is at /opt, the function at /var/task, the root is read-only, and
the process is stopped (SIGSTOP) from the end of an invocation until the next one.

    lambda_layers.py python|nodejs|java
"""

import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import receiver
import yaml
from container import Container, end, expect, folder, loopback, row, tail

EXAMPLE = os.path.join(os.environ["DEPLOY_EXAMPLES"], "lambda")
FUNCTIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "functions")
#: The user of functions.
SANDBOX = 993
INVOCATIONS, FROZEN = 4, 3.0
WORK, WAIT = 0.4, 0.3
#: What a flush to a receiver that does not answer adds at most, with the scheduling of a busy machine.
LONGEST_FLUSH, SLACK = 2.0, 1.0
#: The runtime's client of each language: where it is installed, and how AWS's bootstrap starts it.
BOOTSTRAP = {
    "python": 'PYTHONPATH=/var/task:/opt/python:/var/runtime exec $AWS_LAMBDA_EXEC_WRAPPER sh -c \'exec /var/lang/bin/python -m awslambdaric "$_HANDLER"\'',
    "nodejs": 'NODE_PATH=/opt/nodejs/node_modules:/var/runtime/node_modules exec $AWS_LAMBDA_EXEC_WRAPPER sh -c '
    '\'exec /var/lang/bin/node --require /var/runtime/rapid-client.cjs /var/runtime/node_modules/aws-lambda-ric/bin/index.mjs "$_HANDLER"\'',
    "java": 'exec $AWS_LAMBDA_EXEC_WRAPPER sh -c \'exec /var/lang/bin/java -cp "/var/runtime/lib/*:/opt/java/lib/*:/var/task:/var/task/lib/*" '
    'com.amazonaws.services.lambda.runtime.api.client.AWSLambda "$_HANDLER"\'',
}


class RuntimeApi:
    """Lambda's runtime API for one sandbox, which it freezes between invocations."""

    def __init__(self, timeout, sent):
        self.timeout, self.sent = timeout, sent
        self.orders, self.results, self.seconds, self.at_response = [], [], [], []
        self.sandbox, self.thaw, self.failure = None, threading.Event(), None
        self.invoked_at, self.stopped_at = None, None
        #: Seconds for which the sandbox was stopped until now.
        self.frozen = 0.0
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                # The runtime asks for the next invocation: the sandbox is frozen until there is one.
                number = len(api.results)
                if number:
                    os.killpg(api.sandbox.pid, signal.SIGSTOP)
                    api.stopped_at = time.monotonic()
                api.thaw.wait()
                api.thaw.clear()
                if number:
                    api.frozen += time.monotonic() - api.stopped_at
                os.killpg(api.sandbox.pid, signal.SIGCONT)
                event = json.dumps({"order": number, "work": WORK, "wait": WAIT}).encode()
                self.send_response(200)
                api.invoked_at = time.monotonic()
                deadline = int((time.time() + api.timeout) * 1000)
                for name, value in {
                    "Lambda-Runtime-Aws-Request-Id": f"request-{number}", "Lambda-Runtime-Deadline-Ms": str(deadline),
                    "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:eu-central-1:1:function:checkout",
                    "Content-Type": "application/json", "Content-Length": str(len(event)),
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(event)

            def do_POST(self):
                body = receiver.body_of(self)
                self.send_response(202)
                self.send_header("Content-Length", "0")
                if self.path.endswith("/response"):
                    api.seconds.append(time.monotonic() - api.invoked_at)
                    api.at_response.append(api.sent())
                    api.results.append(json.loads(body))
                else:
                    api.failure = f"{self.path}: {body.decode()}"
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 9001), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def invoke(self, log, within):
        """One invocation; returns when its response is there."""
        number, until = len(self.results), time.monotonic() + within
        self.thaw.set()
        while len(self.results) == number:
            expect(self.failure is None, f"the function failed: {self.failure}\n{tail(log)}")
            expect(self.sandbox.poll() is None, f"the runtime ended with {self.sandbox.poll()}\n{tail(log)}")
            expect(time.monotonic() < until, f"no response within {within} s\n{tail(log)}")
            time.sleep(0.02)
        return self.results[-1]


def function_of(language):
    """The properties of the function in the template."""
    with open(os.path.join(EXAMPLE, "template.yaml")) as file:
        resources = yaml.safe_load(file)["Resources"]
    [properties] = [it["Properties"] for it in resources.values() if it["Type"] == "AWS::Serverless::Function"]
    handlers = {"java": "shop.Checkout::handleRequest"}
    return {**properties, "Handler": handlers.get(language, properties["Handler"])}


def image_of(language):
    """The runtime of a language, its layer as layer.sh makes it, and the function."""
    image = folder(f"lambda-{language}/image")
    for path in ("opt", "var/task", "var/runtime", "var/lang/bin"):
        os.makedirs(os.path.join(image, path))
    subprocess.run([os.path.join(EXAMPLE, "layer.sh"), language, os.environ["DEPLOY_PACKAGES"], f"{image}/opt"], check=True)
    # Overlayfs would show what this machine has at the path too.
    os.setxattr(f"{image}/opt", "trusted.overlay.opaque", b"y")
    size = sum(os.path.getsize(path) for path in glob.glob(f"{image}/opt/**", recursive=True) if os.path.isfile(path))
    expect(size < 250_000_000, f"the layer has {size} bytes, more than a function may have")
    RUNTIMES[language](image)
    return image, size


def python_runtime(image):
    # Users have no access to a Python of root's directory, as pyenv's.
    os.symlink("/usr/bin/python3", f"{image}/var/lang/bin/python")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{image}/var/runtime", "awslambdaric==4.2.2"], check=True)
    subprocess.run(["cp", f"{FUNCTIONS}/app.py", f"{image}/var/task/app.py"], check=True)


def nodejs_runtime(image):
    os.symlink(os.environ["DEPLOY_NODE"], f"{image}/var/lang/bin/node")
    words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", f"{image}/var/runtime", "aws-lambda-ric@3.3.0"]
    subprocess.run(words, check=True)
    # The package compiles its native client in a script. Here, Node.js itself asks for invocations, and curl posts the results.
    os.mknod(f"{image}/var/runtime/node_modules/aws-lambda-ric/dist/rapid-client.node", 0o644)
    subprocess.run(["cp", f"{FUNCTIONS}/rapid-client.cjs", f"{image}/var/runtime"], check=True)
    subprocess.run(["cp", f"{FUNCTIONS}/app.js", f"{image}/var/task/app.js"], check=True)


def java_runtime(image):
    home = os.environ["DEPLOY_JAVA_HOME"]
    os.symlink(f"{home}/bin/java", f"{image}/var/lang/bin/java")
    with open(f"{image}/../pom.xml", "w") as file:
        file.write('<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>live</groupId>'
                   "<artifactId>lambda</artifactId><version>1</version><dependencies><dependency><groupId>com.amazonaws</groupId><artifactId>"
                   "aws-lambda-java-runtime-interface-client</artifactId><version>2.10.1</version></dependency></dependencies></project>")
    words = ["mvn", "--quiet", "--batch-mode", "-f", f"{image}/../pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={image}/var/runtime/lib"]
    subprocess.run(words, check=True)
    words = [f"{home}/bin/javac", "-cp", f"{image}/var/runtime/lib/*", "-d", f"{image}/var/task", f"{FUNCTIONS}/Checkout.java"]
    subprocess.run(words, check=True)


RUNTIMES = {"python": python_runtime, "nodejs": nodejs_runtime, "java": java_runtime}


def environment(language, function, more):
    names = {"python": "python3.13", "nodejs": "nodejs22.x", "java": "java21"}
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/bin", "LANG": "en_US.UTF-8", "TZ": ":UTC", "_HANDLER": function["Handler"],
        "LAMBDA_TASK_ROOT": "/var/task", "LAMBDA_RUNTIME_DIR": "/var/runtime", "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9001",
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{names[language]}", "AWS_REGION": "eu-central-1",
        "AWS_LAMBDA_FUNCTION_NAME": function["FunctionName"], "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function["MemorySize"]), "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function['FunctionName']}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "2026/01/01/[$LATEST]0a1b2c3d", "AWS_LAMBDA_NODEJS_USE_ALTERNATIVE_CLIENT_1": "true",
        **{name: str(value) for name, value in function["Environment"]["Variables"].items()}, **more,
    }


def sandbox(language, image, function, **more):
    variables = environment(language, function, more)
    host = variables["OTEL_EXPORTER_OTLP_ENDPOINT"].split("//")[1].split(":")[0]
    return Container(
        image, ["sh", "-c", BOOTSTRAP[language]], env=variables, cwd="/var/task", user=SANDBOX, group=SANDBOX, read_only=True, shm=0,
        memory=function["MemorySize"] << 20, tmpfs={"/tmp": "size=512m,mode=1777"}, hosts=[host], hostname="sandbox",
    )


def main(language):
    function = function_of(language)
    image, size = image_of(language)
    loopback()
    received = receiver.Receiver(folder(f"lambda-{language}/received"))
    api = RuntimeApi(function["Timeout"], lambda: len(received.files()))
    log = os.path.join(folder(f"lambda-{language}/logs"), "log")
    api.sandbox = sandbox(language, image, function, SPANPROF_WALL="true", SPANPROF_THREAD_LABELS="true").start(log)
    try:
        for order in range(INVOCATIONS):
            result = api.invoke(log, function["Timeout"] + 20)
            expect(result["order"] == order and result["request"] == f"request-{order}", f"responded {result} to {order}")
            time.sleep(FROZEN)
        seconds = check_profiles(received, api)
        received.answers = False
        api.invoke(log, function["Timeout"] + 20)
    finally:
        end(api.sandbox, signal.SIGKILL)
    delayed = api.seconds[-1] - WORK - WAIT
    expect(delayed < LONGEST_FLUSH + SLACK, f"a receiver that does not answer delayed the response by {delayed:.1f} s")
    flush = min(api.seconds[1:INVOCATIONS]) - WORK - WAIT
    return f"layer of {size / 1e6:.1f} MB, {seconds}, a flush of {flush * 1000:.0f} ms, {delayed:.1f} s without an answer"


def check_profiles(received, api):
    """Each invocation's profile was there before its response, CPU time is right, and no wall-clock time is that of the freeze."""
    used = 0.0
    for result, count in zip(api.results, api.at_response):
        used += result["used"]
        found = receiver.below(receiver.rows(received.files()[:count], "cpu"), "lambda_work")
        expect(abs(found - used) < 0.15 * used + 0.05, f"{found:.2f} s of CPU time before response {result['order']}, used {used:.2f} s")
    wall = receiver.rows(received.files(), "wall")
    active = sum(api.seconds[:INVOCATIONS])
    waited = receiver.below(wall, "lambda_work")
    expect(0.7 * used < waited < active, f"{waited:.2f} s of wall-clock time in lambda_work, {used:.2f} s of CPU time, {active:.2f} s active")
    charged, elapsed = charged_time(received, api), api.results[-1]["clock"] - api.results[0]["clock"]
    text = f"{charged:.2f} s of wall-clock time of the thread between the first and the last flush, in which the process ran for {elapsed - api.frozen:.2f} s"
    # At most the interval of an idle process is charged of each freeze.
    expect(abs(charged - (elapsed - api.frozen)) < 0.05 * elapsed, f"{text}, frozen for {api.frozen:.1f} s")
    for name, value in (("faas.name", "checkout"), ("faas.version", "$LATEST"), ("cloud.region", "eu-central-1")):
        labeled = receiver.rows(received.files(), "cpu", "--label", f"{name}={value}")
        expect(labeled[None] > 0, f"no profile has {name}={value}")
    services = receiver.rows(received.files(), "cpu", "--service", "checkout")
    expect(services[None] > 0, "no profile is of the service `checkout`")
    return f"{used:.1f} s of CPU time in {INVOCATIONS} invocations, {text} and was frozen for {api.frozen:.1f} s"


def charged_time(received, api):
    """Wall-clock time in the profiles of the thread that serves the invocations, from the first flush to the last one."""
    thread = ("--label", f"thread.id={api.results[0]['thread']}")
    first, last = (receiver.rows(received.files()[:count], "wall", *thread)[None] for count in (api.at_response[0], api.at_response[-1]))
    return (last - first) / 1e9


if __name__ == "__main__":
    row("lambda", main)
