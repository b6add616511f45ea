//! What Maven Central requires of a POM. Called by the step `packages`.

use roxmltree::{Document, Node};

/// Elements that need a text: <https://central.sonatype.org/publish/requirements/>.
const REQUIRED: [&str; 11] = [
    "groupId",
    "artifactId",
    "version",
    "name",
    "description",
    "url",
    "licenses/license/name",
    "licenses/license/url",
    "developers/developer/name",
    "scm/connection",
    "scm/url",
];

/// The required elements that are absent or empty.
pub fn missing(pom: &str) -> Result<Vec<&'static str>, String> {
    let document = Document::parse(pom).map_err(|error| format!("not XML: {error}"))?;
    let project = document.root_element();
    Ok(REQUIRED.into_iter().filter(|path| text(project, path).is_none_or(|text| text.trim().is_empty())).collect())
}

fn text<'a>(project: Node<'a, 'a>, path: &str) -> Option<&'a str> {
    let mut element = project;
    for name in path.split('/') {
        element = element.children().find(|child| child.tag_name().name() == name)?;
    }
    element.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{scratch, workspace};

    #[test]
    fn absent_and_empty_elements_are_named() {
        let pom = "<project><groupId>g</groupId><artifactId>a</artifactId><version>1</version><name>n</name>
            <description> </description><url>u</url><licenses><license><name>l</name><url>u</url></license></licenses>
            <scm><connection>c</connection></scm></project>";
        assert_eq!(missing(pom).unwrap(), ["description", "developers/developer/name", "scm/url"]);
        assert!(missing("<project>").is_err());
    }

    #[test]
    fn the_pom_of_this_repository_has_every_element() {
        let pom = scratch::read(&workspace::root().join("bindings-java/pom.xml")).unwrap();
        assert_eq!(missing(&pom).unwrap(), [""; 0]);
    }
}
