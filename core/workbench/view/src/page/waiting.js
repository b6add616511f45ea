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
    h(Snippet, { title: "A Python or Node.js program, without a change:",
      text: "export OTEL_EXPORTER_OTLP_ENDPOINT=" + url + "\nspanprof run app.py\nnode --import spanprof/register app.mjs" }),
    h(Snippet, { title: "A Java program, without a change:", text: "java -javaagent:spanprof.jar=serviceName=my-service,endpoint=" + url + " -jar app.jar" }),
    h(Snippet, { title: "In Python:", text: 'import spanprof\nspanprof.start(service_name="my-service", endpoint="' + url + '")' }),
    h(Snippet, { title: "In Node.js:", text: "require('spanprof').start({ serviceName: 'my-service', endpoint: '" + url + "' })" }),
    h(Snippet, { title: "In Rust:", text: 'let config = spanprof::Config::builder().service_name("my-service").endpoint("' + url + '").load()?;\nlet profiler = spanprof::Profiler::start(config)?;' }),
    h(Snippet, { title: "Any other OTLP profiles exporter (http/protobuf; for grpc, http://" + stats.grpc + "):", text: "OTEL_EXPORTER_OTLP_ENDPOINT=" + url }),
    h("p", {}, "Profiles are kept in ", h("code", {}, stats.dir)));
}
