//! Stands in for object storage in builds without it. No value of its type exists.

use super::{ListedObject, ObjectUrl, StorageError};
use spanprof_answers::failure::Failure;

#[derive(Debug)]
pub(crate) enum NoObjectStorage {}

impl NoObjectStorage {
    pub(crate) fn open(url: &ObjectUrl) -> Result<Self, Failure> {
        Err(Failure::usage(format!("cannot use {url}: this build of spanprof has no object storage, as in the Python package"))
            .hint("install the stand-alone command: cargo install --path core/workbench/cli; or copy the objects to a directory first"))
    }

    pub(crate) fn url(&self) -> &ObjectUrl {
        match *self {}
    }

    pub(crate) fn size(&self, _key: &str) -> Result<Option<u64>, StorageError> {
        match *self {}
    }

    pub(crate) fn list(&self) -> Result<Vec<ListedObject>, StorageError> {
        match *self {}
    }

    pub(crate) fn get_all(&self, _keys: &[String], _max_bytes: u64) -> Vec<Result<Vec<u8>, StorageError>> {
        match *self {}
    }

    pub(crate) fn put(&self, _key: &str, _body: Vec<u8>) -> Result<(), StorageError> {
        match *self {}
    }

    pub(crate) fn put_all(&self, _objects: Vec<(String, Vec<u8>)>) -> Vec<Result<(), StorageError>> {
        match *self {}
    }
}
