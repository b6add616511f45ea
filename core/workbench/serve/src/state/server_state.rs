//! The state that all requests of a server share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use spanprof_profile::redact::ProfileRedactor;
use spanprof_profile::transform::StackTree;
use spanprof_read::query::TopTable;

use super::settings::{Addresses, Settings};
use super::slots::{ConnectionSlots, WorkerSlots};
use crate::query::derived::DerivedCache;
use crate::store::Store;

/// Services whose first request is logged; further ones are not tracked.
const MAX_REPORTED_SERVICES: usize = 1024;

pub(crate) struct ServerState {
    pub settings: Settings,
    pub addresses: Addresses,
    pub store: Store,
    /// Of the last results of `store`.
    pub trees: DerivedCache<StackTree>,
    pub tables: DerivedCache<TopTable>,
    pub counters: IntakeCounters,
    pub started: Instant,
    /// Bytes of requests in memory, see `intake`.
    pub held_bytes: AtomicUsize,
    pub connection_slots: ConnectionSlots,
    /// Requests decoded at once.
    pub decode_slots: WorkerSlots,
    /// Queries executed at once.
    pub query_slots: WorkerSlots,
    /// Shared by all requests: it remembers the texts that need no change.
    pub redactor: Option<Mutex<ProfileRedactor>>,
    reported_services: Mutex<BTreeSet<String>>,
}

impl ServerState {
    pub(crate) fn new(settings: Settings, addresses: Addresses, store: Store) -> Self {
        let redactor = settings.redaction.clone().map(|settings| Mutex::new(ProfileRedactor::new(settings)));
        ServerState {
            redactor,
            settings,
            addresses,
            store,
            trees: DerivedCache::new(StackTree::memory_bytes),
            tables: DerivedCache::new(TopTable::memory_bytes),
            counters: IntakeCounters::default(),
            started: Instant::now(),
            held_bytes: AtomicUsize::new(0),
            connection_slots: ConnectionSlots::new(),
            // Each may take as much memory as the decoder's limits allow.
            decode_slots: WorkerSlots::new(2),
            query_slots: WorkerSlots::new(1),
            reported_services: Mutex::default(),
        }
    }

    /// Writes a log line.
    pub(crate) fn report(&self, line: &str) {
        (self.settings.report)(line);
    }

    /// True once per service name.
    pub(crate) fn is_new_service(&self, name: &str) -> bool {
        let mut services = self.reported_services.lock().unwrap_or_else(PoisonError::into_inner);
        services.len() < MAX_REPORTED_SERVICES && services.insert(name.to_owned())
    }
}

/// Counters of requests by outcome, for `/api/stats`.
#[derive(Debug, Default)]
pub(crate) struct IntakeCounters {
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
    pub samples: AtomicU64,
    /// Profiles that an earlier request contained.
    pub duplicate_profiles: AtomicU64,
    pub refused_invalid: AtomicU64,
    pub refused_too_large: AtomicU64,
    pub refused_too_slow: AtomicU64,
    pub refused_unavailable: AtomicU64,
    pub broken: AtomicU64,
}
