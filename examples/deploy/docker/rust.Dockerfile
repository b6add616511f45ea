# docker build -f rust.Dockerfile -t checkout:1 --build-context spanprof=../../.. ../../rust-axum
# The context is the directory of the program, the second one a clone of spanprof, on which the program depends by `path = "../../core"`.
#
# Alpine: --build-arg BUILD=rust:1-alpine --build-arg BASE=alpine:3.23
ARG BUILD=rust:1-slim-bookworm
ARG BASE=debian:bookworm-slim
FROM ${BUILD} AS build
# Alpine's image has no C compiler, which a dependency needs.
RUN if command -v apk; then apk add --no-cache build-base; fi
WORKDIR /src
COPY --from=spanprof Cargo.toml ./
COPY --from=spanprof core core
WORKDIR /src/examples/checkout
COPY Cargo.* ./
COPY src src
# Names and lines need the debug information that `debug = "line-tables-only"` in Cargo.toml keeps.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/examples/checkout/target \
    cargo build --release && cp target/release/checkout /usr/local/bin/checkout

FROM ${BASE}
# With its debug information, no `strip`: 59 MB instead of 10 MB, which are not loaded with the program. The profiler reads the parts of them
# that a new address needs.
COPY --from=build /usr/local/bin/checkout /usr/local/bin/checkout
ENV OTEL_SERVICE_NAME=checkout \
    OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 \
    HOST=0.0.0.0
# A number: Kubernetes cannot see that a name is not root.
USER 65532:65532
EXPOSE 8000
CMD ["checkout"]
