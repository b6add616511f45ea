# docker build -f python.Dockerfile -t registry.example/spanprof-autoinstrumentation-python:0.1.0 CONTEXT
# The context is this directory's `python`, with the wheels of `cargo xtask dist` beside it.
FROM python:3.13-slim AS packages
COPY spanprof-*.whl /wheels/
# One wheel serves every Python from 3.9 on; pip chooses that of this image.
RUN pip install --no-cache-dir --no-deps --no-index --find-links /wheels --target /packages spanprof
RUN pip install --no-cache-dir --no-deps --no-index --find-links /wheels --target /packages-musl \
    --only-binary :all: --platform "musllinux_1_2_$(uname -m)" spanprof
COPY spanprof_autostart.py /packages/
COPY spanprof_autostart-0.1.0.dist-info /packages/spanprof_autostart-0.1.0.dist-info/
RUN cp -r /packages/spanprof_autostart* /packages-musl && chmod -R a+rX /packages /packages-musl

# The operator copies /autoinstrumentation into each pod, or /autoinstrumentation-musl with `otel-python-platform: musl`.
FROM ghcr.io/open-telemetry/opentelemetry-operator/autoinstrumentation-python:0.60b0
COPY --from=packages /packages /autoinstrumentation/
COPY --from=packages /packages-musl /autoinstrumentation-musl/
