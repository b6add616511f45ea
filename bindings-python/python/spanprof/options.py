"""The settings of ``start`` and ``update``, for type checkers only. docs/reference/configuration.md describes them."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from typing_extensions import Literal, TypedDict

_Text = Mapping[str, object]


class Options(TypedDict, total=False):
    """Settings by their keys."""

    enabled: bool
    service_name: str
    resource_attributes: _Text
    tags: _Text
    sample_rate: int
    clock: Literal["auto", "thread_timer", "perf"]
    cpu: bool
    wall: bool
    wall_rate: int | None
    profiles: Literal["default", "all"]
    own_code: Sequence[str]
    gc: bool
    heap: bool
    heap_interval: int
    heap_live_samples: int
    heap_peak_directory: str | os.PathLike[str] | None
    lock: bool
    lock_threshold: float
    off_cpu: bool
    threads: bool
    upload_interval: float
    max_stack_depth: int
    native_frames: Literal["off", "on", "all"]
    keep_timestamps: bool
    retention: Literal["all", "tail"]
    tail_duration: float | Literal["p99", "none"]
    tail_cpu_share: float | None
    tail_allocated_bytes: int | None
    tail_errors: bool
    endpoint: str | None
    protocol: Literal["http/protobuf", "grpc"]
    headers: _Text
    compression: Literal["gzip", "none"]
    timeout: float
    certificate: str | os.PathLike[str]
    client_key: str | os.PathLike[str]
    client_certificate: str | os.PathLike[str]
    insecure: bool
    link: Literal["trace_and_span", "span", "none"]
    destinations: Sequence[Mapping[str, Any]]
    file_directory: str | os.PathLike[str] | None
    file_keep: int
    file_max_age: float | None
    file_max_bytes: int | None
    pull: str | None
    pull_token: str | None
    metrics: bool
    metrics_interval: float
    metrics_endpoint: str
    metrics_headers: _Text
    redaction: bool
    redaction_rules: Sequence[Mapping[str, Any]]
    redaction_hash_key: str
    queue_max_bytes: int
    buffer_directory: str | os.PathLike[str] | None
    buffer_max_bytes: int
    max_profile_size: int
    stop_timeout: float
    thread_labels: bool
    inherit_threads: bool
    requests: bool
    signals: bool
    cpu_budget: float
    sample_rate_max: int | None
    adaptive_threshold: float
    load_shedding: bool | None
    load_shedding_threshold: float | None
    config_file: str | os.PathLike[str]
    cpu_duty_cycle: str
    heap_duty_cycle: str
    output: str | os.PathLike[str]


class ConfigureOptions(Options, total=False):
    """Settings, and the keyword arguments of Pyroscope's ``configure`` except its first three."""

    basic_auth_username: str
    basic_auth_password: str
    auth_token: str
    enable_logging: bool
    oncpu: bool
    native: bool | None
    gil_only: bool
    report_pid: bool
    report_thread_id: bool
    report_thread_name: bool
    detect_subprocesses: bool
    tenant_id: str
    http_headers: Mapping[str, str] | None
    line_no: object
    log_level: object
    mem_enabled: bool
    mem_max_nframe: int
    mem_heap_sample_size: int
    mem_enable_mem_domain: bool
    cpu_enabled: bool
    cpu_implementation: object


class PyroscopeOptions(ConfigureOptions, total=False):
    """Settings, and all keyword arguments of Pyroscope's ``configure``."""

    app_name: str | None
    application_name: str | None
    server_address: str
