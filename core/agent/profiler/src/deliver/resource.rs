//! The OTLP resource of the profiles: at most 20 attributes, from the configuration, the resource of the program's OpenTelemetry
//! SDK, the runtime and the system. Built at each start, in each forked child, and when the SDK's resource becomes known.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::deliver::sidecar;
use crate::host_log::{log, LogLevel};
use spanprof_aggregate::{Resource, ResourceAttribute, MAX_RESOURCE_ATTRIBUTES};
use spanprof_config::Config;
use spanprof_profile::redact::ProfileRedactor;
use spanprof_profile::Attribute;

/// Attributes of the SDK's resource. A forked child inherits them, as it does the SDK.
static ADOPTED: ArcSwapOption<Vec<(String, String)>> = ArcSwapOption::const_empty();

/// Attributes beyond the limit that were reported.
static REPORTED_DROPPED: AtomicU64 = AtomicU64::new(0);

/// Whether an attribute of the SDK's resource is that of the profiles too. Of the process, the system and the SDK the profiler has
/// its own.
fn is_adopted(key: &str) -> bool {
    let is_own = ["telemetry.", "process.", "os.", "host."].iter().any(|prefix| key.starts_with(prefix));
    !is_own || matches!(key, "host.name" | "host.id")
}

/// Adopts the SDK's resource at the next [`SystemProperties::resource`]; false if it is known already. See
/// [`crate::binding::adopt_resource`].
pub(crate) fn adopt(attributes: Vec<(String, String)>) -> bool {
    let is_default = |key: &str, value: &str| key == "service.name" && value.starts_with("unknown_service");
    let adopted = attributes.into_iter().filter(|(key, value)| is_adopted(key) && !is_default(key, value));
    let mut adopted: Vec<_> = adopted.collect();
    adopted.sort();
    let is_new = ADOPTED.load().as_deref() != Some(&adopted);
    if is_new {
        ADOPTED.store(Some(Arc::new(adopted)));
    }
    is_new
}

/// Whether differences were reported.
static HAS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Reports where explicit settings differ from the SDK's resource, in one line per process. Both are redacted.
fn report_differences(resource: &Resource, of_sdk: &[Attribute]) {
    let differs = |attribute: &&Attribute| {
        resource.text(&attribute.key).is_some_and(|text| text != attribute.value.as_ref().to_string())
    };
    let words = |it: &Attribute| {
        format!("{}='{}' ('{}')", it.key, resource.text(&it.key).unwrap_or_default(), it.value.as_ref())
    };
    let differences: Vec<_> = of_sdk.iter().filter(differs).map(words).collect();
    if !differences.is_empty() && !HAS_REPORTED.swap(true, Ordering::Relaxed) {
        log(
            LogLevel::Warning,
            &format!(
                "spanprof: as configured, the profiles have {}, unlike the OpenTelemetry SDK's resource (in brackets): traces and \
                 profiles of this process have different identities; remove the setting of spanprof to use the SDK's",
                differences.join(", ")
            ),
        );
    }
}

/// Properties of the process and the system; an argument, so that tests can set them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemProperties {
    pub process_id: u32,
    pub program: String,
    pub host_name: String,
    pub container_id: Option<String>,
    pub instance_id: String,
    /// Commit, branch and deployment in the variables of the environment.
    pub deployment: Vec<Attribute>,
}

impl SystemProperties {
    /// The properties of this process, with a new instance id.
    pub fn gather() -> Self {
        let program = std::env::current_exe().ok();
        let program = program.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let host_name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            process_id: std::process::id(),
            program: program.unwrap_or_default(),
            host_name: host_name.trim().to_owned(),
            container_id: ["/proc/self/cgroup", "/proc/self/mountinfo"]
                .iter()
                .find_map(|path| container_id(&std::fs::read_to_string(path).ok()?)),
            instance_id: spanprof_os::random::uuid(),
            deployment: sidecar::deployment(|name| std::env::var(name).ok()),
        }
    }
}

/// The container id in the paths of a container's cgroup or mounts: 64 hex digits.
fn container_id(text: &str) -> Option<String> {
    let is_of_container = |line: &&str| {
        let words = ["docker", "containers", "containerd", "crio", "libpod", "kubepods", "lxc", "garden"];
        words.iter().any(|word| line.contains(word))
    };
    text.lines()
        .filter(is_of_container)
        .find_map(|line| line.split(|c: char| !c.is_ascii_hexdigit()).find(|word| word.len() == 64).map(str::to_owned))
}

