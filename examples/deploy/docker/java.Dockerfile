# docker build -f java.Dockerfile -t checkout:1 PROGRAM
# The context is the directory of the program, with the JAR of `cargo xtask jar` beside it. The program needs no change.
# A JAR without the library of the image's platform reports that in one line, and the program runs.
# Alpine, not tested: --build-arg BASE=eclipse-temurin:21-jre-alpine --build-arg JAR=spanprof-*-musl.jar
ARG BASE=eclipse-temurin:21-jre
FROM ${BASE}
ARG JAR=spanprof-*[0-9].jar
WORKDIR /srv/app
COPY ${JAR} spanprof.jar
# The native library beside the JAR is loaded from there. Otherwise each start unpacks it into a temporary directory that must
# allow execution: neither /dev/shm nor `--tmpfs /tmp` of Docker does.
RUN java -cp spanprof.jar io.spanprof.Unpack .
COPY app.jar ./
ENV JAVA_TOOL_OPTIONS=-javaagent:/srv/app/spanprof.jar \
    OTEL_SERVICE_NAME=checkout \
    OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318
# A number: Kubernetes cannot see that a name is not root.
USER 65532:65532
EXPOSE 8000
# MaxRAMPercentage leaves a part of the memory limit to what is not the Java heap; spanprof uses up to 24 MB of that.
CMD ["java", "-XX:MaxRAMPercentage=60", "-jar", "app.jar"]
