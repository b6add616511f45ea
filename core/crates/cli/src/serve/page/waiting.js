/* What is shown before the first profile. */

function Snippet({ title, text }) {
  return h("div", {}, h("p", {}, title), h("pre", { tabIndex: 0 }, text),
    navigator.clipboard && h("button", { type: "button", class: "quiet", onClick: () => navigator.clipboard.writeText(text) }, "Copy"));
}

function Waiting() {
  const stats = responses.stats?.data || {};
  const url = "http://" + stats.http;
  const words = stats.indexing ? "Reading the profiles of earlier runs…" : "Waiting for the first profiles";
  return h("section", { id: "empty", class: "empty" }, h("h2", {}, words),
    h("p", {}, "This page updates as soon as a service sends."),
    h(Snippet, { title: "Any Python program, without a change:", text: "spanprof run --endpoint " + url + " app.py" }),
    h(Snippet, { title: "In a Python service:", text: 'import spanprof\nspanprof.start(service_name="my-service", endpoint="' + url + '")' }),
    h(Snippet, { title: "In a Node.js service:", text: "require('spanprof').start({\n  serviceName: 'my-service',\n  endpoint: '" + url + "',\n})" }),
    h(Snippet, { title: "In a Java service:", text: "java -javaagent:spanprof.jar=service_name=my-service,endpoint=" + url + " -jar app.jar" }),
    h(Snippet, { title: "In a Rust service:", text: 'let profiler = spanprof::Profiler::builder()\n    .service_name("my-service")\n    .endpoint("' + url + '")\n    .start()?;' }),
    h(Snippet, { title: "Or point any OTLP profiles exporter here (http/protobuf; for grpc, http://" + stats.grpc + "):", text: "OTEL_EXPORTER_OTLP_ENDPOINT=" + url }),
    h("p", {}, "Profiles are kept in ", h("code", {}, stats.dir)));
}
