//! The side-car of a profile file: a JSON object with the version that ran and the time of the window. Its values are
//! redacted before they reach this module. Pure.
//!
//! Commit and branch are here and not in the resource, whose attributes receivers store as series: each deployment would
//! begin new ones. They are not read by `git`: images have no repository, and a profiler starts no process.

use spanprof_profile::{Attribute, ResourceProfiles};

/// A member of the side-car.
struct Member {
    name: &'static str,
    /// Resource attributes with its value; the first one that is set counts. Redaction rules apply to the first name.
    attributes: &'static [&'static str],
    /// Variables of the environment, for a resource without these attributes; in images and platforms that set them.
    variables: &'static [&'static str],
}

/// Names of attributes: OpenTelemetry's semantic conventions 1.27 and later, then older and common ones. Variables: Docker
/// images and Jenkins, Datadog, Heroku, Render, Railway, Vercel, Cloud Run, GitLab, GitHub Actions.
const MEMBERS: [Member; 9] = [
    Member { name: "service.name", attributes: &["service.name"], variables: &[] },
    Member { name: "service.version", attributes: &["service.version"], variables: &[] },
    Member {
        name: "git.commit",
        attributes: &["vcs.ref.head.revision", "vcs.repository.ref.revision", "git.commit", "git.commit.sha"],
        variables: &[
            "GIT_COMMIT",
            "DD_GIT_COMMIT_SHA",
            "HEROKU_SLUG_COMMIT",
            "RENDER_GIT_COMMIT",
            "RAILWAY_GIT_COMMIT_SHA",
            "VERCEL_GIT_COMMIT_SHA",
            "CI_COMMIT_SHA",
            "GITHUB_SHA",
        ],
    },
    Member {
        name: "git.branch",
        attributes: &["vcs.ref.head.name", "vcs.repository.ref.name", "git.branch"],
        variables: &[
            "GIT_BRANCH",
            "DD_GIT_BRANCH",
            "RENDER_GIT_BRANCH",
            "RAILWAY_GIT_BRANCH",
            "VERCEL_GIT_COMMIT_REF",
            "CI_COMMIT_REF_NAME",
            "GITHUB_REF_NAME",
        ],
    },
    Member {
        name: "deployment.environment",
        attributes: &["deployment.environment.name", "deployment.environment"],
        variables: &[],
    },
    Member {
        name: "deployment.id",
        attributes: &["deployment.id"],
        variables: &["RAILWAY_DEPLOYMENT_ID", "VERCEL_DEPLOYMENT_ID", "HEROKU_RELEASE_VERSION", "K_REVISION"],
    },
    Member { name: "runtime.name", attributes: &["process.runtime.name"], variables: &[] },
    Member { name: "runtime.version", attributes: &["process.runtime.version"], variables: &[] },
    Member { name: "service.instance.id", attributes: &["service.instance.id"], variables: &[] },
];

/// The attributes that only variables of the environment have, under the names of the semantic conventions. They are not part
/// of the resource: receivers would store them as labels of every series.
pub(crate) fn deployment(variable: impl Fn(&str) -> Option<String>) -> Vec<Attribute> {
    let of_member = |member: &Member| {
        let value = member.variables.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))?;
        Some(Attribute::string(member.attributes[0], value.as_str()))
    };
    MEMBERS.iter().filter_map(of_member).collect()
}

/// The JSON text for the files of a window. A value that is not known is left out.
pub(crate) fn json(
    resources: &[ResourceProfiles],
    deployment: &[Attribute],
    start_unix_ns: u64,
    end_unix_ns: u64,
) -> Vec<u8> {
    let of_resource = resources.first().map_or(&[][..], |resource| &resource.resource);
    let value = |attributes: &[Attribute], key: &str| {
        attributes.iter().find(|attribute| attribute.key == key).map(|attribute| attribute.value.as_ref().to_string())
    };
    let mut members = Vec::with_capacity(MEMBERS.len() + 2);
    for Member { name, attributes, .. } in &MEMBERS {
        let own = attributes.iter().find_map(|key| value(of_resource, key));
        members.extend(own.or_else(|| value(deployment, attributes[0])).map(|text| (*name, text)));
    }
    members.push(("window.start", rfc3339(start_unix_ns)));
    members.push(("window.end", rfc3339(end_unix_ns)));
    let lines: Vec<_> =
        members.into_iter().map(|(name, text)| format!("  \"{name}\": {}", serde_json::Value::from(text))).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n")).into_bytes()
}

/// `2026-01-31T12:00:00.250Z` of unix nanoseconds, to the millisecond.
fn rfc3339(unix_ns: u64) -> String {
    let (seconds, millis) = (unix_ns / 1_000_000_000, unix_ns / 1_000_000 % 1000);
    // Gregorian calendar from days, with years that begin in March: http://howardhinnant.github.io/date_algorithms.html
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(attributes: &[(&str, &str)]) -> Vec<ResourceProfiles> {
        let resource = attributes.iter().map(|(key, value)| Attribute::string(*key, *value)).collect();
        vec![ResourceProfiles { resource, ..ResourceProfiles::default() }]
    }

    fn text(resources: &[ResourceProfiles], deployment: &[Attribute]) -> String {
        String::from_utf8(json(resources, deployment, 1_769_860_800_250_999_999, 1_769_860_815_000_000_000)).unwrap()
    }

    #[test]
    fn a_side_car_has_the_version_and_the_window() {
        let attributes = [
            ("service.name", "shop \"x\""),
            ("host.name", "node-1"),
            ("vcs.ref.head.revision", "4f2a"),
            ("deployment.environment", "old"),
            ("deployment.environment.name", "production"),
            ("process.runtime.version", "3.12.1"),
        ];
        let expected = "{\n  \"service.name\": \"shop \\\"x\\\"\",\n  \"git.commit\": \"4f2a\",\n  \
            \"deployment.environment\": \"production\",\n  \"runtime.version\": \"3.12.1\",\n  \
            \"window.start\": \"2026-01-31T12:00:00.250Z\",\n  \"window.end\": \"2026-01-31T12:00:15.000Z\"\n}\n";
        assert_eq!(text(&resource(&attributes), &[]), expected);
    }

    #[test]
    fn variables_fill_in_what_the_resource_lacks() {
        let variables =
            [("GIT_COMMIT", ""), ("GITHUB_SHA", "from-ci"), ("CI_COMMIT_SHA", "first"), ("K_REVISION", "shop-7")];
        let deployment = deployment(|name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        });
        let keys: Vec<_> = deployment.iter().map(|attribute| attribute.key.as_str()).collect();
        assert_eq!(keys, ["vcs.ref.head.revision", "deployment.id"]);
        let of_variables = text(&[], &deployment);
        assert!(of_variables.contains("\"git.commit\": \"first\"") && of_variables.contains("\"shop-7\""));
        let of_resource = text(&resource(&[("git.commit.sha", "own")]), &deployment);
        assert!(of_resource.contains("\"git.commit\": \"own\"") && !of_resource.contains("first"), "{of_resource}");
    }

    #[test]
    fn times_are_rfc_3339() {
        for (unix_s, date) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_735_689_599, "2024-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(rfc3339(unix_s * 1_000_000_000), format!("{date}.000Z"));
        }
    }
}
