# docker build -f node.Dockerfile -t checkout:1 ../../node-express
# The context is the directory of the program, with the packages of `cargo xtask addon` beside it.
#
# Checked on x86-64 with glibc. For Alpine, copy the package of `cargo xtask addon --target x86_64-unknown-linux-musl` instead.
FROM node:24-slim
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
