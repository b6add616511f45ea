# docker build -f python.Dockerfile -t checkout:1 ../../python-fastapi
# The context is the directory of the program, with the wheel of `cargo xtask wheel` beside it, or all those of `cargo xtask dist`.
# Alpine: --build-arg BASE=python:3.13-alpine
ARG BASE=python:3.13-slim
FROM ${BASE}
WORKDIR /srv/app
COPY requirements.txt spanprof-*.whl ./
# pip chooses the wheel of this image's processor and C library.
RUN pip install --no-cache-dir -r requirements.txt && pip install --no-cache-dir --no-index --find-links . spanprof
COPY app.py ./
ENV OTEL_SERVICE_NAME=checkout \
    OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318
# A number: Kubernetes cannot see that a name is not root.
USER 65532:65532
EXPOSE 8000
# One process, which receives SIGTERM itself and then sends its last window. `sh -c` would not pass the signal on.
CMD ["uvicorn", "app:app", "--host", "0.0.0.0", "--port", "8000"]
