# docker build -f java-extension.Dockerfile -t registry.example/spanprof-java-extension:0.1.0 ../../../target/dist
# The JAR is an extension of OpenTelemetry's Java agent.
# For pods with Alpine, not tested: --build-arg BASE=eclipse-temurin:21-jre-alpine --build-arg JAR=spanprof-*-musl.jar
ARG BASE=eclipse-temurin:21-jre
FROM ${BASE} AS unpacked
ARG JAR=spanprof-*[0-9].jar
WORKDIR /extensions
COPY ${JAR} spanprof.jar
# The native library beside the JAR is loaded from there. Otherwise each start unpacks it into a temporary directory that must
# allow execution, which a pod with a read-only root does not have.
RUN java -cp spanprof.jar io.spanprof.Unpack . && chmod -R a+rX .

# The operator's init container copies the directory by the `cp` of this image.
FROM busybox:1.37
COPY --from=unpacked /extensions /extensions/