impl SystemProperties {
    /// The resource of this process, redacted: the attributes as they were detected leave this function nowhere.
    pub fn resource(
        &self,
        config: &Config,
        runtime: Vec<(String, String)>,
        redactor: &mut ProfileRedactor,
    ) -> Resource {
        let adopted = ADOPTED.load_full().unwrap_or_default();
        let mut resource = self.unredacted(config, &adopted, runtime);
        if resource.dropped > REPORTED_DROPPED.fetch_max(resource.dropped, Ordering::Relaxed) {
            let dropped = resource.dropped;
            log(
                LogLevel::Warning,
                &format!(
                    "spanprof: {dropped} resource attributes are left out of the profiles, which have at most {MAX_RESOURCE_ATTRIBUTES}: \
                     receivers refuse series with more labels; set fewer, or name the important ones in resource_attributes"
                ),
            );
        }
        let attributes = resource.attributes.iter().map(Into::into).collect();
        let text = |attribute: Attribute| ResourceAttribute {
            value: attribute.value.as_ref().to_string(),
            key: attribute.key,
        };
        resource.attributes = redactor.resource(attributes).into_iter().map(text).collect();
        let of_sdk = adopted.iter().map(|(key, value)| Attribute::string(key.as_str(), value.as_str())).collect();
        report_differences(&resource, &redactor.resource(of_sdk));
        resource.deployment = redactor.resource(self.deployment.clone());
        let name = resource.attributes.iter().find(|attribute| attribute.key == "service.name");
        resource.service_name = name.map(|name| name.value.clone()).unwrap_or_default();
        resource
    }

