//! Parses a verb's command line against its table of flags, prints its help, and suggests the nearest name for an unknown
//! flag or verb. Called by `run` for every verb; independent of the verbs.

use crate::failure::Failure;

/// One flag of a verb.
#[derive(Debug)]
pub(crate) struct Flag {
    /// `--service`.
    pub long: &'static str,
    /// `-o`, or "".
    pub short: &'static str,
    /// Name of the value in the help; "" for a switch.
    pub value: &'static str,
    pub help: &'static str,
    /// Repetitions add values; otherwise a second value is an error.
    pub repeats: bool,
}

impl Flag {
    pub(crate) const fn switch(long: &'static str, help: &'static str) -> Flag {
        Flag { long, short: "", value: "", help, repeats: false }
    }

    pub(crate) const fn value(long: &'static str, value: &'static str, help: &'static str) -> Flag {
        Flag { long, short: "", value, help, repeats: false }
    }
}

/// One verb: its name, help, flags and function.
#[derive(Debug)]
pub(crate) struct CliVerb {
    pub name: &'static str,
    /// One line, for the list of verbs.
    pub summary: &'static str,
    /// Rest of the usage line after the name, e.g. `FILE|DIR|URL [FLAGS]`.
    pub usage: &'static str,
    /// Paragraphs printed between usage and flags.
    pub about: &'static str,
    pub flags: &'static [&'static [Flag]],
    pub examples: &'static [&'static str],
    /// Positional arguments allowed.
    pub positionals: std::ops::RangeInclusive<usize>,
    pub run: fn(&Parsed) -> Result<i32, Failure>,
}

impl CliVerb {
    fn flags(&self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.flags.iter().flat_map(|group| group.iter())
    }

    /// The text of `spanprof VERB --help`.
    pub(crate) fn help(&self) -> String {
        let mut text = format!("{}\n\nUsage: spanprof {} {}\n", self.summary, self.name, self.usage);
        if !self.about.is_empty() {
            text += &format!("\n{}\n", self.about);
        }
        text += "\nFlags:\n";
        let left = |flag: &Flag| {
            let short = if flag.short.is_empty() { String::new() } else { format!("{}, ", flag.short) };
            let value = if flag.value.is_empty() { String::new() } else { format!(" {}", flag.value) };
            format!("{short}{}{value}", flag.long)
        };
        let width = self.flags().map(|flag| left(flag).len()).chain(["-h, --help".len()]).max().unwrap_or(0);
        for flag in self.flags() {
            text += &format!("  {:width$}  {}\n", left(flag), flag.help);
        }
        text += &format!("  {:width$}  {}\n", "-h, --help", "this text");
        if !self.examples.is_empty() {
            text += "\nExamples:\n";
            for example in self.examples {
                text += &format!("  {example}\n");
            }
        }
        text
    }
}

/// A parsed and validated command line.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub verb: &'static str,
    values: Vec<(&'static str, String)>,
    pub positionals: Vec<String>,
    pub help: bool,
}

impl Parsed {
    pub(crate) fn has(&self, long: &str) -> bool {
        self.values.iter().any(|(name, _)| *name == long)
    }

    pub(crate) fn value(&self, long: &str) -> Option<&str> {
        self.values.iter().find(|(name, _)| *name == long).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, long: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.values.iter().filter(move |(name, _)| *name == long).map(|(_, value)| value.as_str())
    }
}

/// Parses `arguments` (without the verb's name) against the verb's table.
pub(crate) fn parse(verb: &CliVerb, arguments: &[String]) -> Result<Parsed, Failure> {
    let mut parsed = Parsed { verb: verb.name, ..Parsed::default() };
    let mut rest = arguments.iter();
    let mut only_positionals = false;
    while let Some(argument) = rest.next() {
        if only_positionals || !argument.starts_with('-') || argument == "-" {
            parsed.positionals.push(argument.clone());
            continue;
        }
        if argument == "--" {
            only_positionals = true;
            continue;
        }
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        if name == "-h" || name == "--help" {
            parsed.help = true;
            return Ok(parsed);
        }
        let Some(flag) = verb.flags().find(|flag| flag.long == name || (!flag.short.is_empty() && flag.short == name))
        else {
            let mut failure = Failure::usage(format!("unknown flag `{name}` for `spanprof {}`", verb.name));
            failure = match nearest(name, verb.flags().map(|flag| flag.long)) {
                Some(close) => failure.hint(format!("did you mean `{close}`?")),
                None => failure.hint(see_help(verb)),
            };
            return Err(failure);
        };
        let value = match (flag.value.is_empty(), inline) {
            (true, None) => String::new(),
            (true, Some(value)) => {
                return Err(Failure::usage(format!("`{}` takes no value, got `{value}`", flag.long)));
            }
            (false, Some(value)) => value,
            (false, None) => rest.next().cloned().ok_or_else(|| {
                Failure::usage(format!("`{}` needs a value: {} {}", flag.long, flag.long, flag.value))
                    .hint(see_help(verb))
            })?,
        };
        if !flag.repeats && !flag.value.is_empty() && parsed.has(flag.long) {
            return Err(Failure::usage(format!("`{}` is given twice", flag.long)).hint("give it once"));
        }
        parsed.values.push((flag.long, value));
    }
    let count = parsed.positionals.len();
    if count < *verb.positionals.start() {
        return Err(Failure::usage(format!("`spanprof {}` needs: {}", verb.name, verb.usage)).hint(see_help(verb)));
    }
    if count > *verb.positionals.end() {
        let extra = &parsed.positionals[*verb.positionals.end()];
        return Err(Failure::usage(format!("unexpected argument `{extra}`")).hint(see_help(verb)));
    }
    Ok(parsed)
}

