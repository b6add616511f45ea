# docker build -f nodejs.Dockerfile -t registry.example/spanprof-autoinstrumentation-nodejs:0.1.0 CONTEXT
# The context is this directory's `nodejs`, with the packages of `cargo xtask dist` beside it.
FROM node:24-slim AS packages
WORKDIR /packages
COPY spanprof-*.tgz ./
# --force: one image for pods with glibc and with musl, so the packages of all platforms.
RUN npm install --force --no-audit --no-fund ./spanprof-*.tgz && chmod -R a+rX node_modules

# The operator copies /autoinstrumentation into each pod and loads autoinstrumentation.js.
FROM ghcr.io/open-telemetry/opentelemetry-operator/autoinstrumentation-nodejs:0.67.0
RUN mv /autoinstrumentation/autoinstrumentation.js /autoinstrumentation/opentelemetry.js
COPY --from=packages /packages/node_modules /autoinstrumentation/node_modules/
COPY autoinstrumentation.js /autoinstrumentation/
RUN chmod 644 /autoinstrumentation/autoinstrumentation.js
