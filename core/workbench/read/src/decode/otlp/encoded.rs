//! The parts of a request in protobuf that stay encoded until they are converted: stacks and samples, most of its bytes. As messages
//! they would take several times the memory of the model.

use prost::{DecodeError, Message};

use crate::wire::otlp::{Profile, ProfilesData, ProfilesDictionary, ResourceProfiles, ScopeProfiles, Stack};
use crate::wire::otlp::{Sample, SAMPLES, STACK_TABLE};
use crate::wire::scan;

/// A message whose submessages of one field stay encoded, and their number.
#[derive(Clone, Copy, Default)]
pub(super) struct EncodedList<'b> {
    bytes: &'b [u8],
    pub count: usize,
}

/// Stacks and samples of a request.
#[derive(Default)]
pub(super) struct EncodedParts<'b> {
    dictionaries: Vec<EncodedList<'b>>,
    /// By position of the profile in the request.
    profiles: Vec<EncodedList<'b>>,
}

impl<'b> EncodedParts<'b> {
    /// The request without stacks and samples, and these. For bytes that the scan has accepted.
    pub fn split(bytes: &'b [u8]) -> Result<(ProfilesData, Self), DecodeError> {
        let mut parts = Self::default();
        let mut request = ProfilesData::default();
        scan::decode_without(bytes, &mut request, |number, message, request| {
            match number {
                1 => request.resource_profiles.push(parts.resource(message)?),
                2 => {
                    let dictionary = request.dictionary.get_or_insert_with(ProfilesDictionary::default);
                    parts.dictionaries.push(encoded(message, STACK_TABLE, dictionary)?);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok((request, parts))
    }

    fn resource(&mut self, bytes: &'b [u8]) -> Result<ResourceProfiles, DecodeError> {
        let mut resource = ResourceProfiles::default();
        scan::decode_without(bytes, &mut resource, |number, message, resource| {
            if number == 2 {
                resource.scope_profiles.push(self.scope(message)?);
            }
            Ok(number == 2)
        })?;
        Ok(resource)
    }

    fn scope(&mut self, bytes: &'b [u8]) -> Result<ScopeProfiles, DecodeError> {
        let mut scope = ScopeProfiles::default();
        scan::decode_without(bytes, &mut scope, |number, message, scope| {
            if number == 2 {
                let mut profile = Profile::default();
                self.profiles.push(encoded(message, SAMPLES, &mut profile)?);
                scope.profiles.push(profile);
            }
            Ok(number == 2)
        })?;
        Ok(scope)
    }

    pub fn stack_count(&self) -> usize {
        self.dictionaries.iter().map(|list| list.count).sum()
    }

    pub fn for_each_stack<E>(
        &self,
        mut visit: impl FnMut(Result<&Stack, DecodeError>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.dictionaries.iter().try_for_each(|list| list.for_each(STACK_TABLE, &mut visit))
    }

    /// The samples of the profile at a position.
    pub fn samples(&self, profile: usize) -> EncodedList<'b> {
        self.profiles.get(profile).copied().unwrap_or_default()
    }
}

impl EncodedList<'_> {
    pub fn for_each_sample<E>(
        &self,
        visit: impl FnMut(Result<&Sample, DecodeError>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.for_each(SAMPLES, visit)
    }

    /// Decodes the messages one at a time, into one message whose memory is used again.
    fn for_each<M: Message + Default, E>(
        &self,
        number: u32,
        mut visit: impl FnMut(Result<&M, DecodeError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut message = M::default();
        scan::for_each_message(self.bytes, number, |bytes| {
            message.clear();
            match message.merge(bytes) {
                Ok(()) => visit(Ok(&message)),
                Err(error) => visit(Err(error)),
            }
        })
    }
}

/// Merges a message into `rest`, except for the submessages of one field.
fn encoded<'b>(bytes: &'b [u8], number: u32, rest: &mut impl Message) -> Result<EncodedList<'b>, DecodeError> {
    let mut count = 0;
    scan::decode_without(bytes, rest, |field, _, _| {
        count += usize::from(field == number);
        Ok(field == number)
    })?;
    Ok(EncodedList { bytes, count })
}