fn see_help(verb: &CliVerb) -> String {
    format!("see `spanprof {} --help`", verb.name)
}

/// The name with the smallest edit distance to `given`, if the distance is small enough for a typing error.
pub(crate) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = given.trim_start_matches('-').to_ascii_lowercase().replace('_', "-");
    // Longer input is far from every name; the limit bounds the cost of the distances.
    if plain.is_empty() || plain.len() > 64 {
        return None;
    }
    known
        .map(|name| {
            let bare = name.trim_start_matches('-');
            let is_prefix = plain.len() >= 2 && bare.starts_with(plain.as_str());
            let distance = if is_prefix { 0 } else { strsim::levenshtein(&plain, bare) };
            (distance, name)
        })
        .filter(|(distance, _)| *distance <= 1 + plain.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// A byte count such as `512MiB`, `2G` or `1048576`.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    static VERB: CliVerb = CliVerb {
        name: "probe",
        summary: "Probes",
        usage: "FILE [FLAGS]",
        about: "",
        flags: &[&[
            Flag::value("--service", "NAME", "the service"),
            Flag { long: "--label", short: "-l", value: "KEY=VALUE", help: "a label", repeats: true },
            Flag::switch("--json", "as JSON"),
        ]],
        examples: &[],
        positionals: 1..=1,
        run: |_| Ok(0),
    };

    fn read(words: &[&str]) -> Result<Parsed, Failure> {
        parse(&VERB, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_take_their_value_after_a_space_or_an_equals_sign() {
        let parsed = read(&["f", "--service", "cart", "--label=a=b", "-l", "c=-5", "--json"]).unwrap();
        assert_eq!(parsed.value("--service"), Some("cart"));
        assert_eq!(parsed.all("--label").collect::<Vec<_>>(), ["a=b", "c=-5"]);
        assert!(parsed.has("--json"));
        assert_eq!(parsed.positionals, ["f"]);
    }

    #[test]
    fn an_unknown_flag_suggests_the_nearest_name() {
        let failure = read(&["f", "--servce", "cart"]).unwrap_err();
        assert_eq!(failure.exit_code, 2);
        assert_eq!(failure.hint.as_deref(), Some("did you mean `--service`?"));
        assert_eq!(read(&["f", "--zzzzzz"]).unwrap_err().hint.as_deref(), Some("see `spanprof probe --help`"));
        assert!(read(&["f", &format!("--{}", "x".repeat(100_000))]).is_err());
    }

    #[test]
    fn missing_repeated_and_surplus_values_are_errors() {
        assert!(read(&["f", "--service"]).is_err());
        assert!(read(&["f", "--service", "a", "--service", "b"]).is_err());
        assert!(read(&["f", "--json=yes"]).is_err());
        assert!(read(&[]).is_err());
        assert!(read(&["f", "g"]).is_err());
    }

    #[test]
    fn help_lists_every_flag() {
        assert!(read(&["--help"]).unwrap().help);
        let help = VERB.help();
        for word in ["--service NAME", "-l, --label KEY=VALUE", "--json", "-h, --help"] {
            assert!(help.contains(word), "{help}");
        }
    }

    #[test]
    fn byte_counts_have_binary_units() {
        assert_eq!(parse_bytes("512MiB"), Some(512 << 20));
        assert_eq!(parse_bytes("2g"), Some(2 << 30));
        assert_eq!(parse_bytes("77"), Some(77));
        assert_eq!(parse_bytes("99999999999T"), None);
        assert_eq!(parse_bytes("5 parsecs"), None);
        assert_eq!(parse_bytes("-1"), None);
    }
}