    /// Attributes of the user come first, so the limit drops detected ones only.
    fn unredacted(&self, config: &Config, adopted: &[(String, String)], runtime: Vec<(String, String)>) -> Resource {
        let of_sdk = |key: &str| adopted.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        let from_runtime = |key: &str| runtime.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        // Bindings set the program's name, which has no source.
        let (configured, of_program) = if config.sources.contains_key("service_name") {
            (Some(config.service_name.clone()), None)
        } else {
            (None, Some(config.service_name.clone()))
        };
        let service_name = [
            configured,
            config.resource_attributes.get("service.name").cloned(),
            of_sdk("service.name"),
            of_program,
            from_runtime("service.name"),
            Some(self.program.clone()),
        ]
        .into_iter()
        .flatten()
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown_service".to_owned());

        let mut resource = Resource { service_name: service_name.clone(), ..Resource::default() };
        resource.add("service.name", &service_name);
        for (key, value) in &config.resource_attributes {
            resource.add(key, value);
        }
        for (key, value) in adopted {
            resource.add(key, value);
        }
        resource.add("service.instance.id", &self.instance_id);
        resource.add("process.pid", &self.process_id.to_string());
        for (key, value) in &runtime {
            resource.add(key, value);
        }
        resource.add("telemetry.sdk.name", "spanprof");
        resource.add("telemetry.sdk.version", env!("CARGO_PKG_VERSION"));
        resource.add("host.name", &self.host_name);
        if let Some(container_id) = &self.container_id {
            resource.add("container.id", container_id);
        }
        resource.add("process.executable.name", &self.program);
        resource
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::AttributeValue;

    fn system() -> SystemProperties {
        SystemProperties {
            process_id: 42,
            program: "shop".to_owned(),
            host_name: "node-1".to_owned(),
            container_id: None,
            instance_id: "instance".to_owned(),
            deployment: vec![Attribute::string("vcs.ref.head.name", "https://bot:marker@git/shop")],
        }
    }

    fn resource_of(config: &Config, runtime: Vec<(String, String)>) -> Resource {
        system().resource(config, runtime, &mut ProfileRedactor::new(config.redaction_settings(&[])))
    }

    #[test]
    fn a_service_without_a_name_has_the_name_of_its_program() {
        let resource = resource_of(&Config::default(), Vec::new());
        assert_eq!(resource.service_name, "shop");
        let runtime = vec![("service.name".to_owned(), "shop.main".to_owned())];
        assert_eq!(resource_of(&Config::default(), runtime).service_name, "shop.main");
        let config = Config { service_name: "checkout".to_owned(), ..Config::default() };
        assert_eq!(resource_of(&config, Vec::new()).text("service.name"), Some("checkout"));
    }

    #[test]
    fn the_resource_of_the_sdk_is_that_of_the_profiles_unless_it_is_configured() {
        let adopted = [("service.instance.id", "of-sdk"), ("service.name", "cart"), ("service.version", "2")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let resource = system().unredacted(&Config::default(), &adopted, Vec::new());
        for (key, value) in &adopted {
            assert_eq!(resource.text(key), Some(value.as_str()));
        }
        assert_eq!(resource.service_name, "cart");
        let mut config = Config { service_name: "shop".to_owned(), ..Config::default() };
        assert_eq!(
            system().unredacted(&config, &adopted, Vec::new()).text("service.name"),
            Some("cart"),
            "the program"
        );
        config.sources.insert("service_name", spanprof_config::ConfigSource::Code);
        assert_eq!(system().unredacted(&config, &adopted, Vec::new()).text("service.name"), Some("shop"));
        assert!(is_adopted("k8s.pod.name") && is_adopted("host.name"));
        assert!(!is_adopted("telemetry.sdk.name") && !is_adopted("process.command_args"));
    }

    #[test]
    fn attributes_of_the_user_are_kept_and_detected_ones_fill_up_to_the_limit() {
        let attributes = (0..19).map(|n| (format!("deployment.key{n:02}"), "v".to_owned())).collect();
        let config = Config { resource_attributes: attributes, ..Config::default() };
        let resource = resource_of(&config, Vec::new());
        assert_eq!(resource.attributes.len(), MAX_RESOURCE_ATTRIBUTES);
        assert_eq!(resource.text("deployment.key18"), Some("v"));
        assert_eq!(resource.dropped, 6);
    }

    #[test]
    fn the_deployment_of_the_environment_is_redacted_and_no_attribute() {
        let resource = resource_of(&Config::default(), Vec::new());
        assert_eq!(resource.text("vcs.ref.head.name"), None);
        assert_eq!(resource.deployment.len(), 1);
        assert!(!format!("{:?}", resource.deployment).contains("marker"), "{:?}", resource.deployment);
        let rules = spanprof_config::RedactionRules::parse("[{where: resource, key: ^vcs, action: drop}]").unwrap();
        let config = Config { redaction_rules: rules, ..Config::default() };
        assert_eq!(resource_of(&config, Vec::new()).deployment, []);
    }

    #[test]
    fn an_attribute_of_the_user_replaces_the_detected_one() {
        let attributes = [("host.name".to_owned(), "mine".to_owned())].into_iter().collect();
        let config = Config { resource_attributes: attributes, ..Config::default() };
        assert_eq!(resource_of(&config, Vec::new()).text("host.name"), Some("mine"));
    }

    #[test]
    fn the_container_id_is_read_from_the_cgroup_path() {
        let id = "3f4c9a1b".repeat(8);
        assert_eq!(container_id(&format!("0::/system.slice/docker-{id}.scope\n")), Some(id.clone()));
        assert_eq!(container_id(&format!("0::/kubepods/burstable/pod1/{id}\n")), Some(id.clone()));
        assert_eq!(container_id(&format!("0::/user.slice/{id}\n")), None);
        assert_eq!(container_id("0::/\n"), None);
    }

    #[test]
    fn every_attribute_of_the_resource_is_a_string_on_the_wire() {
        use crate::conformance::{ScriptedEngine, ScriptedSample};
        let mut engine = ScriptedEngine::new(&Config::default(), &Default::default());
        engine.sample(&ScriptedSample {
            kind: spanprof_signal::SampleKind::Cpu,
            thread_id: 1,
            time_ns: 10_000_000,
            values: [10_000_000, 0],
            context: 0,
            stack: "main",
            first_of_thread: false,
            truncated: false,
        });
        let data = engine.close(10_000_000_000).unwrap();
        let resource = &data.resources[0].resource;
        let pid = resource.iter().find(|attribute| attribute.key == "process.pid").unwrap();
        assert_eq!(pid, &Attribute::string("process.pid", "42"));
        let is_text = |value: &AttributeValue| matches!(value, AttributeValue::String(_));
        assert!(resource.iter().all(|attribute| is_text(&attribute.value)), "{resource:?}");
    }

    #[test]
    fn two_starts_have_two_instance_ids() {
        assert_ne!(SystemProperties::gather().instance_id, SystemProperties::gather().instance_id);
    }
}
