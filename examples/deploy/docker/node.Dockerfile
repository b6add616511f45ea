# docker build -f node.Dockerfile -t checkout:1 ../../node-express
# The context is the directory of the program, with the package spanprof and that of the image's platform beside it:
# `cargo xtask addon`, with --target for another platform.
# Alpine: --build-arg BASE=node:24-alpine
ARG BASE=node:24-slim
FROM ${BASE}
WORKDIR /srv/app
COPY package.json spanprof-*.tgz ./
RUN npm install --omit=dev --no-audit --no-fund ./spanprof-*.tgz
COPY app.js shop.js ./
ENV OTEL_SERVICE_NAME=checkout \
    OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 \
    HOST=0.0.0.0
# A number: Kubernetes cannot see that a name is not root.
USER 65532:65532
EXPOSE 8000
# Not `npm start`, which does not pass SIGTERM on: the last window would be lost.
CMD ["node", "app.js"]
