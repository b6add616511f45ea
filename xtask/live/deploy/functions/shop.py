"""A small shop without OpenTelemetry and spanprof in its code: `/report` renders a report, `/health` answers."""

import hashlib
import json

from flask import Flask, request

app = Flask(__name__)


def render_report(rows):
    digest = hashlib.sha256()
    for row in range(rows):
        digest.update(json.dumps({"row": row, "squares": [row * number for number in range(20)]}).encode())
    return digest.hexdigest()


@app.get("/report")
def report():
    return render_report(int(request.args["rows"]))


@app.get("/health")
def health():
    return "ok"


if __name__ == "__main__":
    app.run("0.0.0.0", 8000)
