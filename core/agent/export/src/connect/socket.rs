//! A TCP connection without an event loop: the only descriptor that an idle exporter keeps open. tokio's I/O driver keeps
//! three more. When the host closes those, tokio panics, and its wakeups write into the file that reused the number. Here one
//! thread per connection connects, then sleeps in `poll` until the socket is readable. A write that would block is repeated
//! after a delay. Called by the connector.

use crate::connect::blocking::{Pending, THREAD_NAME};
use crate::connect::owned_descriptor::OwnedDescriptor;
use crate::settings::StartThread;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{ready, Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// Timeout of one `poll`: the identity of the descriptor is checked between two polls.
const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Delay before a write is repeated; it doubles up to the maximum.
const MIN_WRITE_DELAY: Duration = Duration::from_millis(1);
const MAX_WRITE_DELAY: Duration = Duration::from_millis(32);

/// A TCP connection as an asynchronous byte stream.
pub(crate) struct Socket {
    state: Arc<SocketState>,
    write_delay: Option<Pin<Box<Sleep>>>,
    next_write_delay: Duration,
}

struct SocketState {
    stream: OwnedDescriptor<TcpStream>,
    reader: Mutex<ReadWaiter>,
    changed: Condvar,
}

/// The task that waits for bytes.
#[derive(Default)]
struct ReadWaiter {
    waker: Option<Waker>,
    is_dropped: bool,
}

impl Socket {
    /// Starts to connect. The result may be dropped.
    pub fn connect(
        start_thread: StartThread,
        address: SocketAddr,
        timeout: Duration,
    ) -> io::Result<Pending<io::Result<Self>>> {
        let (sender, pending) = oneshot::channel();
        let body = move || match SocketState::connect(address, timeout).map(Arc::new) {
            Ok(state) => {
                let socket = Self { state: state.clone(), write_delay: None, next_write_delay: MIN_WRITE_DELAY };
                // Without a receiver the socket is dropped, which ends the loop below.
                drop(sender.send(Ok(socket)));
                state.wake_reader_until_drop();
            }
            Err(error) => drop(sender.send(Err(error))),
        };
        start_thread(THREAD_NAME, Box::new(body))?;
        Ok(pending)
    }

    fn poll_write_delay(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(delay) = &mut self.write_delay {
            ready!(delay.as_mut().poll(context));
            self.write_delay = None;
        }
        Poll::Ready(())
    }
}

impl SocketState {
    fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        // Best effort: without TCP_NODELAY, small packets are only delayed.
        let _ = stream.set_nodelay(true);
        stream.set_nonblocking(true)?;
        Ok(Self { stream: OwnedDescriptor::new(stream)?, reader: Mutex::default(), changed: Condvar::new() })
    }

    fn reader(&self) -> MutexGuard<'_, ReadWaiter> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_reader_until_drop(&self) {
        loop {
            let has_no_work = |reader: &mut ReadWaiter| reader.waker.is_none() && !reader.is_dropped;
            if self.changed.wait_while(self.reader(), has_no_work).unwrap_or_else(PoisonError::into_inner).is_dropped {
                return;
            }
            let must_wake = match self.stream.get() {
                Ok(stream) => {
                    let ready = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&POLL_TIMEOUT));
                    !matches!(ready, Ok(0) | Err(Errno::INTR))
                }
                // The read returns the error.
                Err(_) => true,
            };
            if must_wake {
                let waker = self.reader().waker.take();
                waker.into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.state.reader().is_dropped = true;
        self.state.changed.notify_one();
        if let Ok(stream) = self.state.stream.get() {
            // Ends the thread's `poll`.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let state = &self.state;
        // Locked before the read: bytes that arrive after it wake the waker stored here.
        let mut reader = state.reader();
        loop {
            match state.stream.get()?.read(into.initialize_unfilled()) {
                Ok(length) => {
                    reader.waker = None;
                    into.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    reader.waker = Some(context.waker().clone());
                    state.changed.notify_one();
                    return Poll::Pending;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// Writes one buffer at a time, since only those use MSG_NOSIGNAL; a vectored write could raise SIGPIPE, which terminates a
/// host with the default action.
impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_delay(context));
            match self.state.stream.get()?.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let delay = self.next_write_delay;
                    self.next_write_delay = (delay * 2).min(MAX_WRITE_DELAY);
                    self.write_delay = Some(Box::pin(tokio::time::sleep(delay)));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => {
                    self.next_write_delay = MIN_WRITE_DELAY;
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.state.stream.get().and_then(|stream| stream.shutdown(Shutdown::Write)))
    }
}

#[cfg(test)]
mod tests {
    use super::Socket;
    use crate::settings::ExporterSettings;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

    fn block_on<T>(future: impl std::future::Future<Output = T>) -> T {
        // Without the I/O driver, as in the exporter.
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let start_thread = ExporterSettings::default().start_thread;
        let timeout = Duration::from_secs(10);
        let socket = Socket::connect(start_thread, listener.local_addr().unwrap(), timeout).unwrap().await.unwrap();
        (socket.unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn vectored_writes_are_off_since_they_could_raise_sigpipe() {
        assert!(!block_on(pair()).0.is_write_vectored());
    }

    #[test]
    fn transfers_larger_than_the_socket_buffers_arrive_in_both_directions() {
        const BYTES: usize = 16 << 20;
        block_on(async {
            let (mut client, mut server) = pair().await;
            let echo = std::thread::spawn(move || {
                let mut bytes = vec![0; BYTES];
                std::thread::sleep(Duration::from_millis(20));
                server.read_exact(&mut bytes).unwrap();
                server.write_all(&bytes).unwrap();
            });
            let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
            client.write_all(&sent).await.unwrap();
            let mut back = Vec::new();
            client.read_to_end(&mut back).await.unwrap();
            assert!(back == sent);
            echo.join().unwrap();
        });
    }

    #[test]
    fn dropping_the_connection_ends_it_for_the_peer() {
        let (client, mut server) = block_on(pair());
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        drop(client);
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
    }
}
