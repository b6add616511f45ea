//! Waits for the first of two futures.

use std::future::Future;
use std::pin::pin;

/// Output of the first of two futures.
pub(crate) enum First<L, R> {
    Left(L),
    Right(R),
}

/// Waits for the first of two futures and drops the other; the left one is polled first.
pub(crate) async fn first<L: Future, R: Future>(left: L, right: R) -> First<L::Output, R::Output> {
    let mut left = pin!(left);
    let mut right = pin!(right);
    std::future::poll_fn(|context| {
        if let std::task::Poll::Ready(value) = left.as_mut().poll(context) {
            return std::task::Poll::Ready(First::Left(value));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}
