"""A Celery application. spanprof starts in the main process or in each worker, selected by `FIELD_START`."""

import os

import profiled
from celery import Celery, signals

where = os.environ["FIELD_START"]
data = os.environ["FIELD_BROKER"]
app = Celery("field", broker="filesystem://", backend=f"file://{data}/results")
app.conf.broker_transport_options = {
    "data_folder_in": f"{data}/queue",
    "data_folder_out": f"{data}/queue",
    "control_folder": f"{data}/control",
}
app.conf.worker_prefetch_multiplier = 1

if where == "main":
    profiled.start()


@signals.worker_process_init.connect
def begin(**_):
    if where == "worker_process_init":
        profiled.start()


@app.task
def total(numbers):
    profiled.field_work(0.05)
    return sum(numbers), os.getpid()
