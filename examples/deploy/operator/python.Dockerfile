# docker build -f python.Dockerfile -t registry.example/spanprof-autoinstrumentation-python:0.1.0 CONTEXT
# The context is this directory's `python`, with the wheel of `cargo xtask wheel` beside it.
FROM python:3.13-slim AS packages
COPY spanprof-*.whl /wheels/
# One wheel serves every Python from 3.9 on; pip chooses that of this image.
RUN pip install --no-cache-dir --no-deps --no-index --find-links /wheels --target /packages spanprof
COPY spanprof_autostart.py /packages/
COPY spanprof_autostart-0.1.0.dist-info /packages/spanprof_autostart-0.1.0.dist-info/
RUN chmod -R a+rX /packages

# The operator copies /autoinstrumentation into each pod. /autoinstrumentation-musl stays as it is: no profile on Alpine yet.
FROM ghcr.io/open-telemetry/opentelemetry-operator/autoinstrumentation-python:0.60b0
COPY --from=packages /packages /autoinstrumentation/
