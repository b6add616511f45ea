//! Typed indices into the tables of a [`crate::Dictionary`]. An id is valid only for the dictionary that assigned it.

macro_rules! ids {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        $($(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The empty value of the table.
            pub const EMPTY: Self = Self(0);

            /// Whether this is the id of the empty value.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The index as a slice index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        })+
    };
}

ids! {
    /// Index into the string table; 0 is "".
    StringId;
    /// Index into the function table; 0 is the empty function.
    FunctionId;
    /// Index into the mapping table; 0 is the empty mapping.
    MappingId;
    /// Index into the location table; 0 is the empty location.
    LocationId;
    /// Index into the stack table; 0 is the empty stack.
    StackId;
    /// Index into the link table; 0 is "no link".
    LinkId;
    /// Index into the attribute table; 0 is the empty attribute.
    AttributeId;
    /// Index into the table of attribute sets; 0 is the empty set. OTLP has no such table; it deduplicates label sets.
    AttributeSetId;
}
