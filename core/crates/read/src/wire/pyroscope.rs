//! `push.v1.PushRequest` of Pyroscope (grafana/pyroscope, api/push/v1/push.proto).

use super::messages::messages;

messages! { protobuf;
    PushRequest {
        [1 message, repeated] series: Vec<Series>, 200;
    }

    Series {
        [1 message, repeated] labels: Vec<Label>, 160;
        [2 message, repeated] samples: Vec<RawSample>, 100;
    }

    Label {
        [1 string] name: String;
        [2 string] value: String;
    }

    /// A pprof profile, plain or gzip. Its id is not used: a repeated request is recognized by its contents.
    RawSample {
        [1 bytes] raw_profile: Vec<u8>;
    }
}
